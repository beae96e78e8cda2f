"""The bench of the ablations: each network goes without one thing, and trainings go on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench import ablations
from bench.ablations import VARIANTS, Budget, Data, place
from bench.written import expecting, measuring, written
from tensorc.runtime.measure.candidate import Standing
from tensorc.runtime.measure.records import RecordFile
from tensorc.space.space import Space
from tensorc.target import Target
from tensorc.tasks import task_set
from tensorc.tlm import packed, weights
from tensorc.tlm.decode import Writer
from tensorc.tlm.lessons import groups, lessons
from tensorc.tlm.train import WEIGHTS, history
from tests.tlm.made import TARGET, made, product, records, several, small, wild

pytestmark = pytest.mark.torch

LESSONS = tuple(made(6))
DATA = Data(LESSONS, LESSONS[1:], LESSONS[:1], LESSONS[:2])
BUDGET = Budget(60.0, 5, {"layers": 1, "heads": 2, "width": 16}, 2)
KNOWN = {variant.name: variant for variant in VARIANTS}
ASKED = {"tasks": ["softmax.64x1000--1-true"], "threads": 1, "judge": "expected"}


def judge(task: Any, space: Any, chosen: Sequence[Any]) -> list[float]:
    return [2.0, 0.0, 4.0]


def test_networks_are_trained_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("whole", "no pre-training", "no quality", "no value head", "no mask")
    chosen = [KNOWN[name] for name in names]
    asked: list[int] = []

    def judging() -> Any:
        asked.append(1)
        return judge

    found = ablations.rows(chosen, DATA, BUDGET, tmp_path, ASKED, judging)
    assert [row.network for row in found] == list(names)
    for row in found:
        assert (row.steps, row.planned) == (5, 5)
        assert (row.greedy, row.sampled, row.best) == pytest.approx((2.0, 1 / 32, 4.0))
        assert 0.0 <= row.invalid <= 1.0
    steps = {
        one.parent.relative_to(tmp_path).as_posix(): len(history(one.parent))
        for one in tmp_path.rglob(WEIGHTS)
    }
    assert steps["whole/first"] == 3
    assert steps["whole/measured"] == 2
    assert steps["no-pre-training/measured"] == 5
    assert "no-pre-training/first" not in steps
    shapes = {
        name: weights.load(tmp_path / name / "measured" / WEIGHTS).model.shape
        for name in ("whole", "no-quality", "no-value-head", "no-mask")
    }
    assert shapes["whole"] == small()
    assert shapes["no-quality"] == small(told=False)
    assert shapes["no-value-head"] == small(valued=False)
    assert shapes["no-mask"].blind > 0
    # Nothing is made again, and nothing is asked of a judge.
    monkeypatch.setattr(ablations.Training, "_advance", None)
    assert ablations.rows(chosen, DATA, BUDGET, tmp_path, ASKED, judging) == found
    assert len(asked) == len(names)


def test_a_training_ends_when_its_minutes_are_over(tmp_path: Path) -> None:
    budget = replace(BUDGET, minutes=1e-9, steps=40)
    path, done, minutes = ablations.trained(KNOWN["whole"], DATA, budget, tmp_path)
    # Each part goes on until it has kept weights: a quarter of its 24 and 16 steps.
    assert done == 6 + 4
    assert minutes > budget.minutes
    assert ablations.trained(KNOWN["whole"], DATA, budget, tmp_path) == (path, done, minutes)
    assert weights.load(path).provenance["step"] == 4


def test_steps_are_planned_by_what_one_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = {"whole": 0.5, "larger": 1.5, "no mask": 0.1}
    monkeypatch.setattr(ablations, "_step_seconds", lambda variant, *_: seconds[variant.name])
    budget = Budget(minutes=10.0)
    plans = {
        name: ablations.planned(KNOWN[name], DATA, budget, tmp_path)
        for name in ("larger", "whole", "no contexts", "no mask", "smaller")
    }
    assert plans == {"larger": 360, "whole": 1080, "no contexts": 1080, "no mask": 1080,
                     "smaller": 1080}  # fmt: skip
    seconds.update({"whole": 5.0, "larger": 9.0})
    assert ablations.planned(KNOWN["larger"], DATA, budget, tmp_path) == 360


def test_what_a_step_takes_is_measured() -> None:
    assert ablations._step_seconds(KNOWN["whole"], DATA, BUDGET) > 0


def test_parts_of_the_data_are_parts_of_each_other() -> None:
    half, quarter = DATA.part(0.5), DATA.part(0.25)
    for name in ("first", "measured"):
        places = [[place(one) for one in getattr(part, name)] for part in (DATA, half, quarter)]
        assert places[1] == [one for one in places[0] if one < 0.5]
        assert places[2] == [one for one in places[0] if one < 0.25]
    assert half.held == DATA.held
    assert half.development == DATA.development
    machines = [Target.parse(f"cpu:x86-64-v{n};cores=2") for n in (2, 3)]
    own = [made_on(machine) for machine in machines]
    assert place(own[0]) == place(own[1])
    assert len({place(one) for one in LESSONS}) == len(LESSONS)


def made_on(machine: Target) -> Any:
    (lesson,) = lessons(groups(records(product(), 3, target=machine)), None)
    return lesson


def test_records_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed.save(LESSONS[:2], tmp_path / "first.lessons")
    found = {"training": LESSONS, "development": LESSONS[:1]}
    monkeypatch.setattr(ablations, "lessons_of", lambda path, split: list(found[split]))
    given = [tmp_path / "first.lessons"], [tmp_path / "records"], tmp_path
    data = ablations.data_of(*given)
    assert len(data.first) == 2
    assert len(data.measured) + len(data.held) == len(LESSONS)
    assert packed.digest(data.development) == packed.digest(LESSONS[:1])
    monkeypatch.delattr(ablations, "lessons_of")
    again = ablations.data_of(*given)
    assert packed.digest(again.measured) == packed.digest(data.measured)


def test_each_network_goes_without_one_thing() -> None:
    assert len(KNOWN) == len(VARIANTS)
    for variant in VARIANTS[1:]:
        changed = replace(VARIANTS[0], name=variant.name, slower=variant.slower)
        assert changed != variant
        shape, settings = BUDGET.shape(variant), BUDGET.settings(variant, 8, fresh=True)
        assert settings.masked or shape.blind
    sizes = [Budget().shape(KNOWN[name]).width for name in ("smaller", "whole", "larger")]
    assert sizes == sorted(set(sizes))


# Judges -------------------------------------------------------------------------------------------


def test_what_cannot_be_read_is_as_fast_as_the_rules() -> None:
    task = task_set()["softmax.64x1000--1-true"]
    found = written(Writer(wild(prompt=2)), [task], TARGET, 1, judge)
    assert (found.greedy, found.sampled, found.best) == (1.0, 1.0, 1.0)
    assert found.invalid != found.invalid


def test_a_cost_model_judges(tmp_path: Path) -> None:
    pytest.importorskip("lightgbm")
    with RecordFile(tmp_path / "a.jsonl") as out:
        for record in several(12):
            out.append(record)
    asked = expecting([tmp_path], 2)
    space = Space(product(), TARGET)
    same, *others = asked(None, space, [space.default(), *space.sample(5, 8)])  # type: ignore[arg-type]
    assert same == 1.0
    assert len(set(others)) > 1


def test_a_machine_judges() -> None:
    space = Space(product(), TARGET)
    chosen = space.sample(1, 3)
    (known, *_) = [record for record in records(product()) if record.ok]

    class Fake:
        seconds = (2.0, 1.0, 8.0, None)

        def compare(self, candidates: Sequence[Any]) -> tuple[Standing, ...]:
            self.count = len(candidates)
            wrong = next(record for record in records(product()) if not record.ok)
            return tuple(
                Standing(replace(known, times=(time,)) if time else wrong, 1.0, 1.0)
                for time in self.seconds[: len(candidates)]
            )

    class Task:
        func = product()

    own = Fake()
    own_judge = measuring(own, TARGET, 1)  # type: ignore[arg-type]
    gains = own_judge(Task, space, [chosen[0], space.default(), *chosen[1:]])  # type: ignore[arg-type]
    assert own.count == 4
    assert gains == [2.0, 1.0, 0.25, 0.0]
    own.seconds = (None, 1.0, 1.0, 1.0)  # type: ignore[assignment]
    assert own_judge(Task, space, chosen) == [1.0] * 3  # type: ignore[arg-type]
