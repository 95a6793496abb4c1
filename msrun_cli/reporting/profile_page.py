"""profile.html: one page without anything from outside, its pictures inside."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from msrun_cli.common.files import write_text
from msrun_cli.reporting.profile_tables import PART_WORDS, figures, how_to_open, level_figures, proposal_outcome

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; border-bottom: 1px solid #ddd; }
table { border-collapse: collapse; margin: .6rem 0; } th, td { padding: .2rem .8rem; text-align: left; }
th { border-bottom: 2px solid #bbb; } tr:nth-child(even) td { background: #f6f6f6; }
td.number { text-align: right; font-variant-numeric: tabular-nums; } td { overflow-wrap: anywhere; }
img { max-width: 100%; height: auto; }
.verdict { background: #fff7e0; border-left: 4px solid #edae49; padding: .5rem 1rem; }
pre { background: #f3f3f3; padding: .6rem; overflow-x: auto; }
.faster { color: #14772c; } .slower, .failed { color: #a32020; }
"""
_TITLES = {"steps": "Steps", "data_wait": "Wait for data", "operators": "Operators", "stages": "Input pipeline"}


def write_page(document: dict[str, Any], pictures: Mapping[str, Path], path: Path) -> Path:
    settings, device = document["settings"], document["device"]
    title = f"Profile: {settings['model']} on {settings['dataset']}, {device['target']}"
    about = (
        f"batch {settings['batch_size']}, {settings['image_size']} px, amp {settings['amp']}, {device['mode']} mode, "
        f"MindSpore {document['mindspore']}, msrun-cli {document['msrun']}, {device['processor']}, "
        f"{device['cores']} cores"
    )
    body = [f"<h1>{escape(title)}</h1>", f"<p>{escape(about)}</p>", *_verdict(document), *_proposals(document)]
    if document["step"] is not None:
        body += ["<h2>A training step</h2>", _step_table(document)]
    for name, picture in pictures.items():
        body += [f"<h2>{_TITLES[name]}</h2>", _picture(picture, _TITLES[name])]
    if document["operators"] is not None:
        for key, words in (("by_type", "Operators by type"), ("by_name", "Operators by name")):
            body += [f"<h2>{words}, per step</h2>", _operators(document["operators"][key][:30])]
    if document["amp"]:
        body += ["<h2>Precision levels</h2>", _levels(document["amp"])]
    body += _ending(document)
    write_text(path, _page(title, body))
    return path


def _page(title: str, body: Sequence[str]) -> str:
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style>'
    inside = "\n".join(body)
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head>\n<body>\n{inside}\n</body></html>\n'


def _verdict(document: dict[str, Any]) -> list[str]:
    if document["verdict"] is None:
        return []
    sentences = "".join(f"<p>{escape(text)}</p>" for text in document["verdict"]["sentences"])
    return ["<h2>Verdict</h2>", f'<div class="verdict">{sentences}</div>']


def _proposals(document: dict[str, Any]) -> list[str]:
    if not document["proposals"] and not document["advice"]:
        return []
    found = ["<h2>What to change</h2>"]
    if document["proposals"]:
        rows = [
            [
                f"<code>{escape(' '.join(item['overrides']))}</code>",
                escape(item["reason"] + (f" ({item['caveat']})" if item["caveat"] else "")),
                f'<span class="{escape(item["outcome"].split()[0])}">{escape(proposal_outcome(item))}</span>',
            ]
            for item in document["proposals"]
        ]
        found.append(_table(["setting", "why", "measured"], rows))
    found += [f"<p>{escape(text)}</p>" for text in document["advice"]]
    if document["paste"]:
        found.append(f"<p>To paste:</p><pre>{escape(document['paste'])}</pre>")
    return found


def _step_table(document: dict[str, Any]) -> str:
    step = document["step"]
    whole = step["mean_ms"] or 1.0
    rows = [
        [escape(PART_WORDS[name]), f"{value:.2f} ms", f"{value / whole:.1%}"]
        for name, value in step["breakdown_ms"].items()
    ]
    spread = step["step_ms"]
    rows.append([f"mean of {step['count']} steps", f"{step['mean_ms']:.2f} ms", ""])
    rows.append(
        ["median (10 % .. 90 %)", f"{spread['median']:.2f} ({spread['p10']:.2f} .. {spread['p90']:.2f}) ms", ""]
    )
    rows += [[escape(words), escape(value), ""] for words, value in figures(document)]
    return _table(["part", "time", "share"], rows, numbers=(1, 2))


def _operators(rows: Sequence[dict[str, Any]]) -> str:
    cells = [
        [escape(row["name"]), row["phase"], f"{row['count']:.0f}", f"{row['ms']:.3f}", f"{row['share']:.2%}"]
        for row in rows
    ]
    return _table(["name", "phase", "count", "ms", "share"], cells, numbers=(2, 3, 4))


def _levels(rows: Sequence[dict[str, Any]]) -> str:
    columns = [level_figures(row) for row in rows]
    cells = [
        [escape(words), *(escape(column.get(words, "-")) for column in columns)]
        for words in dict.fromkeys(words for column in columns for words in column)
    ]
    return _table(["", *(row["level"] for row in rows)], cells, numbers=range(1, len(rows) + 1))


def _ending(document: dict[str, Any]) -> list[str]:
    found = [f"<p>note: {escape(note)}</p>" for note in document["notes"]]
    if document["raw"] is not None:
        found += ["<h2>Raw profile</h2>", f"<pre>{escape(document['raw']['folder'])}</pre>"]
        found.append(f"<p>{escape(how_to_open(document))}</p>")
    words = escape(" ".join(document["overrides"])) or "none"
    return [*found, f"<h2>Overrides</h2><pre>{words}</pre>"]


def _picture(path: Path, words: str) -> str:
    data = base64.b64encode(path.read_bytes()).decode("ascii")
    return f'<img alt="{escape(words)}" src="data:image/png;base64,{data}">'


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[int] = ()) -> str:
    """rows: cells that are HTML already."""
    head = "".join(f"<th>{escape(text)}</th>" for text in headings)
    lines = [
        "<tr>" + "".join(f'<td class="number">{c}</td>' if i in numbers else f"<td>{c}</td>" for i, c in enumerate(row))
        for row in rows
    ]
    body = "\n".join(f"{line}</tr>" for line in lines)
    return f"<table><tr>{head}</tr>\n{body}</table>"
