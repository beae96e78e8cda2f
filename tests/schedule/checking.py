"""What tests of schedules share: programs from text, and checks that all schedules must pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from tensorc.errors import Kind, ScheduleError
from tensorc.ir.interp import run
from tensorc.ir.nodes import Func
from tensorc.ir.parse import parse
from tensorc.ir.places import sizes_of
from tensorc.ir.print import print_func
from tensorc.ir.verify import verify
from tensorc.schedule.schedule import Schedule
from tensorc.schedule.script import from_python
from tensorc.schedule.step import Step, legal
from tensorc.schedule.trace import from_json, to_json, to_python
from tensorc.testing import oracle
from tensorc.testing.arrays import make_inputs
from tensorc.testing.confirm import confirmed
from tensorc.testing.differential import difference, reference
from tensorc.testing.draw import Seeded

TARGET = "cpu:x86-64-v3"
CUDA = "cuda:sm_90"
SIZES = (0, 1, 2, 3, 5, 8)
INPUTS = 3


def schedule(text: str | Func, target: str = TARGET, **options: bool) -> Schedule:
    """A schedule of a program in the text form."""
    func = parse(text) if isinstance(text, str) else text
    return Schedule(func, target, **options)


def body(func: Func) -> str:
    """The text of a program without its first line, dedented."""
    lines = print_func(func).splitlines()
    start = next(n for n, line in enumerate(lines) if line.endswith("):")) + 1
    return "\n".join(line[4:] for line in lines[start:]).strip("\n")


def arguments(func: Func, sizes: tuple[int, ...] = SIZES) -> Iterator[dict[str, Any]]:
    """Arguments for some sizes, with ordinary and with odd values."""
    names = sizes_of(func)
    for size in sizes if names else (0,):
        values = {name: size + n for n, name in enumerate(names)}
        for seed in range(INPUTS):
            yield make_inputs(Seeded(seed), func, values, special=seed == INPUTS - 1)


def check(s: Schedule, sizes: tuple[int, ...] = SIZES) -> None:
    """The schedule keeps the meaning, keeps its promises, and its trace comes back.

    Every trace goes through JSON and Python source and gives the same program.
    """
    verify(s.func)
    start = s.source
    for given in arguments(start, sizes):
        now = packed(s, given)
        assert difference(reference(start, given), s.func, now, order=1) is None, str(s)
        assert oracle.races(s.func, oracle.log_of(s.func, now)) is None, str(s)
    for steps in (from_json(to_json(s.steps)), from_python(to_python(s.steps))):
        assert steps == s.steps
        again = Schedule(start, s.target, strict_float=s.state.strict_float)
        again.replay(steps)
        assert again.func == s.func


def packed(s: Schedule, given: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments with constants in the layout that the schedule wants."""
    changed = dict(given)
    for name, func in s.state.packs:
        changed[name] = run(func, {"source": changed[name]}).outputs["packed"]
    return changed


@contextmanager
def refused(s: Schedule, code: str) -> Iterator[SimpleNamespace]:
    """The one step in the block is refused with this code, and leaves the schedule as it was.

    The namespace gives the `violation` afterwards.
    """
    before, found = s.func, SimpleNamespace(violation=None, text="")
    with pytest.raises(ScheduleError) as error:
        yield found
    found.violation, found.text = error.value.violation, str(error.value)
    assert found.violation.code == code, found.text
    assert s.func == before


def refused_step(s: Schedule, step: Step, code: str) -> None:
    """A step is refused with a code; one that is called illegal does harm when it is forced."""
    with refused(s, code) as found:
        s.apply(step)
    assert not legal(step, s.state)
    if found.violation.kind is Kind.ILLEGAL:
        assert confirmed(step, s.state) is not None
