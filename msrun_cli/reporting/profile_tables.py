"""What `msrun profile` shows on the terminal, from the document of profile.json."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

PART_WORDS = {
    "wait": "wait for data",
    "host": "host work (launching)",
    "forward": "forward",
    "backward": "backward",
    "update": "update",
    "step": "train step (call and device)",
    "logging": "logging, callbacks",
}
_OUTCOMES = {"faster": "green", "slower": "red", "failed": "red"}


def profile_tables(document: dict[str, Any], top: int) -> Group:
    """Steps, data, operators, levels; the verdict and what to change come last, where eyes are."""
    parts: list[Any] = []
    if document["step"] is not None:
        parts.append(step_table(document))
    if document["data"] is not None:
        parts.append(data_table(document["data"]))
    if document["operators"] is not None:
        parts += [operator_table(document["operators"], "by_type", min(top, 10))]
        parts += [operator_table(document["operators"], "by_name", min(top, 5))]
    if document["ascend"] is not None:
        parts.append(ascend_table(document["ascend"]))
    if document["amp"]:
        parts.append(level_table(document["amp"]))
    parts.append(conclusion(document))
    return Group(*parts)


def step_table(document: dict[str, Any]) -> Table:
    step, settings = document["step"], document["settings"]
    spread = step["step_ms"]
    table = Table(title=escape(f"A training step: {described(settings)}"))
    table.add_column("part", no_wrap=True)
    table.add_column("ms", justify="right", no_wrap=True)
    table.add_column("share", justify="right", no_wrap=True)
    whole = step["mean_ms"] or 1.0
    for name, value in step["breakdown_ms"].items():
        table.add_row(PART_WORDS[name], f"{value:.1f}", f"{value / whole:.0%}")
    table.add_section()
    table.add_row(f"mean of {step['count']} steps", f"{step['mean_ms']:.1f}", "")
    table.add_row("median (10 % .. 90 %)", f"{spread['median']:.1f} ({spread['p10']:.1f} .. {spread['p90']:.1f})", "")
    for words, value in figures(document):
        table.add_row(words, value, "")
    return table


def described(settings: dict[str, Any]) -> str:
    return f"{settings['model']}, batch {settings['batch_size']}, {settings['image_size']} px, amp {settings['amp']}"


def figures(document: dict[str, Any]) -> list[tuple[str, str]]:
    """Single numbers: (words, value with its unit)."""
    memory, found = document["memory"], []
    found.append(("images/s", f"{document['images_per_s']:.1f}"))
    if document["alone"] is not None and document["what"] == "both":
        found.append(("alone, on a constant batch", f"{document['alone']['step_ms']['median']:.1f} ms"))
    known = document["operators"] is not None
    words = "device idles" if known else "device idles, at least"
    found.append((words, f"{document['device_idle']:.0%}"))
    if document["compile_s"] is not None:
        found.append(("compilation", f"{document['compile_s']:.1f} s"))
    found.append(("memory peak of the process", f"{memory['peak_rss_mib']:.0f} MiB"))
    if memory["operators_mib"] is not None:
        found.append(("of it for tensors", f"{memory['operators_mib']:.0f} MiB"))
    if memory["peak_device_mib"] is not None:
        found.append(("memory peak of the device", f"{memory['peak_device_mib']:.0f} MiB"))
    return found


def data_table(data: dict[str, Any]) -> Table:
    how = "processes" if data["processes"] else "threads"
    table = Table(
        title=f"The input pipeline alone: {data['images_per_s']:.0f} images/s with {data['workers']} {how}, "
        f"prefetch {data['prefetch']}"
    )
    table.add_column("stage", no_wrap=True)
    table.add_column("ms per image", justify="right", no_wrap=True)
    table.add_column("share", justify="right", no_wrap=True)
    table.add_column("images/s, one thread", justify="right", no_wrap=True)
    for stage in data["stages"]:
        slowest = stage["name"] == data["slowest"]
        speed = "-" if stage["images_per_s"] is None else f"{stage['images_per_s']:.0f}"
        table.add_row(
            escape(stage["name"]) + (" (slowest)" if slowest else ""),
            f"{stage['ms']:.3f}",
            f"{stage['share']:.0%}",
            speed,
            style="bold" if slowest else None,
        )
    rates = data["images_per_s_by_threads"]
    if rates:
        found = ", ".join(f"{number}: {rate:.0f}" for number, rate in rates.items())
        table.caption = f"images/s of transforming alone, by threads: {found}"
    return table


def operator_table(operators: dict[str, Any], key: str, rows: int) -> Table:
    by = "type" if key == "by_type" else "name"
    whole = f"{operators['operators_ms']:.0f} ms, mean of {operators['steps']} steps"
    table = Table(title=f"Operators by {by}, per step ({whole})")
    table.add_column(by, overflow="fold")
    table.add_column("phase", no_wrap=True)
    for heading in ("count", "ms", "share"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in operators[key][:rows]:
        table.add_row(
            escape(shortened(row["name"])),
            row["phase"],
            f"{row['count']:.0f}",
            f"{row['ms']:.2f}",
            f"{row['share']:.1%}",
        )
    left = len(operators["by_type"]) - rows
    if key == "by_type" and left > 0:
        table.caption = f"and {left} more types in profile.json"
    return table


def shortened(name: str) -> str:
    """A compiled operator's name without what is the same for all: `network/model/0/conv/Conv2D-op0`.

    Scopes are `attribute-Class`; the phase stands in a column of its own.
    """
    scopes = name.removeprefix("Gradients/").removeprefix("Default/").removeprefix("forward-ScaledLoss/").split("/")
    return "/".join([*(scope.partition("-")[0] for scope in scopes[:-1]), scopes[-1]])


def ascend_table(ascend: dict[str, Any]) -> Table:
    table = Table(title="Ascend")
    table.add_column("table", no_wrap=True)
    table.add_column("what it says", overflow="fold")
    trace = ascend["step_trace_ms"]
    if trace is not None:
        parts = [f"{name.replace('_', ' ')} {value:.1f} ms" for name, value in trace.items() if name != "rows"]
        table.add_row("step trace", ", ".join(parts))
    communication = ascend["communication"]
    if communication is not None:
        longest = ", ".join(f"{item['name']} {item['elapsed_ms']:.1f} ms" for item in communication["operators"][:3])
        table.add_row(
            "communication",
            escape(f"{communication['elapsed_ms']:.1f} ms, of it {communication['wait_ms']:.1f} ms waiting; {longest}"),
        )
    dataset = ascend["dataset"]
    if dataset is not None:
        table.add_row("dataset queues", escape(_dataset_words(dataset)))
    if ascend["memory_mib"] is not None:
        table.add_row("memory", f"{ascend['memory_mib']:.0f} MiB at most")
    return table


def _dataset_words(dataset: dict[str, Any]) -> str:
    texts = []
    for stage in dataset["stages"]:
        if stage.get("queue_empty_pct") is not None:
            texts.append(f"{stage['name']}: queue empty {stage['queue_empty_pct']:.0f} %")
        elif stage.get("mean_ms") is not None:
            texts.append(f"{stage['name']}: {stage['mean_ms']:.2f} ms")
    return "; ".join([*texts, *([dataset["warning"]] if dataset.get("warning") else [])])


def level_table(rows: Sequence[dict[str, Any]]) -> Table:
    """A column per level."""
    table = Table(title="Precision levels: the same weights, the same batch")
    table.add_column("", no_wrap=True)
    for row in rows:
        table.add_column(row["level"], justify="right", overflow="fold")
    columns = [level_figures(row) for row in rows]
    for words in dict.fromkeys(words for column in columns for words in column):
        table.add_row(words, *(escape(column.get(words, "-")) for column in columns))
    return table


def level_figures(row: dict[str, Any]) -> dict[str, str]:
    """What was measured at a level of precision, by words."""
    if row["error"] is not None:
        return {"failed": row["error"]}
    step = row["step_ms"]
    return {
        "step, median (10 % .. 90 %)": f"{step['median']:.1f} ms ({step['p10']:.1f} .. {step['p90']:.1f})",
        "images/s": f"{row['images_per_s']:.1f}",
        "speed": f"{row['outcome']}: {interval(row)}" if row.get("outcome") else "-",
        "memory": f"{row['peak_device_mib'] or row['peak_rss_mib']:.0f} MiB",
        "compilation": "-" if row["compile_s"] is None else f"{row['compile_s']:.1f} s",
        "first loss": _loss(row["loss"]),
        "difference": percent(row.get("loss_difference")),
        f"loss after {row['after_steps']} steps": _loss(row["loss_after"]),
        f"difference after {row['after_steps']} steps": percent(row.get("loss_difference_after")),
    }


def _loss(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.6g}"


def conclusion(document: dict[str, Any]) -> Text:
    """Verdict, proposals, what to paste, where to look further."""
    text = Text()
    if document["verdict"] is not None:
        text.append("\nVerdict\n", style="bold")
        for sentence in document["verdict"]["sentences"]:
            text.append(f"  {sentence}\n")
    _append_proposals(text, document)
    for sentence in document["advice"]:
        text.append(f"  {sentence}\n")
    for note in document["notes"]:
        text.append(f"note: {note}\n", style="yellow")
    raw = document["raw"]
    if raw is not None:
        text.append("Raw profile: ", style="bold")
        text.append(f"{raw['folder']}\n  {how_to_open(document)}\n")
    return text


def _append_proposals(text: Text, document: dict[str, Any]) -> None:
    proposals = document["proposals"]
    if not proposals:
        return
    tried = any(item["outcome"] != "not tried" for item in proposals)
    text.append("What to change" + ("" if tried else " (not tried yet)") + "\n", style="bold")
    for item in proposals:
        text.append(f"  {' '.join(item['overrides'])}", style="bold cyan")
        text.append(f": {item['reason']}")
        if item["caveat"]:
            text.append(f" ({item['caveat']})")
        if item["outcome"] != "not tried":
            text.append(f" -> {proposal_outcome(item)}", style=_OUTCOMES.get(item["outcome"], ""))
        text.append("\n")
    if document["noise"] is not None:
        text.append(f"  Two measurements of the settings as they are differ by {document['noise']:.1%}.\n", style="dim")
    if document["paste"]:
        text.append("To paste: ", style="bold")
        text.append(f"{document['paste']}\n")
    elif tried:
        text.append("Nothing that was tried is surely faster: keep the settings as they are.\n", style="bold")
    else:
        text.append("  Add profile.try=true to measure them; what is slower will not be recommended.\n")


def proposal_outcome(item: dict[str, Any]) -> str:
    if item["gain"] is None:
        return f"{item['outcome']}: {item['error']}" if item["error"] else item["outcome"]
    return f"{item['outcome']}: {interval(item)}, {item['images_per_s']:.1f} images/s"


def interval(item: dict[str, Any]) -> str:
    """A gain with its spread: x1.21 (1.15 .. 1.27)."""
    return f"x{item['gain']:.2f} ({item['gain_low']:.2f} .. {item['gain_high']:.2f})"


def percent(value: float | None) -> str:
    return "-" if value is None else "0 %" if value == 0 else f"{100 * value:+.2g} %"


def how_to_open(document: dict[str, Any]) -> str:
    trace = (document["raw"] or {}).get("trace")
    words = (
        f"timeline: open {trace} in https://ui.perfetto.dev or chrome://tracing" if trace else "there is no timeline"
    )
    if document["device"]["target"] == "Ascend":
        words += "; or import the folder into MindStudio Insight (timeline, operators, memory, communication)"
    return f"{words}."
