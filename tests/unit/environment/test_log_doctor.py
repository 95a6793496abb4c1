"""The error texts that users have posted are recognised, harmless lines are not."""

from __future__ import annotations

import pytest

from msrun_cli.cli.dispatch import COMMANDS
from msrun_cli.environment.explain import explain_exception, explain_lines, known_errors
from msrun_cli.environment.registry import CHECKS

TEXTS = [
    (
        "version_mismatch",
        "[WARNING] MindSpore version 2.3.1 and Ascend AI software package (Ascend Data Center Solution)version 7.5 "
        "does not match, the version of software package expect one of ['7.2', '7.3'].",
    ),
    ("te_import", "CheckFailed: cannot import name 'version' from 'te' (unknown location)"),
    ("te_import", "ImportError: cannot import name 'util' from 'tbe.tvm.topi.cce'"),
    ("te_requires", "te 0.4.0 requires attrs, which is not installed."),
    ("te_requires", "opc-tool 0.1.0 requires decorator, which is not installed."),
    ("te_version", 'MindSpore version 2.3.1 and "te" wheel package version 7.5 does not match.'),
    ("te_fusion", "ModuleNotFoundError: No module named 'te_fusion'"),
    ("te_fusion", "EC0010: Failed to import Python module [ModuleNotFoundError: No module named 'tbe.common.x'.]."),
    ("op_debug_dir", "KeyError: 'op_debug_dir'"),
    (
        "cann_variables",
        "[WARNING] Cannot find the tbe operator implementation(need by mindspore-ascend). Please check whether the "
        "Environment Variable PYTHONPATH is set.",
    ),
    (
        "cann_variables",
        "Cannot find opp path (need by mindspore-ascend). Please check whether the Environment Variable "
        "ASCEND_OPP_PATH is set.",
    ),
    (
        "driver_path",
        "Cannot find driver so(need by mindspore-ascend). Please check whether the Environment Variable "
        "LD_LIBRARY_PATH is set.",
    ),
    (
        "version_unchecked",
        "Using custom Ascend AI software package (Ascend Data Center Solution) path, package version checking is "
        "skipped. Please make sure Ascend AI software package (Ascend Data Center Solution) version is supported.",
    ),
    ("te_import", 'MindSpore relies on whl package "te" in Ascend AI software package (Ascend Data Center Solution).'),
    (
        "libge_runner",
        "Load dynamic library: libmindspore_ascend.so.2 failed. libge_runner.so: cannot open shared object file",
    ),
    ("libge_runner", "ImportError: libhccl.so: cannot open shared object file: No such file or directory"),
    ("libascend_hal", "libascend_hal.so: cannot open shared object file: No such file or directory"),
    ("libcann_kb", "libcann_kb.so: cannot open shared object file: No such file or directory"),
    (
        "unsupported_target",
        "RuntimeError: Unsupported device target Ascend. This process only supports one of the ['CPU'].",
    ),
    ("chip_unsupported", "LoadOpInfoJson] Get op info json suffix path failed, soc_version: Ascend310P3"),
    ("wrong_kernels", "the socversion Ascend910B1 of bin package does not match the current device socverison"),
    ("opp_missing", "E30006: Failed to verify the OPP package"),
    ("opp_missing", "libopmaster.so: undefined symbol: _ZN2ge14GetShapeErrMsgEjRKSs in /x/7.0.RC1/opp/built-in"),
    ("opp_missing", "Ascend opp_kernels is not installed"),
    ("custom_operator_version", "The version 9.1 used for compiling the custom operator does not match Ascend AI"),
    ("json_parse_error_101", "[json.exception.parse_error.101] parse error at line 1, column 1: last read: 'T'"),
    ("tls_block", "/x/libgomp.so.1: cannot allocate memory in static TLS block"),
    ("tls_block", "Pre-Load Library libgomp.so.1 failed, which might cause TLS memory allocation failure."),
    ("dcmi_8005", "dcmi module initialize failed. ret is -8005"),
    ("dcmi_8020", "dcmi model initialized failed, because the device is used. ret is -8020"),
    ("out_of_memory", "EL0004: 2025-01-01 Failed to allocate memory."),
    ("out_of_memory", "Malloc device memory failed, free memory size is less than half of total memory size."),
    ("device_out_of_range", "set ASCEND_RT_VISIBLE_DEVICES:[4] error, input data rang[0-2)"),
    ("device_out_of_range", "Call aclrtSetDevice failed, ret[107001]. Got device count[8] and device id[9]"),
    ("set_device_507033", "tsd client wait response fail, device response code[1]. error code is 507033"),
    ("context_empty", "aclrtMemcpy failed, ret:107002"),
    ("lost_heartbeat", "ACL stream synchronize failed, error code:507010"),
    ("aicore_timeout", "rtStreamSynchronize failed, ret=507014"),
    ("hbm_ecc", "error code is 507054, HBM ECC error"),
    ("driver_internal", "ret = 507899, driver internal error"),
    ("hccl_timeout", "EI0006: Getting socket times out. Reason: Remote Rank did not send the data in time."),
    (
        "hccl_port",
        "socket type[1], listen on ip[192.168.20.160] and specific port[16666] fail, port is been using",
    ),
    ("hccl_init", "HcclCommInitRootInfo failed. Error Number 2"),
    ("master_addr", "DNS resolution failed: [Errno -2]"),
    ("hccn_tool", "/bin/sh: 1: hccn_tool: not found"),
    ("glibc", "ImportError: /lib/x86_64-linux-gnu/libm.so.6: version `GLIBC_2.27' not found (required by x.so)"),
    ("glibcxx", "/usr/lib64/libstdc++.so.6: version `GLIBCXX_3.4.26' not found"),
    ("numpy_2", "ValueError: Unable to avoid copy while creating an array as requested."),
    ("numpy_2", "A module that was compiled using NumPy 1.x cannot be run in NumPy 2.4.6 as it may crash."),
    ("numpy_2", "[WARNING] py_parse.cc:132] Numpy init failed."),
    ("libgl", "ImportError: libGL.so.1: cannot open shared object file: No such file or directory"),
    ("shadowed_mindspore", "ModuleNotFoundError: No module named 'mindspore.version'"),
    ("mindspore_missing", "ModuleNotFoundError: No module named 'mindspore'"),
    ("libdnnl", "libmindspore_backend.so: undefined symbol: dnnl_threadpool_interop_stream_create"),
    ("python_not_found", "sh:1:python:not found"),
    ("launcher_given_command", "python: can't open file '/work/train': [Errno 2] No such file or directory"),
    ("shared_memory", "OSError: [Errno 28] No space left on device: '/dev/shm/psm_1'"),
    ("segfault", "Segmentation fault (core dumped)"),
]
HARMLESS = [
    "epoch 1 step 107 loss 5.070",
    "Topology build timed out., retry(3/1200).",
    "107002 images, 507010 boxes",
    "step 507014 of 507899",
    "numpy 2.4.6 is fine for this other program",
    "[INFO] libge_runner.so loaded",
]


@pytest.mark.parametrize(("error", "text"), TEXTS, ids=[f"{error}-{number}" for number, (error, _) in enumerate(TEXTS)])
def test_text_of_a_user(error: str, text: str) -> None:
    found = explain_lines(["something before", text, "something behind"])
    assert error in [item.error.id for item in found]
    chosen = next(item for item in found if item.error.id == error)
    assert (chosen.line, chosen.count) == (2, 1)
    assert chosen.error.cause and chosen.error.remedy in chosen.paragraph()


def test_every_known_error_has_a_text() -> None:
    assert {error.id for error in known_errors()} == {error for error, _ in TEXTS}


def test_known_errors_name_checks_that_exist() -> None:
    ids = {check.id for check in CHECKS}
    for error in known_errors():
        assert set(error.checks) <= ids, error.id
        assert error.cause and error.remedy and error.source


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_that_mindspores_launcher_took_for_a_script(command: str) -> None:
    text = f"python: can't open file '/work/my runs/{command}': [Errno 2] No such file or directory"
    assert [item.error.id for item in explain_lines([text])] == ["launcher_given_command"]


@pytest.mark.parametrize("text", HARMLESS)
def test_harmless_lines(text: str) -> None:
    assert explain_lines([text]) == []


def test_the_cause_stands_before_its_consequence() -> None:
    """A crash at the end of a log comes from the mismatch that was reported above it, whatever the order of lines."""
    log = ["Segmentation fault (core dumped)", TEXTS[0][1], "Segmentation fault (core dumped)"]
    found = explain_lines(log)
    assert [item.error.id for item in found] == ["version_mismatch", "segfault"]
    assert (found[1].line, found[1].count) == (1, 2)


def test_endless_line() -> None:
    assert explain_lines(["x" * 10_000_000]) == []


def test_exception_and_what_caused_it() -> None:
    try:
        try:
            raise KeyError("op_debug_dir")
        except KeyError as error:
            raise RuntimeError("Compile failed") from error
    except RuntimeError as error:
        found = explain_exception(error)
    assert [item.error.id for item in found] == ["op_debug_dir"]
    assert "line" not in found[0].paragraph(numbered=False).splitlines()[0]
    assert explain_exception(ValueError("no such optimizer")) == []
