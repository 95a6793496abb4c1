"""Which settings are most likely to help, and what trying them showed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from msrun_cli.profiling.pipeline import DataProfile
from msrun_cli.profiling.verdict import COMMUNICATION, COMPUTE, HOST, INPUT, Facts, Verdict, contention

MOST = 3  # proposals
FASTER, SLOWER, UNCLEAR, FAILED, UNTRIED = "faster", "slower", "no clear difference", "failed", "not tried"


@dataclass(frozen=True)
class Settings:
    """Those of the profiled training that proposals change. None = the recipe has no such setting.

    free_mib: memory of the host that is free; peak_mib: what the profile took of it
    """

    device: str
    graph: bool
    sink: bool
    amp_level: str
    loss_scale: str
    batch_size: int
    train_images: int
    accumulate: int
    log_every: int
    workers: int
    processes: bool
    prefetch: int
    jit_level: str | None = None
    cache: str | None = None
    reduced_decoding: bool | None = None
    free_mib: float | None = None
    peak_mib: float | None = None


@dataclass(frozen=True)
class Proposal:
    """overrides: to paste; reason: why they may help, with numbers; caveat: what else they change.

    gain: images/s with them / without; gain_low, gain_high: 95 % interval; all None when outcome is "not tried" or
    "failed". error: why a trial failed.
    """

    overrides: tuple[str, ...]
    reason: str
    caveat: str | None = None
    outcome: str = UNTRIED
    gain: float | None = None
    gain_low: float | None = None
    gain_high: float | None = None
    images_per_s: float | None = None
    error: str | None = None

    @property
    def name(self) -> str:
        return " ".join(self.overrides)

    def tried(self, **found: Any) -> Proposal:
        return replace(self, **found)

    def as_json(self) -> dict[str, Any]:
        return {
            "overrides": list(self.overrides),
            "reason": self.reason,
            "caveat": self.caveat,
            "outcome": self.outcome,
            **{key: _rounded(getattr(self, key)) for key in ("gain", "gain_low", "gain_high", "images_per_s")},
            "error": self.error,
        }


def propose(verdict: Verdict, facts: Facts, settings: Settings, data: DataProfile | None) -> list[Proposal]:
    """At most three, the most promising first: those for what holds the training back most, then for the rest."""
    found: list[Proposal] = []
    for bound in verdict.bounds:
        if bound == INPUT:
            found += _for_input(facts, settings, data)
        elif bound == HOST:
            found += _for_host(facts, settings)
        elif bound == COMMUNICATION:
            found += _for_communication(settings)
        elif bound == COMPUTE:
            found += _for_compute(facts, settings, data)
    if verdict.bounds[-1] != COMPUTE and len(found) < MOST:
        found += _for_compute(facts, settings, data)
    unique: dict[tuple[str, ...], Proposal] = {}
    for proposal in found:
        unique.setdefault(proposal.overrides, proposal)
    return list(unique.values())[:MOST]


def advice(verdict: Verdict, facts: Facts, settings: Settings, data: DataProfile | None) -> list[str]:
    """What a short trial cannot show or what changes the training itself: sentences, not tried."""
    sentences = []
    if INPUT in verdict.bounds and data is not None:
        if settings.cache == "none" and data.share("decode") >= 0.25:
            sentences.append(
                f"Decoding is {data.share('decode'):.0%} of a picture's work: dataset.cache=ram (or disk) saves it "
                "from the second epoch on."
            )
        sentences.append(
            f"The slowest stage is {data.slowest} ({data.stages.ms[data.slowest]:.2f} ms, "
            f"{data.share(data.slowest):.0%} of a picture's work)."
        )
        if data.waiting_ms > 0.5 * data.stages.cpu_ms:
            sentences.append(
                f"A picture waits {data.waiting_ms:.1f} ms for its file or a free core, besides "
                f"{data.stages.cpu_ms:.1f} ms of work: look at the disk, and at other programs on this machine."
            )
    if "compile" in verdict.bounds:
        sentences.append(
            "Compilation is paid once per process: more epochs in one run, or device.jit_level=O0 (compiles less, "
            "steps may be slower)."
        )
    if facts.phases.get("update", 0.0) >= 0.25 and settings.accumulate == 1:
        sentences.append(
            f"The update takes {facts.phases['update']:.0%} of the operators' time: accumulate=2 halves its part, with "
            "the batch per update doubled."
        )
    return sentences


def _for_input(facts: Facts, settings: Settings, data: DataProfile | None) -> list[Proposal]:
    found = []
    best = data.best_threads if data is not None else None
    if data is not None and best is not None and best > data.workers:
        now, then = data.by_threads.get(data.workers), data.by_threads[best]
        compared = f"{then:.0f} images/s instead of {now:.0f}" if now else f"{then:.0f} images/s"
        found.append(Proposal((f"dataset.workers={best}",), f"{best} threads transform {compared}"))
    if data is not None and not data.processes and data.cores > 1 and _scaling(data) < 0.6 * data.cores:
        workers = () if data.workers == data.cores else (f"dataset.workers={data.cores}",)
        found.append(
            Proposal(
                ("dataset.python_multiprocessing=true", *workers),
                f"{data.cores} threads are only {_scaling(data):.1f} times as fast as one: they wait for Python's lock",
                "processes take more memory and seconds to start",
            )
        )
    if settings.reduced_decoding is False:
        found.append(
            Proposal(
                ("dataset.reduced_decoding=true",),
                "large JPEGs are decoded at 1/2, 1/4 or 1/8 of their size",
                "pixels differ a little",
            )
        )
    more = max(4, 2 * settings.prefetch)
    found.append(
        Proposal((f"dataset.prefetch={more}",), "more batches wait ready, so that slow ones do not hold up a step")
    )
    return found


def _for_host(facts: Facts, settings: Settings) -> list[Proposal]:
    found = []
    if not settings.graph:
        found.append(Proposal(("device.mode=graph",), "operators are launched as one graph instead of one by one"))
    if settings.device != "CPU" and settings.graph and not settings.sink:
        found.append(Proposal(("device.sink=on",), "the device fetches batches itself and runs steps without the host"))
    found += _larger_batch(settings, "the host's work per step is spread over more images")
    logging = facts.parts["logging"] / facts.step_ms if facts.step_ms else 0.0
    if logging >= 0.03:
        every = max(50, 5 * settings.log_every)
        found.append(Proposal((f"logger.every={every}",), f"logging and callbacks take {logging:.0%} of a step"))
    return found


def _for_communication(settings: Settings) -> list[Proposal]:
    return _larger_batch(settings, "gradients are exchanged for more images at once")


def _for_compute(facts: Facts, settings: Settings, data: DataProfile | None) -> list[Proposal]:
    found = []
    if not settings.graph:
        found.append(Proposal(("device.mode=graph",), "the compiler fuses operators"))
    if settings.device != "CPU" and settings.amp_level in ("O0", "O1"):
        scale = ("loss_scale=dynamic",) if settings.loss_scale == "none" else ()
        found.append(
            Proposal(
                ("amp=O2", *scale),
                "half precision runs on the fast units and halves memory traffic",
                "check the metric",
            )
        )
    if settings.device == "CPU" and data is not None and settings.workers > 1 and _one_is_enough(facts, data):
        how = f"{data.by_threads[1]:.0f} images/s" if data.by_threads else "enough"
        found.append(
            Proposal(("dataset.workers=1",), f"one reader gives {how}, and leaves the cores to the train step")
        )
    found += _larger_batch(settings, "larger operators use the device better")
    if settings.device != "CPU" and settings.graph and settings.jit_level in (None, "O0"):
        found.append(Proposal(("device.jit_level=O1",), "neighbouring operators are fused"))
    return found


def _one_is_enough(facts: Facts, data: DataProfile) -> bool:
    needed = 1.5 * facts.images_per_s
    return bool(data.by_threads) and data.by_threads[1] >= needed and contention(facts) is not None


def _larger_batch(settings: Settings, why: str) -> list[Proposal]:
    """Twice the batch, where there is memory and data for it."""
    size = 2 * settings.batch_size
    on_host = settings.device == "CPU" and settings.free_mib is not None and settings.peak_mib is not None
    if size > settings.train_images or (on_host and settings.peak_mib > (settings.free_mib or 0)):
        return []
    return [
        Proposal(
            (f"batch_size={size}",),
            why,
            "fewer updates per epoch: the learning rate may have to grow, and results differ",
        )
    ]


def _scaling(data: DataProfile) -> float:
    """How many times as fast as one thread all cores' threads are."""
    one = data.by_threads.get(1, 0.0)
    return max(data.by_threads.values(), default=0.0) / one if one else float("inf")


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
