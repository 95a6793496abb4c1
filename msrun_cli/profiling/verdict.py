"""What holds a training back, in words with numbers. Thresholds: docs/profile.md."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

INPUT, COMPUTE, HOST, COMMUNICATION, COMPILE = "input", "compute", "host", "communication", "compile"

# Share of a step from which on it is held back by something else than computing.
THRESHOLDS = {INPUT: 0.15, COMMUNICATION: 0.20, HOST: 0.25}
COMPILE_SHARE = 0.30  # of the whole training
CONTENTION = 1.15  # a train step beside the data readers takes that many times as long as alone


@dataclass(frozen=True)
class Facts:
    """What was measured; None = was not. Times are milliseconds of a mean step, where not said otherwise.

    parts: see StepTime ("wait", "call", "device", "logging"), adding up to the step
    busy_share: of call + device in which an operator ran on the device, from the operator steps
    communication_share: of the step in which the device only communicates
    phases: share of forward, backward and update of the operators' time
    alone_ms: call + device on a constant batch, nothing else running; beside_ms: in the training; both medians
    reading_ms: processor time of reading a batch
    compile_s: of the train step; planned_s: of all steps of the run, at this speed
    data_images_per_s: of the pipeline alone; images_per_s: of the training
    """

    parts: dict[str, float]
    images_per_s: float
    batch_size: int
    device: str = "CPU"
    busy_share: float | None = None
    communication_share: float | None = None
    phases: dict[str, float] = field(default_factory=dict)
    alone_ms: float | None = None
    beside_ms: float | None = None
    reading_ms: float | None = None
    compile_s: float | None = None
    planned_s: float | None = None
    data_images_per_s: float | None = None

    @property
    def step_ms(self) -> float:
        return sum(self.parts.values())

    @property
    def work_ms(self) -> float:
        return self.parts["call"] + self.parts["device"]

    @property
    def busy_ms(self) -> float:
        """Time of a step in which the device computes, as far as it is known."""
        return self.work_ms * (1.0 if self.busy_share is None else self.busy_share)

    @property
    def idle_share(self) -> float:
        """Of the step, in which no operator runs; a lower bound where operators were not looked at."""
        return max(0.0, 1 - self.busy_ms / self.step_ms) if self.step_ms else 0.0

    def shares(self) -> dict[str, float]:
        """input, host, communication and compute: parts of the step that add up to 1."""
        if not self.step_ms:
            return {}
        wait = self.parts["wait"] / self.step_ms
        communication = self.communication_share or 0.0
        compute = max(0.0, self.busy_ms / self.step_ms - communication)
        host = max(0.0, 1 - wait - communication - compute)
        return {INPUT: wait, COMPUTE: compute, HOST: host, COMMUNICATION: communication}

    @property
    def compile_share(self) -> float | None:
        if self.compile_s is None or self.planned_s is None:
            return None
        whole = self.compile_s + self.planned_s
        return self.compile_s / whole if whole else None


@dataclass(frozen=True)
class Verdict:
    """bounds: what holds the training back, the worst first, "compute" where nothing else does; sentences: why."""

    bounds: list[str]
    sentences: list[str]
    shares: dict[str, float]

    @property
    def main(self) -> str:
        return self.bounds[0]

    def as_json(self) -> dict[str, Any]:
        return {
            "main": self.main,
            "bounds": self.bounds,
            "shares": {name: round(value, 4) for name, value in self.shares.items()},
            "sentences": self.sentences,
        }


def judge(facts: Facts) -> Verdict:
    shares = facts.shares()
    over = [name for name, least in THRESHOLDS.items() if shares.get(name, 0.0) >= least]
    steps = sorted(over, key=lambda name: -shares[name]) or [COMPUTE]
    whole = facts.compile_share
    compiling = [COMPILE] if whole is not None and whole >= COMPILE_SHARE else []
    sentences = [_SENTENCES[name](facts) for name in [*compiling, *steps]]
    sentences += [text for text in (_contention(facts), _headroom(facts, steps)) if text]
    return Verdict([*compiling, *steps], sentences, shares)


def _input(facts: Facts) -> str:
    share = facts.parts["wait"] / facts.step_ms
    text = (
        f"Input-bound: a step waits {facts.parts['wait']:.0f} of its {facts.step_ms:.0f} ms ({share:.0%}) for its batch"
    )
    if facts.data_images_per_s is None:
        return text + "."
    possible = 1000 * facts.batch_size / facts.work_ms if facts.work_ms else 0.0
    given = facts.data_images_per_s
    return f"{text}; the pipeline alone gives {given:.0f} images/s, the train step could take {possible:.0f}."


def _compute(facts: Facts) -> str:
    share = facts.busy_ms / facts.step_ms if facts.step_ms else 0.0
    times = f"{facts.busy_ms:.0f} of the {facts.step_ms:.0f} ms of a step ({share:.0%})"
    text = f"Compute-bound: the {facts.device} computes for {times}"
    if facts.busy_share is None:
        text += ", the host's work in the step included"
    if facts.phases:
        parts = ", ".join(f"{name} {part:.0%}" for name, part in facts.phases.items())
        text += f": {parts}"
    return text + "."


def _host(facts: Facts) -> str:
    launching = facts.work_ms - facts.busy_ms
    host = facts.shares()[HOST]
    return (
        f"Host-bound: {host:.0%} of a step are the host's work while the {facts.device} idles: {launching:.0f} ms to "
        f"launch operators, {facts.parts['logging']:.0f} ms for logging and callbacks."
    )


def _communication(facts: Facts) -> str:
    share = facts.communication_share or 0.0
    return (
        f"Communication-bound: for {share * facts.step_ms:.0f} of the {facts.step_ms:.0f} ms of a step ({share:.0%}) "
        f"the {facts.device} only exchanges gradients with the others."
    )


def _compile(facts: Facts) -> str:
    return (
        f"Compile-bound: compiling takes {facts.compile_s or 0:.0f} s, all steps of this run together "
        f"{facts.planned_s or 0:.0f} s at this speed ({facts.compile_share or 0:.0%} of the run)."
    )


_SENTENCES = {INPUT: _input, COMPUTE: _compute, HOST: _host, COMMUNICATION: _communication, COMPILE: _compile}


def contention(facts: Facts) -> float | None:
    """How many times as long the train step takes beside the data readers, where that is worth a word and theirs."""
    factor = _slowdown(facts)
    return factor if factor is not None and _is_of_readers(facts) else None


def _slowdown(facts: Facts) -> float | None:
    if not facts.alone_ms or not facts.beside_ms or facts.beside_ms / facts.alone_ms < CONTENTION:
        return None
    return facts.beside_ms / facts.alone_ms


def _is_of_readers(facts: Facts) -> bool:
    """Whether their work is large enough to explain at least half of what the step takes longer."""
    longer = (facts.beside_ms or 0.0) - (facts.alone_ms or 0.0)
    return facts.reading_ms is None or facts.reading_ms >= 0.5 * longer


def _contention(facts: Facts) -> str | None:
    factor = _slowdown(facts)
    if factor is None:
        return None
    times = (
        f"The train step takes {facts.beside_ms or 0:.0f} ms beside the data readers, {facts.alone_ms or 0:.0f} ms "
        f"alone (x{factor:.2f})"
    )
    if not _is_of_readers(facts):
        return (
            f"{times}, but reading a batch is only {facts.reading_ms or 0:.0f} ms of work: something else keeps this "
            "machine busy, so trust shares more than times."
        )
    return f"{times}: {'they share its cores' if facts.device == 'CPU' else 'the host feeds both'}."


def _headroom(facts: Facts, bounds: list[str]) -> str | None:
    """How far the pipeline is from mattering."""
    if facts.data_images_per_s is None or INPUT in bounds or not facts.images_per_s:
        return None
    return (
        f"The input pipeline is no hindrance: alone it gives {facts.data_images_per_s:.0f} images/s, "
        f"{facts.data_images_per_s / facts.images_per_s:.1f} times what the training takes."
    )
