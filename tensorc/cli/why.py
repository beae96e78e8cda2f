"""Who schedules a program that is explained, and why so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tensorc import config
from tensorc.cli.source import prepared
from tensorc.errors import ArgumentError
from tensorc.graph.reports import text_table
from tensorc.ir.nodes import Span
from tensorc.schedule.schedule import Schedule
from tensorc.schedule.trace import Trace
from tensorc.space.space import Space

if TYPE_CHECKING:
    from tensorc.tlm.why import Explained

SCHEDULERS = ("default", "tlm")


@dataclass(frozen=True, slots=True)
class Why:
    """The decisions of the language model; none where somebody else decided."""

    decisions: tuple[Explained, ...] | None = None

    def as_dict(self) -> dict[str, Any]:
        if self.decisions is None:
            return {}
        return {"decisions": [one.as_dict() for one in self.decisions]}

    def sections(self) -> Iterator[tuple[str, str]]:
        """The table, under its title."""
        if self.decisions is not None:
            head = ("decision", "taken", "of", "p", "next", "p", "ruled out", "share", "best", "p")
            rows = [_cells(one) for one in self.decisions]
            yield "decisions, and what the mask ruled out", text_table(head, rows) + "\n"


def _cells(one: Explained) -> tuple[str, ...]:
    other, chance = one.next
    return (
        f"{one.kind} {one.subject}",
        str(one.value),
        str(len(one.probabilities)),
        f"{one.probability:.2f}",
        str(other),
        f"{chance:.2f}",
        f"{one.illegal} of {one.tokens}",
        f"{one.share:.2f}",
        one.best_illegal,
        f"{one.best_share:.2f}",
    )


def decided(
    source: str, trace: str | None, target: str, scheduler: str
) -> tuple[Why, Schedule, Trace]:
    """A schedule at its start, the trace to apply to it, and why it is that one.

    Raises:
        ArgumentError: there is no such scheduler, or it is to take the place of steps that are
            there; a task or a library cannot be used.
        LengthError, VocabularyError, WeightsError: the model cannot schedule the task.
    """
    if scheduler not in SCHEDULERS:
        legal = ", ".join(SCHEDULERS)
        raise ArgumentError("scheduler", f"there is no scheduler {scheduler!r:.80}; legal: {legal}")
    if scheduler == "default":
        return Why(), *prepared(source, trace, target)
    if trace is not None:
        raise ArgumentError("scheduler", "a trace says the steps already; give one of both")
    start, _ = prepared(source, None, target)
    from tensorc.tlm.schedule import opened

    writer = opened()
    from tensorc.tlm.sentence import machine_of, prompt
    from tensorc.tlm.why import why

    func = start.source
    threads = config.num_threads
    space = Space(func, machine_of(start.target, threads))
    read = prompt(func, start.target, threads)
    sentence = writer.best(space, read).sentence
    spans = tuple(Span("<model>", n) for n in range(1, len(sentence.steps) + 1))
    return Why(why(writer, space, read, sentence)), start, Trace(sentence.steps, spans)
