"""Synthetic tasks: like those of networks, and none that is held out."""

from __future__ import annotations

import math
import random

import pytest

from tensorc.ir.arith import constant
from tensorc.ir.nodes import Buffer, Func
from tensorc.ir.verify import verify
from tensorc.space.space import Space
from tensorc.target import Target
from tensorc.tasks import task_set
from tensorc.tasks.structure import structure
from tensorc.tlm import program, reading, synthetic
from tensorc.tlm.sentence import option, prompt
from tensorc.tlm.vocabulary import vocabulary

TARGET = Target.parse("cpu:x86-64-v3;cores=2")
SEVERAL = [synthetic.synthetic(0, number) for number in range(40)]


def test_a_seed_gives_the_same_tasks() -> None:
    assert SEVERAL[:5] == [synthetic.synthetic(0, number) for number in range(5)]
    assert SEVERAL[:5] != [synthetic.synthetic(1, number) for number in range(5)]
    first = dict(synthetic.tasks(0, 6))
    assert dict(synthetic.tasks(0, 3)) == dict(list(first.items())[:3])
    assert len({structure(func) for func in first.values()}) == 6


@pytest.mark.parametrize("family", synthetic.FAMILIES)
def test_every_family_is_read_and_scheduled(family: str) -> None:
    for seed in range(4):
        draw = synthetic.Draw(random.Random(seed), [])
        found = synthetic.FAMILIES[family][0](draw)
        func = synthetic.tc.func_of(draw.inputs, [found.tensor], name=family)
        verify(func)
        tokens, _ = program.encoded(func)
        assert program.encoded(reading.decoded(tokens))[0] == tokens
        assert len(tokens) < 250
        space, places = Space(func, TARGET), prompt(func, TARGET).places
        for one in [space.default(), *space.sample(seed, 2)]:
            for choice, _ in one.decisions:
                for place in range(len(choice.options)):
                    vocabulary().numbers(option(places, choice, place))


def test_none_is_held_out() -> None:
    """By what it computes: the rule of the split is told nothing else."""
    held = {structure(task.func) for task in task_set() if task.split != "training"}
    assert not held & {structure(func) for func in SEVERAL}


def test_none_is_too_large() -> None:
    largest = max(task.flops for task in task_set().of_split("training"))
    for func in SEVERAL:
        stages = Space(func, TARGET).facts.stages
        assert 2 * max(stage.iterations for stage in stages) <= largest
        assert elements(func) <= synthetic.MOST_ELEMENTS


def elements(func: Func) -> int:
    buffers = [param.value for param in func.params if isinstance(param.value, Buffer)]
    return sum(math.prod(constant(n) or 0 for n in one.shape) for one in buffers)
