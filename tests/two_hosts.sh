#!/usr/bin/env bash
# Two hosts on one machine: network namespaces joined by a veth pair. Needs root.
#   two_hosts.sh up NAME     makes NAME0 (10.77.0.1) and NAME1 (10.77.0.2)
#   two_hosts.sh cut NAME    takes the link down, as if a cable were pulled
#   two_hosts.sh down NAME   removes them
#   ip netns exec NAME0 COMMAND
set -euo pipefail
action=$1 name=$2

case $action in
up)
  for node in 0 1; do
    ip netns add "$name$node"
    ip -n "$name$node" link set lo up
  done
  ip link add "${name}v0" netns "${name}0" type veth peer name "${name}v1" netns "${name}1"
  for node in 0 1; do
    ip -n "$name$node" addr add "10.77.0.$((node + 1))/24" dev "${name}v$node"
    ip -n "$name$node" link set "${name}v$node" up
  done
  ;;
cut)
  ip -n "${name}0" link set "${name}v0" down
  ;;
down)
  for node in 0 1; do
    ip netns del "$name$node" 2>/dev/null || true
  done
  ;;
*)
  echo "two_hosts.sh: $action is none of up, cut, down" >&2
  exit 2
  ;;
esac
