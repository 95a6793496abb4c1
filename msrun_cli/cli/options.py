"""Option types that all commands share. Names and meanings are Hydra's."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from msrun_cli.cli.completion import complete_override


class ConfigKind(str, Enum):
    job = "job"
    hydra = "hydra"
    all = "all"


class InfoKind(str, Enum):
    all = "all"
    config = "config"
    defaults = "defaults"
    defaults_tree = "defaults-tree"
    plugins = "plugins"
    searchpath = "searchpath"


class DeviceKind(str, Enum):
    auto = "auto"
    cpu = "cpu"
    ascend = "ascend"


Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[OVERRIDES]...",
        help="Settings: epochs=10, model=yolov5s, optimizer.lr=0.02, train_transforms.mosaic=null ...",
        autocompletion=complete_override,
        show_default=False,
    ),
]
Multirun = Annotated[bool, typer.Option("--multirun", "-m", help="One job for each combination of a=1,2 b=3,4.")]
Cfg = Annotated[ConfigKind | None, typer.Option("--cfg", "-c", help="Print the configuration and stop.")]
Resolve = Annotated[bool, typer.Option("--resolve", help="With --cfg: replace ${...} by values.")]
Package = Annotated[str | None, typer.Option("--package", "-p", help="With --cfg: only this part, such as model.")]
Info = Annotated[InfoKind | None, typer.Option("--info", "-i", help="Print where the configuration comes from.")]
ConfigName = Annotated[str | None, typer.Option("--config-name", "-cn", help="Another primary configuration.")]
ConfigDir = Annotated[str | None, typer.Option("--config-dir", "-cd", help="A folder with more YAML files.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of errors.")]
Save = Annotated[str | None, typer.Option("--save", metavar="DIR", help="Write report.json and pictures there.")]
Json = Annotated[bool, typer.Option("--json", help="Print the report as JSON on standard output, nothing else.")]
Strict = Annotated[bool, typer.Option("--strict", help="Warnings end with exit code 1.")]
Deep = Annotated[bool, typer.Option("--deep", help="Decode every image whole.")]

Only = Annotated[
    list[str] | None, typer.Option("--only", metavar="ID[,ID]", help="Only these checks or groups of checks.")
]
Skip = Annotated[list[str] | None, typer.Option("--skip", metavar="ID[,ID]", help="Not these checks or groups.")]
Listed = Annotated[bool, typer.Option("--list", help="List the checks and stop.")]
Quick = Annotated[bool, typer.Option("--quick", help="Nothing that takes seconds: no import of OpenCV, no smoke test.")]
CheckedDevice = Annotated[
    DeviceKind, typer.Option("--device", help="What shall work; auto = Ascend where a device, driver or CANN is found.")
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Also sources, details, times and skipped checks.")]
Report = Annotated[bool, typer.Option("--report", help="Print a block for an issue thread, without secrets.")]
Root = Annotated[
    str | None, typer.Option("--root", metavar="DIR", help="Examine the machine whose files lie below DIR.")
]
Explain = Annotated[
    str | None,
    typer.Option("--explain", metavar="LOGFILE", help="Explain known error texts in a log; - is standard input."),
]
Compare = Annotated[
    tuple[str, str] | None,
    typer.Option("--compare", metavar="A B", help="Show two profiles side by side: run folders or their profile.json."),
]
