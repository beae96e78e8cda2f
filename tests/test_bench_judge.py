"""The judge of the language model: nothing is dropped or measured twice, and means are right."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench import judge, judge_cost, judged, roller_rules, verdict
from tensorc.runtime.measure.candidate import Candidate, Standing
from tensorc.runtime.measure.record import Outcome
from tensorc.runtime.measure.records import RecordFile, read_records
from tensorc.search.formula import accumulators
from tensorc.search.loops import stage_views
from tensorc.space.space import Space
from tensorc.target import Target
from tensorc.tasks import task_set
from tensorc.tlm import weights
from tensorc.tlm.decode import Writer
from tensorc.tlm.sentence import prompt
from tests.search.fake import FakeMeasurer, Stopped, record_of, stopping
from tests.tlm.made import product, wild

TASKS = ("efficientnet-b0@1x224.03", "efficientnet-b0@1x224.10")
COLUMNS = ("tlm", "tlm4", "search6")


class Machine(FakeMeasurer):
    """The text of its steps decides what becomes of a candidate; a comparison has all rounds."""

    def __init__(self, before: Any = lambda number: None, wrong: Sequence[str] = ()) -> None:
        super().__init__(Space(product(8, 8, 8), "cpu:x86-64-v3").default(), before)
        self.wrong, self.compared = set(wrong), 0

    def seconds(self, candidate: Candidate) -> float:
        return 1e-3 * (1.0 + zlib.crc32(candidate.steps.encode()) % 1000 / 500)

    def outcome(self, candidate: Candidate) -> Outcome:
        return Outcome.WRONG if candidate.steps in self.wrong else Outcome.OK

    def measure(
        self, candidates: Sequence[Candidate], incumbent: float = math.inf
    ) -> Iterator[Any]:
        for one in candidates:
            self.before(len(self.measured))
            self.measured.append(one)
            yield record_of(one, self.outcome(one), self.seconds(one))

    def compare(self, candidates: Sequence[Candidate], rounds: int = 20) -> tuple[Standing, ...]:
        self.compared += 1
        found = []
        for one in candidates:
            record = record_of(one, self.outcome(one), self.seconds(one))
            if record.ok:
                record = replace(record, times=tuple(self.seconds(one) for _ in range(rounds)))
            found.append(Standing(record, 1.0, 1.0))
        return tuple(found)


def judge_of(folder: Path, machine: Machine | None, **changes: Any) -> judged.Judge:
    wanted = judged.Wanted(
        **{"columns": COLUMNS, "seeds": (0, 1), "records": folder, "target": "cpu:x86-64-v3",
           "rounds": 5, "digest": "a" * 64, **changes}
    )  # fmt: skip
    return judged.Judge(wanted, Writer(wild()), machine)


def test_all_columns_are_judged_and_nothing_is_measured_twice(tmp_path: Path) -> None:
    task, machine = task_set()[TASKS[0]], Machine()
    case = judge_of(tmp_path, machine).case(task, 2)
    assert isinstance(case, verdict.Case)
    assert case.columns == ("default", *COLUMNS)
    assert [len(case.times[name]) for name in case.columns] == [1, 2, 2, 2]
    assert all(len(s) == 5 for own in case.times.values() for s in own.values())
    assert case.part == verdict.EXTENTS
    # A column is no slower than its own trials, and the best known no slower than any column.
    assert case.best <= min(case.seconds(c, s) for c in case.columns for s in (0, 1))
    assert case.best <= min(machine.seconds(one) for one in machine.measured)
    tried = len(machine.measured)
    assert tried <= 2 * (4 + 6)
    assert len(read_records(tmp_path / f"{task.name}.2.jsonl")) >= tried
    assert judge_of(tmp_path, machine).case(task, 2) == case
    assert judge_of(tmp_path, None).case(task, 2) == case
    assert len(machine.measured) == tried
    # Other weights: searches stay as they are.
    other = judge_of(tmp_path, machine, digest="b" * 64).case(task, 2)
    assert isinstance(other, verdict.Case)
    assert other.times["search6"] == case.times["search6"]
    # Another machine begins anew.
    assert judge_of(tmp_path, None, target="cpu:x86-64-v4").case(task, 2) == judged.UNJUDGED


def test_a_wrong_sentence_is_reported_and_counts_as_one(tmp_path: Path) -> None:
    task = task_set()[TASKS[0]]
    first = judge_of(tmp_path / "right", None)
    own = judged._Task(first, task, 1)
    written = own._written(0)
    machine = Machine(wrong=[written.steps])
    (tmp_path / "wrong").mkdir()
    case = judge_of(tmp_path / "wrong", machine, columns=("tlm",), seeds=(0,)).case(task, 1)
    assert isinstance(case, verdict.Case)
    assert case.times["tlm"] == {0: ()}
    assert case.speed("tlm", "default", 0) == pytest.approx(1 / verdict.FAILED)
    assert verdict.faults([case]) == [f"{task.name} on 1 thread(s), tlm/0: wrong result: made so"]
    (row, *_) = verdict.speeds([case])
    assert (row.failed, row.tasks, row.slower) == (1, 1, 1)


def test_a_search_without_a_right_trial_is_as_fast_as_the_rules(tmp_path: Path) -> None:
    class Broken(Machine):
        def measure(self, candidates: Sequence[Candidate], incumbent: float = math.inf) -> Any:
            for one in candidates:
                yield record_of(one, Outcome.BUILD_ERROR, math.inf)

    made = judge_of(tmp_path, Broken(), columns=("tlm4", "search2"), seeds=(0,))
    case = made.case(task_set()[TASKS[0]], 1)
    assert isinstance(case, verdict.Case)
    assert case.speed("search2", "default", 0) == 1.0
    assert case.speed("tlm4", "default", 0) == pytest.approx(1 / verdict.FAILED)
    assert sorted(case.notes) == ["search2/0", "tlm4/0"]
    assert all(note.startswith("nothing right: ") for note in case.notes.values())


def test_what_cannot_be_read_is_by_the_rules_and_said_so(tmp_path: Path) -> None:
    own = judge_of(tmp_path, Machine(), columns=("tlm", "tlm4"), seeds=(0,))
    own.writer = Writer(wild(prompt=8))
    case = own.case(task_set()[TASKS[0]], 1)
    assert isinstance(case, verdict.Case)
    assert case.times["tlm"] == case.times["default"] == case.times["tlm4"]
    assert all(note.startswith("by rules: ") for note in case.notes.values())
    assert len(case.notes) == 2


@pytest.mark.parametrize("number", [0, 5])
def test_a_stopped_judgement_goes_on(tmp_path: Path, number: int) -> None:
    task = task_set()[TASKS[1]]
    some: dict[str, Any] = {"columns": ("tlm", "tlm4")}
    (tmp_path / "whole").mkdir()
    whole = judge_of(tmp_path / "whole", Machine(), **some).case(task, 2)
    with pytest.raises(Stopped):
        judge_of(tmp_path, Machine(stopping(number)), **some).case(task, 2)
    assert judge_of(tmp_path, None, **some).case(task, 2) == judged.UNJUDGED
    assert judge_of(tmp_path, Machine(), **some).case(task, 2) == whole
    tried = [r for r in read_records(tmp_path / f"{task.name}.2.jsonl") if not r.place]
    assert max(Counter(record.key for record in tried).values()) == 1


def test_long_searches_are_of_what_arithmetic_bounds_on_one_thread() -> None:
    wanted = judged.Wanted(("search64", "search1000"), (0,), Path())
    bound = next(task for task in task_set() if task.compute_bound)
    other = next(task for task in task_set() if not task.compute_bound)
    assert wanted.of(bound, 1) == ["default", "search64", "search1000"]
    assert wanted.of(bound, 2) == wanted.of(other, 1) == ["default", "search64"]


# Figures ----------------------------------------------------------------------------------------


def case_of(task: str, held: str = "network", **seconds: float | None) -> verdict.Case:
    times = {
        name: {0: () if value is None else (0.9 * value, value, 1.1 * value)}
        for name, value in seconds.items()
    }
    return verdict.Case(task, held, 1, True, times, {}, {})


def test_means_worst_tasks_and_shares() -> None:
    cases = [
        case_of("a", default=8.0, tlm=2.0, search64=4.0),
        case_of("b", default=4.0, tlm=8.0, search64=4.0),
        case_of("c", "family", default=4.0, tlm=1.0, search64=2.0),
    ]
    rows = {(row.part, row.column, row.by): row for row in verdict.speeds(cases)}
    all_ = rows[verdict.ALL, "tlm", "search64"]
    assert all_.mean == pytest.approx((2.0 * 0.5 * 2.0) ** (1 / 3))
    assert (all_.worst, all_.worst_task, all_.slower, all_.tasks) == (0.5, "b", 1, 3)
    assert all_.low <= all_.mean <= all_.high
    family = rows[verdict.FAMILIES, "tlm", "search64"]
    assert family.mean == family.low == family.high == pytest.approx(2.0)
    assert family.wanted == 1.0
    assert ("search64", "tlm") not in {row[1:] for row in rows}
    shares = {(row.part, row.column): row for row in verdict.closed(cases)}
    # log2 of the gaps: 2, 0 and 2; what tlm closes: 2, -1 and 2; and search64: 1, 0 and 1.
    assert shares[verdict.ALL, "tlm"].share == pytest.approx(3 / 4)
    assert shares[verdict.ALL, "search64"].share == pytest.approx(2 / 4)
    assert shares[verdict.EXTENTS, "tlm"].share == pytest.approx(1 / 2)
    assert shares[verdict.ALL, "tlm"].gap == pytest.approx(2 ** (4 / 3))


def test_rules_that_fail_and_tasks_of_which_nothing_is_right() -> None:
    cases = [
        case_of("a", default=None, tlm=2.0, search64=4.0),
        case_of("b", default=None, tlm=None),
    ]
    assert cases[0].speed("tlm", "default", 0) == 2.0
    rows = verdict.speeds(cases)
    assert [row.tasks for row in rows if row.part == verdict.ALL] == [1, 1, 1]
    assert math.isnan(verdict.ratios(cases[0])[1].low)


@pytest.mark.parametrize(("beside", "mean"), [(None, 1.5), (2.0, 3.0)])
def test_what_was_timed_elsewhere_is_a_column(beside: float | None, mean: float) -> None:
    case = replace(case_of("a", default=4.0, tlm=2.0), given={"meta64": (3.0, beside)})
    row = next(row for row in verdict.speeds([case]) if row.by == "meta64")
    assert (row.part, row.wanted) == (verdict.EXTENTS, 1.5)
    assert row.mean == pytest.approx(mean)


@given(st.lists(st.floats(0.5, 2.0), min_size=4, max_size=4), st.floats(0.1, 10.0))
@settings(max_examples=25)
def test_units_do_not_matter_and_intervals_hold_the_ratio(own: list[float], unit: float) -> None:
    times = tuple(own)
    low, high = verdict.over_rounds(tuple(3.0 * unit * t for t in times), times)
    ratio = 1 / (3.0 * unit)
    assert low <= ratio * (1 + 1e-9) * max(own) / min(own)
    assert ratio * min(own) / max(own) <= high * (1 + 1e-9)
    a = case_of("a", default=1.0, tlm=own[0])
    b = case_of("a", default=unit, tlm=unit * own[0])
    assert a.speed("tlm", "default", 0) == pytest.approx(b.speed("tlm", "default", 0))


# The heuristic, the cost and the command --------------------------------------------------------


def test_published_rules_choose_tiles_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roller_rules, "VISITED", 60)
    space = Space(product(64, 64, 64), "cpu:x86-64-v3;cores=2")
    tuner = roller_rules.PublishedTuner(space, 0, 2)
    batch = list(tuner.propose())
    assert len(batch) == len({one.steps for one in batch}) == 10
    assert not tuner.propose()
    assert batch == roller_rules.ranked(space, 0, 2)
    costs = [roller_rules.cycles(space, one, 2) for one in batch]
    assert costs == sorted(costs)
    assert costs[-1] < math.inf
    for one in batch:
        assert space.sentence(one.values) == one
        for view in stage_views(space.facts, one.steps):
            assert not view.stage.reduces or accumulators(view, 8) <= 16
        others = [(c.default, v) for c, v in one.decisions if c.kind not in roller_rules.PARTS]
        assert all(default == value for default, value in others)


def test_searches_took_what_was_not_a_pause(tmp_path: Path) -> None:
    assert judge_cost.working([5.0, 1.0, 2.0, 500.0, 501.5]) == 5.5
    (one,) = Machine().measure([judged._Task(
        judge_of(tmp_path, None), task_set()[TASKS[0]], 1).candidate("")])  # fmt: skip
    with RecordFile(tmp_path / "one.jsonl") as file:
        for number in range(101):
            stamp = 1000.0 + 0.5 * number + 600.0 * (number > 50)
            file.append(replace(one, tuner="evolutionary", seed=0, timestamp=stamp))
    assert judge_cost.search_seconds(tmp_path) == [pytest.approx(1000 * 0.5 * 99 / 100)]


def test_sentences_are_checked_step_by_step() -> None:
    func, target = task_set()[TASKS[0]].func, "cpu:x86-64-v3;cores=2"
    found = judge_cost.Valid()
    judge_cost.check(found, Writer(wild()), func, target, 0)
    assert (found.sentences, found.faults) == (16, [])
    assert 1 <= found.different <= 16
    written = Writer(wild()).write(Space(func, target), prompt(func, Target.parse(target), 2), 1)
    twice = replace(written[0].sentence, steps=2 * written[0].sentence.steps)
    bad = SimpleNamespace(write=lambda *_: [replace(written[0], sentence=twice)])
    judge_cost.check(found, bad, func, target, 1)
    assert len(found.faults) == 1


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["judge", *words])
    return judge.main()


def test_the_command_measures_reports_and_writes_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out, peer = (tmp_path / n for n in ("w.safetensors", "out.json", "peer.json"))
    weights.save(wild(), file)
    peer.write_text(json.dumps({TASKS[0]: 1e-3}))
    monkeypatch.setattr(judge, "measurer", Machine)
    words = [
        *("--weights", str(file), "--records", str(tmp_path / "r"), "--only", TASKS[0]),
        *("--threads", "1", "--seeds", "0", "--columns", "tlm,tlm2", "--repeats", "5"),
        *("--given", f"meta64:1={peer}", "--json", str(out), "--target", "cpu:x86-64-v3"),
    ]
    assert run(monkeypatch, *words) == 0
    told = capsys.readouterr()
    assert f"# 1/1 {TASKS[0]}, 1: tlm" in told.err
    assert "\x1b" not in told.out + told.err
    first = json.loads(out.read_text())
    assert {row["by"] for row in first["speeds"]} == {"default", "meta64"}
    assert {row["column"] for row in first["tasks"]} == {"default", "tlm", "tlm2", "meta64"}
    monkeypatch.setattr(judge, "measurer", None)
    assert run(monkeypatch, *words, "--report") == 0
    again = json.loads(out.read_text())
    assert {**again, "machine": ""} == {**first, "machine": ""}


def test_a_stop_leaves_the_tables_of_what_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(number: int) -> None:
        if number == 3:
            raise KeyboardInterrupt

    file = tmp_path / "w.safetensors"
    weights.save(wild(), file)
    monkeypatch.setattr(judge, "measurer", lambda: Machine(stop))
    words = [
        *("--weights", str(file), "--records", str(tmp_path), "--only", ",".join(TASKS)),
        *("--threads", "1", "--seeds", "0", "--columns", "tlm2", "--target", "cpu:x86-64-v3"),
    ]
    assert run(monkeypatch, *words) == 1
    told = capsys.readouterr()
    assert "stopped: by the user" in told.err
    assert TASKS[0] in told.out


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--records", "r"], "--weights is needed"),
        (["--columns", "search64"], "--records is needed"),
        (["--columns", "lucky"], "legal here: default, tlm, tlm<N>"),
        (["--given", "meta64=x"], "needed NAME:THREADS=FILE"),
        (["--given", "meta64:1=nowhere.json"], "holds no object from tasks to seconds"),
        (["--given", "search64:1=x"], "search64 is a column that is measured"),
        (["--parts", "all"], "legal here: task, network"),
        (["--records", "r", "--weights", "nowhere", "--threads", "1"], "cannot be read"),
        (["--records", "r", "--columns", "search2", "--only", "none"], "has no 'none'"),
    ],
)
def test_what_is_asked_wrongly_is_refused(
    words: list[str], reason: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        run(monkeypatch, *words)
    assert reason in capsys.readouterr().err.replace("\n", " ")


def test_the_same_tokens_are_told_by_their_hash(tmp_path: Path) -> None:
    file = tmp_path / "w.safetensors"
    weights.save(wild(), file)
    first, second = (judge_cost.same_child(TASKS[:1], file) for _ in range(2))
    assert first == second
    assert len(first["digests"][0]) == 64


def test_a_part_of_the_cost_that_fails_costs_no_figures(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(options: Any) -> list[judge_cost.Row]:
        raise subprocess.CalledProcessError(3, "child")

    rows = [judge_cost.Row("invalid sentences", 0, "", "0")]
    monkeypatch.setattr(judge_cost, "of_tasks", fails)
    monkeypatch.setattr(judge_cost, "of_validity", lambda options: rows)
    words = ["--cost", "--weights", "w", "--parts"]
    assert run(monkeypatch, *words, "valid") == 0
    assert run(monkeypatch, *words, "task,valid") == 1
    told = capsys.readouterr()
    assert "# task: a process ended with 3" in told.err
    assert told.out.count("invalid sentences") == 2
    rows.append(judge_cost.Row("invalid sentences", 1, "", "0"))
    assert run(monkeypatch, *words, "valid") == 1
