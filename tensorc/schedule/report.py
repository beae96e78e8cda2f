"""The report of a refused step: what, where (underlined in the nest as it stands), why, what else."""

from __future__ import annotations

from collections.abc import Sequence

from tensorc.analysis.violation import Violation
from tensorc.ir.nodes import Span
from tensorc.schedule.state import State
from tensorc.schedule.step import Step


def render(
    violation: Violation, step: Step, state: State, steps: Sequence[Step], span: Span | None
) -> tuple[str, Violation]:
    """The text of a report, and the violation with its alternatives filled in."""
    return f"error[{violation.code}]: {violation.message}", violation
