"""The commands. Only typer and the standard library are imported before a command runs."""

from __future__ import annotations

from typing import Annotated

import typer

from msrun_cli import __version__
from msrun_cli.cli import options
from msrun_cli.config import bridge

app = typer.Typer(
    name="msrun",
    help="Train, evaluate, profile networks. Every setting is KEY=VALUE; `msrun train --cfg job` lists them.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command()
def train(
    overrides: options.Overrides = None,
    multirun: options.Multirun = False,
    cfg: options.Cfg = None,
    resolve: options.Resolve = False,
    package: options.Package = None,
    info: options.Info = None,
    config_name: options.ConfigName = None,
    config_dir: options.ConfigDir = None,
    debug: options.Debug = False,
) -> None:
    """Train a network. Example: msrun train model=yolov5s dataset=coco dataset.root=DIR epochs=50"""
    flags = _flags(multirun, cfg, resolve, package, info, config_name, config_dir, debug)
    raise typer.Exit(bridge.run(bridge.TRAIN, overrides or [], flags))


@app.command("eval")
def evaluate(
    overrides: options.Overrides = None,
    multirun: options.Multirun = False,
    cfg: options.Cfg = None,
    resolve: options.Resolve = False,
    package: options.Package = None,
    info: options.Info = None,
    config_name: options.ConfigName = None,
    config_dir: options.ConfigDir = None,
    debug: options.Debug = False,
) -> None:
    """Evaluate a checkpoint. Example: msrun eval checkpoint=RUN/checkpoints/best.ckpt"""
    flags = _flags(multirun, cfg, resolve, package, info, config_name, config_dir, debug)
    raise typer.Exit(bridge.run(bridge.EVAL, overrides or [], flags))


@app.command("check-data")
def check_data(
    overrides: options.Overrides = None,
    save: options.Save = None,
    as_json: options.Json = False,
    strict: options.Strict = False,
    deep: options.Deep = False,
    cfg: options.Cfg = None,
    resolve: options.Resolve = False,
    package: options.Package = None,
    info: options.Info = None,
    config_name: options.ConfigName = None,
    config_dir: options.ConfigDir = None,
    debug: options.Debug = False,
) -> None:
    """Look for faults in a dataset. Example: msrun check-data dataset=coco dataset.root=DIR"""
    flags = _flags(False, cfg, resolve, package, info, config_name, config_dir, debug)
    # Each option is a setting too, so that a configuration file can give it.
    named = [f"{key}=true" for key, wanted in (("json", as_json), ("strict", strict), ("deep", deep)) if wanted]
    if save is not None:
        escaped = save.replace('"', '\\"')
        named.append(f'save="{escaped}"')
    raise typer.Exit(bridge.run(bridge.CHECK_DATA, [*(overrides or []), *named], flags))


@app.command("check-env")
def check_env(
    verbose: options.Verbose = False,
    as_json: options.Json = False,
    report: options.Report = False,
    only: options.Only = None,
    skip: options.Skip = None,
    listed: options.Listed = False,
    quick: options.Quick = False,
    strict: options.Strict = False,
    device: options.CheckedDevice = options.DeviceKind.auto,
    root: options.Root = None,
    explain: options.Explain = None,
) -> None:
    """Look for faults in the installation. Example: msrun check-env --device ascend; --explain LOGFILE"""
    from msrun_cli.cli import environment

    if as_json and report:
        raise typer.BadParameter("only one of --json and --report can be given")
    wishes = environment.Wishes(
        verbose,
        as_json,
        report,
        tuple(only or ()),
        tuple(skip or ()),
        listed,
        quick,
        strict,
        device.value,
        root,
        explain,
    )
    raise typer.Exit(environment.run(wishes))


@app.command()
def profile(
    overrides: options.Overrides = None,
    compare: options.Compare = None,
    multirun: options.Multirun = False,
    cfg: options.Cfg = None,
    resolve: options.Resolve = False,
    package: options.Package = None,
    info: options.Info = None,
    config_name: options.ConfigName = None,
    config_dir: options.ConfigDir = None,
    debug: options.Debug = False,
) -> None:
    """Say what holds a training back. Example: msrun profile model=yolov5s dataset=coco dataset.root=DIR"""
    flags = _flags(multirun, cfg, resolve, package, info, config_name, config_dir, debug)
    if compare is None:
        raise typer.Exit(bridge.run(bridge.PROFILE, overrides or [], flags))
    if overrides or flags != bridge.Flags(debug=debug):
        raise typer.BadParameter("--compare A B shows two profiles that are there: it takes nothing else")
    raise typer.Exit(bridge.call(bridge.COMPARE_PROFILES, compare, debug))


def _flags(
    multirun: bool,
    cfg: options.ConfigKind | None,
    resolve: bool,
    package: str | None,
    info: options.InfoKind | None,
    config_name: str | None,
    config_dir: str | None,
    debug: bool,
) -> bridge.Flags:
    if sum([multirun, cfg is not None, info is not None]) > 1:
        raise typer.BadParameter("only one of --multirun, --cfg and --info can be given")
    if (resolve or package) and cfg is None:
        raise typer.BadParameter("--resolve and --package need --cfg")
    kind, topic = cfg.value if cfg else None, info.value if info else None
    return bridge.Flags(multirun, kind, resolve, package, topic, config_name, config_dir, debug)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"msrun-cli {__version__}")
        raise typer.Exit()


@app.callback()
def program(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    # The docstring would replace the help text of the program.
    del version
