"""Folders as MindSpore's profiler leaves them, a few lines of each file."""

from __future__ import annotations

import json
from pathlib import Path

NETWORK = "Default/forward-ScaledLoss/network-Net/conv-Conv2d"


def write_cpu(parent: Path) -> Path:
    """Two steps of two operators on a CPU."""
    folder = parent / "host 一_17_20261201_ascend_ms"
    write(
        folder / "FRAMEWORK/cpu_op_execute_timestamp_0.txt",
        f"{NETWORK}/Conv2D-op0;HostCpuOps;1796105862144427001,2.5,0 1796105863144427001,3.5,0 \n"
        f"Gradients/{NETWORK}/Grad_Conv2D/Conv2DBackpropFilter-op0;HostCpuOps;1796105862150000000,4,0 "
        "1796105863150000000,4,1\n",
    )
    write(
        folder / "FRAMEWORK/cpu_op_detail_info_0.csv",
        "op_side,op_type,op_name,full_op_name,op_occurrences,op_total_time(ms),op_avg_time(ms),total_proportion,subgraph,pid\n"
        f"Host,Conv2D,Conv2D-op0,{NETWORK}/Conv2D-op0,2,6,3,0.4,Default,8975\n",
    )
    write(
        folder / "FRAMEWORK/cpu_ms_memory_record_0.txt",
        "Timestamp(ns),Total Allocated(Byte),Total Reserved(Byte),Total Active(Byte)\n"
        f"1,{2**20},{2**30},0\n2,{5 * 2**20},{2**30},0\n3,0,{2**30},0\n",
    )
    write(folder / "ASCEND_PROFILER_OUTPUT/trace_view.json", "[]")
    return folder


def write_ascend(parent: Path) -> Path:
    """Two steps on an Ascend, in the layout of MindSpore 2.7 to 2.10."""
    folder = parent / "host_17_20261201_ascend_ms"
    out = folder / "ASCEND_PROFILER_OUTPUT"
    write(
        out / "kernel_details.csv",
        "Model ID,Task ID,Stream ID,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),Block Num\n"
        f'1,10,2,{NETWORK}/Conv2D-op0,Conv2D,AI_CORE,"1000.5\t",200,1,24\n'
        f'1,11,2,Gradients/{NETWORK}/Grad_Conv2D/Conv2DBackpropFilter-op0,Conv2DBackpropFilter,AI_CORE,"1300.5\t",300,1,24\n'
        '1,12,3,Default/AllReduce-op0,hcom_allReduce_,HCCL,"1500.5\t",400,0,0\n'
        f'1,13,2,{NETWORK}/Conv2D-op0,Conv2D,AI_CORE,"3000.5\t",220,1,24\n',
    )
    write(
        out / "step_trace_time.csv",
        "Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble,"
        "Communication(Not Overlapped and Exclude Receive),Preparing\n"
        "0,6000,2500,500,3000,1500,10000,0,2500,\n",
    )
    timing = {"Communication Time Info": {"Elapse Time(ms)": 1.5, "Wait Time(ms)": 0.5}}
    long = {"Communication Time Info": {"Elapse Time(ms)": 4.0, "Wait Time(ms)": 1.0}}
    step = {
        "p2p": {},
        "collective": {"hcom_allReduce__1@2": timing, "hcom_broadcast__2@2": long, "Total Op Info": long},
    }
    write(out / "communication.json", json.dumps({"step0": step, "step1": step}))
    summary = {
        "pipeline_ops": ["DeviceQueue(id=0)", "Generator(id=1)"],
        "num_workers": [1, 8],
        "queue_empty_freq_pct": [72.5, -1],
        "queue_utilization_pct": [3.0, -1],
        "avg_cpu_pct": [2.0, 80.0],
        "per_batch_time": [12.0, 14.0],
        "bottleneck_warning": ["Generator(id=1) may be the bottleneck."],
        "bottleneck_suggestion": ["More workers."],
    }
    write(out / "minddata_pipeline_summary_0.json", json.dumps(summary))
    write(out / "dataset.csv", "Operation,Stage,Occurrences,Avg. time (us),Custom Info\nGeneratorOp,run,20,1500.5,x\n")
    write(
        out / "memory_record.csv",
        "Component,Timestamp(us),Total Allocated(MB),Total Reserved(MB),Total Active(MB),Device Type\n"
        "MindSpore,1.5,1024,4096,1024,NPU:0\nMindSpore,2.5,2048,4096,2000,NPU:0\n",
    )
    write(out / "trace_view.json", "[]")
    return folder


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
