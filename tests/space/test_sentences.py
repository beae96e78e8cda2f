"""Sentences of random tasks: no dead end, no refused step, each lowers, and its code is right."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench import gpu_sentences
from bench.sentences import Totals, examine
from tensorc.schedule import primitives as p
from tensorc.schedule.facts import Facts
from tensorc.schedule.step import Step
from tensorc.space.choice import Choice, Value
from tensorc.space.plan import Plan
from tensorc.space.space import Space
from tensorc.testing import sentences, tasks
from tensorc.testing.checks import FailedCheckError
from tensorc.testing.checks_of_sentences import Expected, Outside, check_sentence, outside, verdict
from tensorc.testing.draw import Seeded
from tests.space.tasks import matmul

TARGETS = ("cpu:x86-64-v2", "cpu:x86-64-v3", "cpu:x86-64-v4")


@given(st.data())
@settings(max_examples=25)
def test_every_sentence_is_legal_and_lowers(data: st.DataObject) -> None:
    space = Space(func := data.draw(tasks()), data.draw(st.sampled_from(TARGETS)))
    check_sentence(func, data.draw(sentences(space)), space.target)


@given(st.data())
@settings(max_examples=8)
def test_the_code_of_sentences_is_right(data: st.DataObject) -> None:
    space = Space(func := data.draw(tasks()), data.draw(st.sampled_from(TARGETS)))
    check_sentence(func, data.draw(sentences(space)), space.target, Expected.of(func))


@given(st.data(), st.integers(0, 10**6))
@settings(max_examples=12)
def test_what_is_not_offered_has_a_reason(data: st.DataObject, seed: int) -> None:
    space = Space(func := data.draw(tasks()), data.draw(st.sampled_from(TARGETS)))
    found = outside(space, data.draw(sentences(space)), Seeded(seed))
    if found is not None:
        assert found.value not in found.choice.options
        assert verdict(func, space, found) != "legal", (found.choice, found.value)


# Checks that find nothing are worth nothing -------------------------------------------------------


def rows(task: Facts) -> Generator[Choice, Value, tuple[Step, ...]]:
    """A template that forgets most divisors, and takes a step that is illegal for one of them."""
    plan = Plan(task.names)
    size = yield Choice("tile", "i", (1, 6), 1, "tile")
    assert isinstance(size, int)
    plan.parallel("k" if size == 6 else "i")
    return plan.done()


def test_a_refused_step_is_found() -> None:
    space = Space(func := matmul(12, 8, 4), TARGETS[0], template=rows)
    check_sentence(func, space.sentence([1]), space.target)
    with pytest.raises(FailedCheckError, match=r"refused step: step 1, parallel\(loop='k'\): DEP"):
        check_sentence(func, space.sentence([6]), space.target)


def test_an_option_that_is_missing_is_found() -> None:
    space = Space(func := matmul(12, 8, 4), TARGETS[0], template=rows)
    sentence = space.sentence([1])
    found = [outside(space, sentence, Seeded(seed)) for seed in range(20)]
    reasons = {one.value: verdict(func, space, one) for one in found if one is not None}
    assert reasons == {2: "legal", 5: "padding", 7: "larger", 12: "larger"}
    choice = sentence.decisions[0][0]
    refused = Outside(choice, 3, (p.Parallel("k"),))
    assert verdict(func, space, refused) == "refused DEP001"
    assert verdict(func, space, Outside(choice, 3, None)) == "no way on"


def test_code_of_another_program_is_found() -> None:
    space = Space(func := matmul(12, 8, 4), TARGETS[0], template=rows)
    other = Expected(Expected.of(func).arguments, Expected.of(func, seed=1).result)
    with pytest.raises(FailedCheckError, match="wrong machine code"):
        check_sentence(func, space.sentence([1]), space.target, other)


def test_tasks_of_the_committed_set_take_turns() -> None:
    options = Namespace(tasks=40, seed=0, compiled=100, outside=0, set=True)
    totals = Totals()
    for number in (3, 25):
        examine(number, options, totals)
    assert totals.counts["compiled"] == 0
    assert (len(totals.families), totals.faults) == (2, [])


def test_a_run_goes_on_where_its_log_ends(tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    options = Namespace(tasks=4, seed=0, compiled=0, outside=50, set=False)
    whole, first = Totals(), Totals()
    for number in range(6):
        examine(number, options, whole)
    for number in range(3):
        examine(number, options, first)
    first.save(log)
    again = Totals.load(log)
    assert again == first
    for number in range(again.counts["sentences"], 6):
        examine(number, options, again)
    assert again == whole
    assert Totals.load(log.with_name("none")) == Totals()


def test_the_log_that_is_kept_can_be_read() -> None:
    log = Path(gpu_sentences.__file__).parent / "legality" / "gpu_sentences.json"
    found = gpu_sentences.Totals.load(log)
    assert found.counts["sentences"] >= 860
    assert found.spilled["index_copy"] == 1
    assert found.faults == []
