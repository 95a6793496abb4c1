"""One process of a launched job: `python -m msrun_cli.tasks.rank CONFIG MODULE:FUNCTION`, from MindSpore's launcher.

The configuration was composed by the parent and is complete. The first process that the launcher starts is no rank but
the scheduler, through which the ranks find one another.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from pathlib import Path

from msrun_cli.common.errors import UserError
from msrun_cli.common.files import write_json
from msrun_cli.runtime import rank_environment
from msrun_cli.runtime.process import prepare_process, unblock_signals


def main() -> int:
    unblock_signals()
    rank_environment.die_with_parent()
    if rank_environment.is_scheduler():
        return _schedule()
    prepare_process()
    path, task = sys.argv[1:]
    try:
        _run(Path(path), task)
        return 0
    except KeyboardInterrupt:
        return _failed(130, "interrupted")
    except UserError as error:
        return _failed(error.exit_code, str(error))
    except BaseException as error:
        traceback.print_exc()
        return _failed(1, f"{type(error).__name__}: {str(error).strip()}")


def _schedule() -> int:
    import mindspore as ms
    from mindspore.communication import init

    ms.set_device("CPU")
    init()
    return 0


def _run(path: Path, task: str) -> None:
    from omegaconf import DictConfig, OmegaConf

    config = OmegaConf.load(path)
    assert isinstance(config, DictConfig)
    OmegaConf.set_struct(config, True)
    module, _, function = task.partition(":")
    getattr(importlib.import_module(module), function)(config)


def _failed(code: int, text: str) -> int:
    """Leave the error for the parent. Not through Python's exit, where MindSpore would wait for the other ranks."""
    number = rank_environment.rank()
    assert number is not None
    logs = Path(os.environ[rank_environment.RUN_FOLDER]) / "logs"
    print(f"{rank_environment.LAST_WORDS} with code {code}: {text}", file=sys.stderr)
    write_json(rank_environment.failure_file(logs, number), {"code": code, "text": text})
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
