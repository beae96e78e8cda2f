"""Which of several tasks gets the next trials: the task scheduler of Ansor (Zheng et al., OSDI
2020, 6).

A network takes f = sum of w_i g_i seconds, where task i is run w_i times and the best schedule
known of it takes g_i. The next trials go to the task that is expected to lower f most, by

    df/dt_i = w_i (alpha (g_i(t_i) - g_i(t_i - d)) / d
                   + (1 - alpha) min(-g_i / t_i, beta C_i / max V_k - g_i))

where t_i is what was spent on the task, in units of UNIT trials, and d is how much of that its last
WINDOW batches were. The first term is what these brought. The second is what more may bring at
best: as much again as all before, or a speed like that of tasks with the same structure, which do
V_k operations a second; C_i is how many it has, and it is one of them. Now and then any task is
taken.
"""

from __future__ import annotations

import math
import random
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from tensorc.schedule.facts import Facts, Operand
from tensorc.search.traffic import work

ALPHA, BETA = 0.2, 2.0
"""Ansor's weights of what was and of what may be, and what similar tasks are trusted with."""
GREED = 0.95
"""How often the best task is taken; otherwise any is."""
UNIT = 16
WINDOW = 3


@dataclass(slots=True)
class Account:
    """What was spent on a task, and what came of it.

    Attributes:
        count: how often the network runs it.
        work: its operations, C_i.
        alike: equal for tasks of the same structure.
        history: trials so far and the best time then, in seconds, at the start and after each
            batch; a time is infinite while nothing was right.
        over: there is no more to try.
    """

    count: int
    work: int
    alike: Hashable
    history: list[tuple[int, float]]
    over: bool = False

    @property
    def trials(self) -> int:
        return self.history[-1][0]

    @property
    def best(self) -> float:
        return self.history[-1][1]

    def add(self, trials: int, seconds: float) -> None:
        """Note a batch and the best time after it."""
        self.history.append((self.trials + trials, seconds))


def promise(accounts: Sequence[Account], number: int) -> float:
    """The seconds that UNIT more trials of a task are expected to take off: -df/dt of the formula.

    Infinite for a task that was not tried yet, 0 for one of which nothing was ever right.
    """
    one = accounts[number]
    if not one.trials:
        return math.inf
    if one.best == math.inf:
        return 0.0
    trials, before = one.history[-1 - min(WINDOW, len(one.history) - 1)]
    spent = (one.trials - trials) / UNIT
    brought = (before - one.best) / spent if before < math.inf and spent else 0.0
    speed = max(a.work / a.best for a in accounts if a.alike == one.alike)
    hoped = max(one.best / (one.trials / UNIT), one.best - BETA * one.work / speed)
    return one.count * (ALPHA * brought + (1.0 - ALPHA) * hoped)


def chosen(accounts: Sequence[Account], source: random.Random) -> int | None:
    """The task that gets the next batch: each in turn first, then mostly the one that promises
    most; None when no task is left."""
    left = [n for n, one in enumerate(accounts) if not one.over]
    if not left:
        return None
    fresh = [n for n in left if not accounts[n].trials]
    if fresh:
        return fresh[0]
    if source.random() >= GREED:
        return source.choice(left)
    return max(left, key=lambda n: (promise(accounts, n), -n))


def structure_of(facts: Facts) -> Hashable:
    """Equal for tasks that differ in their extents alone."""

    def of(operand: Operand) -> Hashable:
        return operand.constant, operand.temporary, operand.plain, operand.bits, operand.dims

    return tuple(
        (
            tuple(axis.reduces for axis in stage.axes),
            stage.flops,
            stage.transcendental,
            stage.conditional,
            of(stage.result),
            tuple(map(of, stage.operands)),
        )
        for stage in facts.stages
    )


def operations(facts: Facts) -> int:
    """The scalar operations of a task, of symbolic sizes those of one iteration; at least one."""
    return max(sum(map(work, facts.stages)), 1)
