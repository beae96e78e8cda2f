"""The docstring of every step is its specification: the step does what it shows."""

from __future__ import annotations

import re

import pytest

from docs.specification import specification
from tensorc.analysis.violation import CODES
from tensorc.ir.nodes import Func
from tensorc.ir.parse import parse
from tensorc.ir.print import print_func
from tensorc.schedule.schedule import Schedule
from tensorc.schedule.step import REGISTRY

EXTENT = 64
STEPS = sorted(REGISTRY)


def program(nest: str) -> Func:
    """A function of a nest; every buffer that the nest does not allocate is a parameter."""
    made = set(re.findall(r"^\s*([\w.]+) = alloc", nest, re.M))
    ranks = {}
    for name, inside in re.findall(r"([A-Za-z][\w.]*)\[([^\[\]]*)\]", nest):
        if name not in made:
            ranks[name] = 0 if inside == "()" else inside.count(",") + 1
    params = ", ".join(f'{n}: Buffer["f32"{f", {EXTENT}" * r}]' for n, r in sorted(ranks.items()))
    body = "".join(f"    {line}\n" for line in nest.splitlines())
    return parse(f"def f({params}):\n{body}")


def body_of(func: Func) -> str:
    """The printed nest without the function's head."""
    text = print_func(func)
    lines = text[re.search(r"\):\n", text).end() :].splitlines()
    return "".join(f"{line[4:]}\n" for line in lines)


@pytest.mark.parametrize("name", STEPS)
def test_the_rewrite_is_what_the_step_does(name: str) -> None:
    found = specification(REGISTRY[name])
    target = "cpu:x86-64-v3" if "cpu" in REGISTRY[name].targets else "cuda:sm_90"
    schedule = Schedule(program(found.before), target)
    assert body_of(schedule.func) == found.before
    eval(f"s.{found.call}", {"s": schedule})
    assert [step.primitive for step in schedule.steps] == [name]
    assert body_of(schedule.func) == found.after


@pytest.mark.parametrize("name", STEPS)
def test_the_codes_exist(name: str) -> None:
    conditions = specification(REGISTRY[name]).conditions
    codes = {code for c in conditions for code in re.findall(r"\b[A-Z]{3}\d{3}\b", c)}
    assert codes
    assert codes <= set(CODES)
