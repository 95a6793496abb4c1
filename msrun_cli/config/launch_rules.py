"""Rules on several devices: how processes are launched, and how the work is shared out among them. See rules."""

from __future__ import annotations

from typing import Any

from msrun_cli.config.rule_book import error, remark

_OF_LAUNCH = {"none": (), "local": ("workers",), "cluster": ("workers", "nodes", "node_rank", "master")}
_GRAPH_MODES = ("optimizer_sharding", "semi_auto", "auto")  # what the compiler does
_KEYS = {"optimizer_sharding": ("level", "threshold_kb", "shard_size"), "auto": ("search",)}


def ranks_of(launch: dict[str, Any]) -> int:
    """How many processes train together."""
    return int(launch["workers"]) * int(launch["nodes"])


@error("launch")
def _launch_is_named(launch: dict[str, Any]) -> str | None:
    """`launch.workers=8` alone would be taken and do nothing."""
    kind, workers, nodes = launch["kind"], launch["workers"], launch["nodes"]
    if kind == "none" and (workers > 1 or nodes > 1):
        other = "launch=local" if nodes == 1 else "launch=cluster"
        return f"launch.workers={workers}, launch.nodes={nodes} with launch=none (one process). Set {other} as well."
    if kind == "local" and nodes > 1:
        return f"launch.nodes={nodes} with launch=local (this host only). Set launch=cluster for several hosts."
    return None


@error("launch.kind", "launch.nodes", "launch.node_rank", "launch.port")
def _place_in_the_cluster(kind: str, nodes: int, node_rank: int, port: int | None) -> str | None:
    if node_rank >= nodes:
        return (
            f"launch.node_rank={node_rank}, but launch.nodes={nodes}: hosts are counted from 0, so it must be at most "
            f"{nodes - 1}."
        )
    if kind == "cluster" and port is None:
        return "launch.port=null: all hosts must know the same port; set launch.port=8118."
    return None


@error("launch", "parallel.mode")
def _modes_fit(launch: dict[str, Any], mode: str) -> str | None:
    if launch["kind"] == "none" and mode != "none":
        return (
            f"parallel={mode} needs several devices. Set launch=local launch.workers=N, or leave parallel out: launch "
            "chooses it."
        )
    if launch["kind"] != "none" and mode == "none" and ranks_of(launch) > 1:
        return (
            f"launch={launch['kind']} with parallel=none: {ranks_of(launch)} processes would each train the same. "
            "Set parallel=data_parallel."
        )
    return None


@error("parallel")
def _keys_of_mode(parallel: dict[str, Any]) -> str | None:
    mode = parallel["mode"]
    wanted = _KEYS.get(mode, ())
    lacking = [key for key in wanted if key not in parallel]
    if lacking:
        return f"parallel.mode={mode} needs parallel.{', parallel.'.join(lacking)}: choose parallel={mode} instead."
    extra = [key for keys in _KEYS.values() for key in keys if key in parallel and key not in wanted]
    if extra:
        return f"unknown key parallel.{', parallel.'.join(extra)}: parallel={mode} has no such setting. Leave it out."
    return None


@error("parallel.mode", "device.target", "device.mode")
def _compiler_modes(mode: str, target: str, execution: str) -> str | None:
    if mode not in _GRAPH_MODES:
        return None
    if target == "cpu":
        return f"parallel={mode} with device=cpu: MindSpore offers data_parallel only there. Use that."
    if execution != "graph":
        return (
            f"parallel={mode} with device.mode={execution}: the graph compiler shares out the work. Set "
            "device.mode=graph, or parallel=data_parallel."
        )
    return None


@error("parallel", "launch")
def _shard_size(parallel: dict[str, Any], launch: dict[str, Any]) -> str | None:
    size, ranks = parallel.get("shard_size", -1), ranks_of(launch)
    if size == -1 or (0 < size <= ranks and ranks % size == 0):
        return None
    return f"parallel.shard_size={size}: must be -1 (all), or a divisor of the {ranks} devices."


@error("parallel.mode", "accumulate", "nbs", "ema.enabled")
def _not_with_shards(mode: str, accumulate: int | None, nbs: int | None, ema: bool) -> str | None:
    """The average and the accumulated gradients are kept whole beside the weights."""
    if mode not in _GRAPH_MODES or not (ema or accumulate != 1):
        return None
    setting = "ema=on" if ema else f"accumulate={accumulate}"
    other = "ema=off" if ema else "accumulate=1"
    return (
        f"parallel={mode} with {setting}: weights are split among the devices, what is kept beside them is not. Set "
        f"{other}, or parallel=data_parallel."
    )


@remark("launch", "batch_size", "accumulate", "nbs")
def _accumulation_twice(launch: dict[str, Any], batch_size: int, accumulate: int | None, nbs: int | None) -> str | None:
    together = batch_size * ranks_of(launch)
    if accumulate is None or nbs is None or together * accumulate == nbs:
        return None
    return (
        f"accumulate={accumulate} decides the update; nbs={nbs} only scales weight decay by "
        f"{together * accumulate / nbs:g}. Set accumulate=null to take it from nbs."
    )


@remark("launch", "logger.progress")
def _live_bar(launch: dict[str, Any], progress: str) -> str | None:
    if progress != "rich" or ranks_of(launch) == 1:
        return None
    return "logger.progress=rich has no effect with several processes: rank 0 shows its progress line by line."


@remark("launch.kind", "launch.workers", "launch.nodes")
def _one_process(kind: str, workers: int, nodes: int) -> str | None:
    if kind == "none" or workers * nodes > 1:
        return None
    return f"launch={kind} with one process: launch=none does the same without a scheduler."


@error("profile", "launch")
def _profiles_of_other_settings(profile: dict[str, Any], launch: dict[str, Any]) -> str | None:
    """They run in single processes of their own."""
    if ranks_of(launch) == 1 or not (profile["try"] or profile["amp"]):
        return None
    key = "profile.try=true" if profile["try"] else f"profile.amp={profile['amp']}"
    return (
        f"{key} with {ranks_of(launch)} processes: other settings are measured in one process each. Set launch=none, "
        "or profile each setting by a command of its own and show two with msrun profile --compare A B."
    )
