"""From command line words to a running job: checks, Hydra's argv, the task imported only when a job starts."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from msrun_cli.common.errors import ConfigError, DeviceError, UserError
from msrun_cli.runtime.process import prepare_process, tell_of_crashes
from msrun_cli.runtime.rank_environment import refuse_foreign_launcher

if TYPE_CHECKING:  # hydra takes 0.2 s to import, which --help must not pay for
    from omegaconf import DictConfig

    from msrun_cli.config.composer import Composer
    from msrun_cli.config.preflight import Finding


@dataclass(frozen=True)
class Command:
    """name: also the key of its schema and its primary configuration; task: "module:function".

    program: words behind the Python interpreter that start this program again, for the jobs of a sweep.
    """

    name: str
    task: str
    program: tuple[str, ...] = ("-m", "msrun_cli")


@dataclass(frozen=True)
class Flags:
    """Options of the command line, as Hydra names them."""

    multirun: bool = False
    cfg: str | None = None
    resolve: bool = False
    package: str | None = None
    info: str | None = None
    config_name: str | None = None
    config_dir: str | None = None
    debug: bool = False

    def words(self) -> list[str]:
        """The same options for Hydra's own parser."""
        named = {"--cfg": self.cfg, "--package": self.package, "--info": self.info, "--config-dir": self.config_dir}
        words = [text for name, value in named.items() if value is not None for text in (name, value)]
        return words + ["--multirun"] * self.multirun + ["--resolve"] * self.resolve


TRAIN = Command("train", "msrun_cli.tasks.train:train")
EVAL = Command("eval", "msrun_cli.tasks.evaluate:evaluate")
CHECK_DATA = Command("check-data", "msrun_cli.tasks.check_data:check_data")
PROFILE = Command("profile", "msrun_cli.tasks.profile:profile")
COMPARE_PROFILES = "msrun_cli.tasks.compare_profiles:compare"


def run(command: Command, overrides: list[str], flags: Flags) -> int:
    """Run the command and return the exit code; errors for users are printed on stderr."""
    return _guarded(lambda: _run(command, overrides, flags), flags.debug)


def call(task: str, arguments: Sequence[str], debug: bool) -> int:
    """Run a task ("module:function") that has no configuration and no MindSpore; its result is the exit code."""
    return _guarded(lambda: int(_imported(task)(*arguments)), debug)


def _guarded(function: Callable[[], int], debug: bool) -> int:
    try:
        return function()
    except UserError as error:
        if debug:
            traceback.print_exc()
        say_error(error)
        if isinstance(error, DeviceError):
            _explain(error)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        from msrun_cli.environment.explain import explain_exception

        if not explain_exception(error):
            raise
        traceback.print_exception(error)
        _explain(error)  # behind the traceback, where it is seen
        return 1


def say_error(error: BaseException) -> None:
    """One red paragraph per fault; paragraphs of the text are separated by an empty line."""
    red, plain = ("\033[31m", "\033[0m") if sys.stderr.isatty() and "NO_COLOR" not in os.environ else ("", "")
    for paragraph in str(error).split("\n\n"):
        print(f"{red}error: {paragraph}{plain}", file=sys.stderr)


def _explain(error: Exception) -> None:
    """What the log doctor knows about the error."""
    from msrun_cli.environment.explain import explain_exception

    for explanation in explain_exception(error):
        print(f"known error: {explanation.paragraph(numbered=False)}", file=sys.stderr)


def _run(command: Command, overrides: list[str], flags: Flags) -> int:
    from msrun_cli.config.composer import Composer
    from msrun_cli.config.prepare import configured_sweep, prepared

    composer = Composer(flags.config_name or command.name, flags.config_dir)
    overrides, notes = prepared(composer, overrides, flags.multirun)
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    if flags.info is not None:
        _call_hydra(Job(command, flags), composer.config_name, overrides, flags)
        return 0
    multirun = flags.multirun or configured_sweep(composer, overrides)
    finding = _examined(composer, command, overrides, multirun)
    if flags.cfg is not None:
        return _show(command, composer.config_name, overrides, flags, finding)
    if finding.problems:
        raise ConfigError("\n\n".join(finding.problems))
    _require_files(finding.configs)
    _require_precision(finding.configs)
    for remark in finding.remarks:
        print(f"note: {remark}", file=sys.stderr)
    job = Job(command, flags)
    _call_hydra(job, composer.config_name, overrides, flags)
    return _exit_code(job)


def _examined(composer: Composer, command: Command, overrides: list[str], multirun: bool) -> Finding:
    from msrun_cli.config.preflight import examine

    return examine(composer, command.name, overrides, multirun)


def _show(command: Command, config_name: str, overrides: list[str], flags: Flags, finding: Finding) -> int:
    """--cfg: print what composes, then the faults; values that are still to be set do not count here."""
    faults = [text for text in finding.problems if " must be set" not in text]
    from msrun_cli.config.printing import print_job, require_part

    require_part(flags.package, finding.configs)
    if flags.cfg == "job" and not finding.refused and finding.configs:
        print_job(finding.configs[0], flags.package, resolve=flags.resolve)
    elif not finding.refused:
        _call_hydra(Job(command, flags), config_name, overrides, flags)
    if faults:
        raise ConfigError("\n\n".join(faults))
    return 0


def _require_files(configs: list[DictConfig]) -> None:
    from msrun_cli.config.inherit import require_file

    for config in configs:
        for key in ("weights", "checkpoint", "resume"):
            value = config.get(key)
            if isinstance(value, str):
                require_file(key, value)


def _require_precision(configs: list[DictConfig]) -> None:
    """The rule about bfloat16 on a CPU where only the machine tells that `device=auto` is one."""
    for config in configs:
        amp = config.get("amp")
        if amp is None or amp.dtype != "bfloat16" or amp.level == "O0" or config.device.target != "auto":
            continue
        from msrun_cli.environment.run_start import is_cpu_alone

        if is_cpu_alone():
            raise ConfigError(
                f"amp.level={amp.level} with amp.dtype=bfloat16: this machine has no NPU and no GPU, so device=auto "
                "is a CPU, on which MindSpore has no bfloat16 convolution. Set amp.dtype=float16, or amp=O0, which is "
                "also the fastest on a CPU."
            )


def _call_hydra(job: Job, config_name: str, overrides: list[str], flags: Flags) -> None:
    import hydra

    from msrun_cli.config.paths import conf_dir

    with _hydra_process([sys.argv[0], *overrides, *flags.words()]):
        hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name=config_name)(job)()


@contextmanager
def _hydra_process(argv: list[str]) -> Iterator[None]:
    """Hydra reads sys.argv; with HYDRA_FULL_ERROR it raises its errors instead of printing them and leaving."""
    old_argv, old_error = sys.argv, os.environ.get("HYDRA_FULL_ERROR")
    sys.argv, os.environ["HYDRA_FULL_ERROR"] = argv, "1"
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    try:
        yield
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(" ".join(f"{error} {error.__cause__ or ''}".split())) from error
    except OSError as error:  # errors of the job itself are kept in it
        raise ConfigError(
            f"the run folder cannot be made: {error.filename}: {error.strerror}. Set output_dir to a folder that can "
            "be written."
        ) from error
    finally:
        sys.argv = old_argv
        if old_error is None:
            os.environ.pop("HYDRA_FULL_ERROR", None)
        else:
            os.environ["HYDRA_FULL_ERROR"] = old_error


@dataclass
class Job:
    """What Hydra calls for each job. Errors are kept, so that Hydra neither prints nor stops at them.

    failures: (label, error) of each failed job; sweep: whether Hydra runs several jobs.
    """

    command: Command
    flags: Flags
    failures: list[tuple[str, Exception]] = field(default_factory=list)
    sweep: bool = False

    def __call__(self, config: DictConfig) -> Any:
        from hydra.core.hydra_config import HydraConfig
        from omegaconf import OmegaConf

        overrides = [str(text) for text in HydraConfig.get().overrides.task]
        self.sweep = not OmegaConf.is_missing(HydraConfig.get().job, "num")
        try:
            return self._start(config, overrides)
        except Exception as error:
            self.failures.append((" ".join(overrides), error))
            return None

    def child_command(self, overrides: list[str]) -> list[str]:
        """Command line of one job of a sweep, for the launcher."""
        flags = self.flags
        named = {"--config-name": flags.config_name, "--config-dir": flags.config_dir}
        words = [text for name, value in named.items() if value is not None for text in (name, value)]
        return [
            sys.executable,
            *self.command.program,
            self.command.name,
            *words,
            *["--debug"] * flags.debug,
            *overrides,
        ]

    def child_failed(self, label: str, code: int, folder: str) -> None:
        """Told by the launcher."""
        self.sweep = True
        self.failures.append((label, UserError(f"job `{label}` ended with exit code {code}; its folder is {folder}")))

    def _start(self, config: DictConfig, overrides: list[str]) -> Any:
        from msrun_cli.config import check, launch_rules, preflight, schema
        from msrun_cli.config.conform import conform
        from msrun_cli.environment.run_start import require_runnable

        refuse_foreign_launcher(self.command.name)
        root = schema.ROOTS[self.command.name]
        preflight.take_over_run(config, overrides)
        problems = check.problems(config, root)
        if problems:
            raise ConfigError("\n\n".join(problems))
        _require_files([config])
        if config.get("device") is not None:
            require_runnable(config.device.target)
        if launch_rules.ranks_of(config.get("launch") or {"workers": 1, "nodes": 1}) > 1:
            return _imported("msrun_cli.tasks.launch:launch")(conform(config, root), self.command.task)
        tell_of_crashes()
        prepare_process()  # before mindspore is imported with the task
        return _imported(self.command.task)(conform(config, root))


def _imported(task: str) -> Callable[..., Any]:
    module, _, function = task.partition(":")
    return getattr(importlib.import_module(module), function)


def _exit_code(job: Job) -> int:
    """A single job's error is raised again; a sweep names each failed job and ends with 1."""
    if not job.failures:
        return 0
    if not job.sweep:
        raise job.failures[0][1]
    for label, error in job.failures:
        if job.flags.debug or not isinstance(error, UserError):
            traceback.print_exception(error)
        say_error(error if label in str(error) else ConfigError(f"job `{label}`: {error}"))
    return 1
