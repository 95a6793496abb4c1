"""`msrun --worker_num=2 ... script.py` reaches MindSpore's own launcher, for real."""

from __future__ import annotations

import os

import pytest
from command import msrun

SCRIPT = """
import sys
import numpy as np
import mindspore as ms
from mindspore.communication import get_rank, init

ms.set_device("CPU")
init()
total = ms.ops.AllReduce()(ms.Tensor(np.full(2, get_rank() + 1, np.float32)))
print(f"rank {get_rank()} got {total.asnumpy().tolist()}, words {sys.argv[1:]}, {sys.executable}", flush=True)
"""


@pytest.mark.slow
def test_two_processes_of_a_script(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    words = ["--worker_num=2", "--local_worker_num=2", "--master_port=18923", "--join=True", "--log_dir=logs"]
    done = msrun(*words, "script.py", "--epochs", "a=b", cwd=tmp_path, PATH=os.defpath)
    assert done.returncode == 0, done.stdout + done.stderr
    for rank in range(2):
        log = (tmp_path / "logs" / f"worker_{rank}.log").read_text()
        assert f"rank {rank} got [3.0, 3.0], words ['--epochs', 'a=b']" in log
