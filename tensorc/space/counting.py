"""How many sentences each way through a template leads to, and which has which number.

A template cannot be forked: to look at what follows an option, it is run again up to there. Equal
nodes have equal remaining trees, so that each is counted once (DESIGN 1.3).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Hashable, Sequence
from itertools import accumulate

from tensorc.errors import LimitError
from tensorc.space.choice import Template, Value
from tensorc.space.drive import Run

MOST_NODES = 1_000_000
"""A space of more different nodes is not counted: its templates' keys are missing or too fine."""


class Counts:
    """The numbers of sentences under the nodes of a template, each found when it is asked for."""

    def __init__(self, start: Callable[[], Template]) -> None:
        self._start = start
        self._sums: dict[Hashable, tuple[int, ...]] = {}

    @property
    def nodes(self) -> int:
        """How many different nodes have been counted so far."""
        return len(self._sums)

    def run(self, values: Sequence[Value]) -> Run:
        """A run that has taken the first decisions."""
        run = Run(self._start())
        for value in values:
            run.send(value)
        return run

    def sums(self, run: Run) -> tuple[int, ...]:
        """For each option of the open choice, how many sentences it and those before it begin."""
        known = self._sums.get(_node(run))
        if known is None:
            # The run given goes on elsewhere, and counting uses one up.
            again = self.run([value for _, value in run.decisions])
            self.total(again)
            known = self._sums[_node(run)]
        return known

    def total(self, run: Run) -> int:
        """How many sentences begin as the run does; the run goes on to one of them.

        Raises:
            LimitError: there are more than MOST_NODES nodes.
        """
        if run.choice is None:
            return 1
        node = _node(run)
        known = self._sums.get(node)
        if known is None:
            if len(self._sums) >= MOST_NODES:
                what = f"{run.choice.kind} {run.choice.subject}"
                raise LimitError(
                    f"the space has more than {MOST_NODES} different nodes, one of them at {what}; "
                    f"keys that hold only what later choices depend on make equal nodes one"
                )
            known = tuple(accumulate(self._under(run)))
            self._sums[node] = known
        return known[-1]

    def _under(self, run: Run) -> list[int]:
        assert run.choice is not None
        options = run.choice.options
        values = [value for _, value in run.decisions]
        found = []
        for number, option in enumerate(options):
            branch = run if number == 0 else self.run(values)
            branch.send(option)
            found.append(self.total(branch))
        return found

    def rank(self, values: Sequence[Value]) -> int:
        """How many sentences come before one, in the order of the options."""
        run, found = self.run(()), 0
        for value in values:
            assert run.choice is not None
            place = run.choice.options.index(value)
            found += self.sums(run)[place - 1] if place else 0
            run.send(value)
        return found

    def unrank(self, number: int, run: Run) -> Run:
        """Finish a run that has decided nothing: the one that so many come before."""
        while run.choice is not None:
            sums = self.sums(run)
            place = bisect_right(sums, number)
            number -= sums[place - 1] if place else 0
            run.send(run.choice.options[place])
        return run


def _node(run: Run) -> Hashable:
    """What the rest of a run depends on: the choice's node, or all that was decided."""
    assert run.choice is not None
    node = run.choice.node
    return tuple(value for _, value in run.decisions) if node is None else node
