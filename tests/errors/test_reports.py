"""One illegal program, one file, one readable report.

A file `cases/<primitive>_refused_<why>.case` holds a program in the text form and the steps of a
schedule, the last of which is refused. Its report lies beside it, in a `.txt` of the same name.
"""

from __future__ import annotations

import pickle
import re
from functools import cache
from pathlib import Path

import pytest

import tensorc as tc
from docs.specification import specification
from tensorc.analysis import affine
from tensorc.analysis.violation import CODES
from tensorc.schedule import primitives
from tensorc.schedule.step import REGISTRY, legal
from tests.golden import Golden

assert primitives.__all__, "importing the primitives registers them"
CASES = sorted((Path(__file__).parent / "cases").glob("*.case"))
START = "s = Schedule("
MOST_LINES = 25

# K1 of the catalogue of faults: mistakes that other compilers reported as their own failures.
WRONG_SCHEDULES = (
    "inline_refused_output",
    "reverse_inline_refused_output",
    "reorder_refused_imperfect_nest",
    "reorder_refused_reversed_dependence",
    "parallel_refused_reduction",
    "parallel_refused_shared_temporary",
    "vectorize_refused_recurrence",
    "merge_refused_reversed_dependence",
    "fission_refused_reversed_dependence",
    "decompose_reduction_refused_one_fill_for_many_sums",
)


@cache
def refusal(case: Path) -> tc.ScheduleError:
    """The error that the last line of a case raises; the lines before it run."""
    lines = case.read_text(encoding="utf-8").splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith(START))
    func = tc.parse("\n".join(lines[:start]), case.name)
    names = {"Schedule": tc.Schedule, func.name: func}
    # Blank lines in place of the program keep the numbers of the lines.
    before = "\n" * start + "\n".join(lines[start:-1])
    exec(compile(before, str(case), "exec"), names)
    last = "\n" * (len(lines) - 1) + lines[-1]
    with pytest.raises(tc.ScheduleError) as refused:
        exec(compile(last, str(case), "exec"), names)
    return refused.value


def primitive_of(case: Path) -> str:
    return case.stem.partition("_refused_")[0]


every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)


@every_case
def test_report(case: Path, golden: Golden) -> None:
    golden.folder, golden.test = case.parent, case.stem
    golden.check(refusal(case))


@every_case
def test_a_report_is_short_and_about_the_users_program(case: Path) -> None:
    lines = str(refusal(case)).splitlines()
    number = len(case.read_text(encoding="utf-8").splitlines())
    assert len(lines) <= MOST_LINES
    assert re.match(r"error\[[A-Z]{3}\d{3}\]: \S", lines[0])
    assert re.match(
        rf"  --> {re.escape(case.name)}:{number}   step \d+: s\.{primitive_of(case)}\(", lines[1]
    )
    assert all(line == line.rstrip() for line in lines)
    assert "site-packages" not in str(refusal(case))
    assert "tensorc/" not in str(refusal(case))
    assert ".py" not in str(refusal(case))


@every_case
def test_the_code_is_in_the_specification(case: Path) -> None:
    code = refusal(case).violation.code
    name = primitive_of(case)
    conditions = " ".join(specification(REGISTRY[name]).conditions)
    # Any step may end a promise that an earlier one made, and any exact question may be undecided.
    assert (
        code in conditions
        or code in ("UNS001", "UNS002")
        or "after this step" in str(refusal(case))
    )


@every_case
def test_the_error_is_data(case: Path) -> None:
    error = refusal(case)
    twin = pickle.loads(pickle.dumps(error))
    assert type(twin) is tc.ScheduleError
    assert (str(twin), twin.violation) == (str(error), error.violation)
    assert twin.violation.alternatives == error.violation.alternatives


@pytest.mark.parametrize("name", WRONG_SCHEDULES)
def test_a_wrong_schedule_says_where_why_and_what_to_do(name: str) -> None:
    case = next(case for case in CASES if case.stem == name)
    lines = str(refusal(case)).splitlines()
    assert any(re.fullmatch(r" +[\^-][ \^-]*(  .*)?", line) for line in lines)
    assert lines[-1].startswith("  help: ")
    assert re.match(r"error\[\w+\]: cannot .*`\w+`.*: .*`\w+`", lines[0])


def test_every_code_has_a_case() -> None:
    found = {refusal(case).violation.code for case in CASES}
    # The operation limit is reached by its own test below.
    assert found | {"UNS002"} == set(CODES)


def test_every_primitive_has_a_case() -> None:
    assert {primitive_of(case) for case in CASES} == set(REGISTRY)


def test_every_case_has_one_report() -> None:
    files = {path.name for path in (Path(__file__).parent / "cases").iterdir()}
    assert files == {f"{case.stem}{suffix}" for case in CASES for suffix in (".case", ".txt")}


def test_a_question_that_is_too_hard_is_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
def far(A: Buffer["f32", 4096, "inout"]):
    for hard in range(61):
        for harder in range(59):
            A[hard * 61 + harder] = A[hard * 59 + harder * 2] * 2.0
"""
    schedule = tc.Schedule(tc.parse(text))
    monkeypatch.setattr(affine.operation_limit.__wrapped__, "__defaults__", (1,))
    with pytest.raises(tc.ScheduleError) as refused:
        schedule.parallel("hard")
    assert refused.value.violation.code == "UNS002"
    assert "the integer solver reached its operation limit" in str(refused.value)
    monkeypatch.undo()
    with pytest.raises(tc.ScheduleError) as refused:
        schedule.parallel("hard")
    assert refused.value.violation.code == "DEP001"


def deep() -> tc.Schedule:
    """A schedule of eight loops, two copies and accumulators, before its loops get kinds."""
    case = next(case for case in CASES if case.stem == "parallel_refused_in_a_deep_nest")
    lines = case.read_text(encoding="utf-8").splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith(START))
    func = tc.parse("\n".join(lines[:start]))
    names: dict[str, object] = {"Schedule": tc.Schedule, func.name: func}
    exec("\n".join(lines[start:-1]), names)
    schedule = names["s"]
    assert isinstance(schedule, tc.Schedule)
    return schedule


@pytest.mark.parametrize("primitive", sorted(REGISTRY))
def test_reports_of_a_deep_nest_are_short(primitive: str) -> None:
    schedule = deep()
    refused = 0
    for step in REGISTRY[primitive].choices(schedule.state):
        if not legal(step, schedule.state):
            with pytest.raises(tc.ScheduleError) as error:
                schedule.apply(step)
            assert len(str(error.value).splitlines()) <= MOST_LINES, str(error.value)
            refused += 1
            if refused == 5:
                break
