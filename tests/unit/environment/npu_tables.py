"""Tables of `npu-smi info` in the shapes it has had, and answers of the other tools."""

from __future__ import annotations

RULE = "+" + "-" * 88 + "+"


def a2(
    count: int = 2, name: str = "910B4", health: str = "OK", used: tuple[int, ...] = (), tool: str = "24.1.1"
) -> str:
    """910B cards. used: MB of HBM for each NPU, of 32768."""
    lines = [
        RULE,
        "| npu-smi 24.1.1                   Version: 24.1.1                                               |",
        RULE,
        "| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|",
        "| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |",
        RULE,
    ]
    for number in range(count):
        hbm = used[number] if number < len(used) else 2800
        lines += [
            f"| {number}     {name:<19} | {health:<13} | 88.2        30                0    / 0             |",
            f"| 0                         | 0000:C{number}:00.0  | 0           0    / 0          {hbm}/ 32768    |",
            RULE,
        ]
    lines += [
        "| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |",
        RULE,
    ]
    for number in range(count):
        if number < len(used):
            lines.append(
                f"| {number}       0              | 1933{number}         | python3                  | {used[number]} |"
            )
        else:
            lines.append(f"| No running processes found in NPU {number}                                            |")
    return "\n".join([*lines, RULE])


A3 = """\
| npu-smi 25.2.1                   Version: 25.2.1                                               |
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip  Phy-ID              | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
| 0     Ascend910           | OK            | 166.5       38                0    / 0             |
| 0     0                   | 0000:9D:00.0  | 0           0    / 0          3131 / 65536         |
| 0     Ascend910           | OK            | -           37                0    / 0             |
| 1     1                   | 0000:9F:00.0  | 0           0    / 0          2886 / 65536         |
| No running processes found in NPU 0                                                            |
"""
A1 = """\
| npu-smi 24.1.0                   Version: 24.1.0                                               |
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
| 0     910ProB             | OK            | 68.0        36                0    / 0             |
| 0                         | 0000:C1:00.0  | 0           2387 / 13553      18   / 32768         |
"""
I310P = """\
+--------------------------------------------------------------------------------------------------------+
| npu-smi 25.2.0                                   Version: 25.2.0                                       |
| NPU     Name                  | Health          | Power(W)     Temp(C)           Hugepages-Usage(page) |
| Chip    Device                | Bus-Id          | AICore(%)    Memory-Usage(MB)                        |
| 2       310P3                 | OK              | NA           52                0    / 0              |
| 0       0                     | 0000:02:00.0    | 0            1858 / 44215                            |
| NPU     Chip                  | Process id      | Process name             | Process memory(MB)        |
| No running processes found in NPU 2                                                                    |
"""
I310 = """\
| npu-smi 22.0.4                   Version: 22.0.4                                               |
| NPU   Name                | Health        | Power(W)    Temp(C)                               |
| Chip  Device              | Bus-Id        | AICore(%)   Memory-Usage(MB)                      |
| 0     310                 | OK            | 12.8        45                                    |
| 0     0                   | 0000:06:00.0  | 0           2703 / 8192                           |
"""
WIDE_26 = """\
| npu-smi 26.0.rc1                                          Version: 26.0.rc1                                          |
| NPU     Name                      | Health          | Bus-Id            | Power(W)   Temp(C)   Hugepages-Usage(page) |
| Chip    Phy-ID                    | Bus-Id          | AICore(%)         | Memory-Usage(MB)     HBM-Usage(MB)         |
| 0       910B3                     | Warning         | -                 | 93.1       41        0 / 0                 |
| 0       0                         | 0000:C1:00.0    | 0                 | 0 / 0                60000/ 65536          |
| NPU     Chip                      | Process id      | Process name                 | Process memory(MB)             |
| 0       0                         | 19334           | VLLMWorker_TP                | 58472                          |
"""
E_8005 = "DrvMngGetConsoleLogLevel failed. (g_conLogLevel=3)\ndcmi module initialize failed. ret is -8005\n"
E_8020 = "dcmi model initialized failed, because the device is used. ret is -8020\n"
