"""The language model against the rules, a heuristic and searches, on held-out tasks.

    python -m bench.judge --weights FILE --split test --threads 1 2 --records DIR --seeds 0 1
    python -m bench.judge ... --columns default,tlm,tlm10,search64 --only NAME,...
    python -m bench.judge ... --columns tlm,tlm10,search1000 --compute-bound --threads 1
    python -m bench.judge ... --given meta64:1=tvm.json    seconds of another compiler's kernels
    python -m bench.judge ... --report                     the tables of what there is
    python -m bench.judge --cost --weights FILE            what it costs, see `bench.judge_cost`

Columns:

    default            the schedule of the rules; it is always there
    tlm                one generation, nothing measured: what would be taken is timed, right or not
    tlm10              the best of the first 10 that the model writes, measured
    roller             the best of the 10 of the heuristic, measured
    roller_published   the same by Roller's published rules alone (`bench.roller_rules`)
    search64           the best of so many trials of our evolutionary search
    search1000         the same; 1,000 trials or more only on one thread, where arithmetic bounds
    known              the fastest that any of these has recorded of the task

The numbers may be others. For each task and thread count there are two files in DIR. One has the
records of all trials: a search goes on from them, whatever weights are judged. The other has what
each column has picked, and the samples of all picks, which were timed in turns, one after another
in each round, in an order drawn anew. Whatever is stopped at whatever moment is started again.

A picked schedule is checked, built and compared with the reference like any other candidate. What
is wrong, fails or cannot be written stays in the tables; `bench.verdict` says as what it counts.
On n threads the target has n cores, as that of the records that the model learned from.

A file of `--given NAME:THREADS=FILE` is a JSON object from names of tasks to median seconds, or to
these and those of the rules' schedule that was timed beside, in turns: [SECONDS, SECONDS].
`python -m bench.tvm_tasks seconds` makes one.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench import harness, judge_cost, verdict

# isort: split
from bench.compare import heading
from bench.judged import COUNT, PUBLISHED, ROLLER, ROUNDS, UNJUDGED, Judge, Wanted
from bench.verdict import MODEL, RULES
from tensorc.errors import ArgumentError, TargetError
from tensorc.runtime.measure.executors import measurer
from tensorc.runtime.measure.failures import MeasureError, RecordsError
from tensorc.tasks import KnownTask, task_set
from tensorc.tlm.failures import WeightsError
from tensorc.tlm.schedule import opened

COLUMNS = (RULES, MODEL, "tlm10", ROLLER, PUBLISHED, "search64")

# All tasks --------------------------------------------------------------------------------------


class Bar:
    """How far it is: a line that is written over on a terminal, lines elsewhere, on stderr."""

    def __init__(self, total: int) -> None:
        self.total, self.done = total, 0
        self._here = sys.stderr.isatty()

    def step(self, text: str) -> None:
        self.done += 1
        if not self._here:
            print(f"# {self.done}/{self.total} {text}", file=sys.stderr, flush=True)
            return
        full = 30 * self.done // max(self.total, 1)
        line = f"[{'#' * full}{'.' * (30 - full)}] {self.done}/{self.total} {text}"
        print(f"\r\x1b[2K{line:.110}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._here:
            print(file=sys.stderr)


def chosen(options: argparse.Namespace) -> list[KnownTask]:
    """The tasks, in an order that has every family early, whenever it is stopped."""
    if options.only:
        return [task_set()[name] for name in options.only]
    tasks = [t for t in task_set().of_split(options.split) if t.compute_bound or not options.bound]
    return sorted(tasks, key=lambda task: hashlib.sha256(task.name.encode()).digest())


@dataclass(slots=True)
class Found:
    """What came of all tasks: their cases, and why others have none."""

    cases: list[verdict.Case] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)

    def report(self, head: str) -> str:
        """The tables, and what is not right; tasks that are not judged yet are only counted."""
        faults = verdict.faults(self.cases)
        reasons = [f"{name}: {why}" for name, why in self.missing.items() if why != UNJUDGED]
        parts = [
            head,
            harness.table(verdict.speeds(self.cases)),
            harness.table(verdict.closed(self.cases)),
            "\n".join([f"{len(faults)} results are not right, or by the rules", *faults]),
            "\n".join([f"{len(self.missing)} not judged", *reasons]),
        ]
        return "\n\n".join(filter(None, parts))

    def as_data(self, head: str) -> dict[str, Any]:
        """All figures and samples, as JSON has them: what is no number is null."""
        found = {
            "machine": head,
            "speeds": [asdict(row) for row in verdict.speeds(self.cases)],
            "closed": [asdict(row) for row in verdict.closed(self.cases)],
            "tasks": [asdict(row) for case in self.cases for row in verdict.ratios(case)],
            "cases": [{**asdict(case), "part": case.part} for case in self.cases],
            "missing": self.missing,
        }
        return dict(_plain(found))


def judge_all(judge: Judge, places: Sequence[tuple[KnownTask, int]], found: Found) -> None:
    """Judge tasks on so many threads each, and add what comes of it as it comes."""
    bar = Bar(len(places))
    try:
        for task, threads in places:
            case = judge.case(task, threads)
            if isinstance(case, str):
                found.missing[f"{task.name} on {threads} thread(s)"] = case
            else:
                found.cases.append(case)
            bar.step(f"{task.name}, {threads}: {_line(case)}")
    finally:
        bar.end()


def _line(case: verdict.Case | str) -> str:
    if isinstance(case, str) or not case.right:
        return case if isinstance(case, str) else "nothing is right"
    speeds = [(c, case.speed(c, RULES, case.seeds[0])) for c in case.columns if c != RULES]
    return ", ".join(f"{column} {speed:.2f}" for column, speed in speeds)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# The command ------------------------------------------------------------------------------------


def _columns(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    for name in names:
        if not COUNT.fullmatch(name) and name not in (RULES, MODEL, ROLLER, PUBLISHED):
            legal = f"{RULES}, {MODEL}, {MODEL}<N>, {ROLLER}, {PUBLISHED}, search<N>"
            raise argparse.ArgumentTypeError(f"there is no column {name!r}; legal here: {legal}")
    return names


def _parts(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    for name in names:
        if name not in judge_cost.PARTS:
            reason = f"there is no part {name!r}; legal here: {', '.join(judge_cost.PARTS)}"
            raise argparse.ArgumentTypeError(reason)
    return names


def _given(text: str) -> tuple[tuple[str, int], Mapping[str, verdict.Given]]:
    found = re.fullmatch(r"([a-z_0-9]+):([0-9]+)=(.+)", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"got {text!r}; needed NAME:THREADS=FILE")
    name, threads, file = found.groups()
    if name in (RULES, MODEL, ROLLER, PUBLISHED, verdict.KNOWN) or COUNT.fullmatch(name):
        raise argparse.ArgumentTypeError(f"{name} is a column that is measured; take another name")
    try:
        read = json.loads(Path(file).read_text(encoding="utf-8"))
        seconds = {str(task): _timed(value) for task, value in read.items()}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        reason = f"{file} holds no object from tasks to seconds: {error}"
        raise argparse.ArgumentTypeError(reason) from None
    return (name, int(threads)), seconds


def _timed(value: Any) -> verdict.Given:
    """Raises ValueError or TypeError for what are no seconds."""
    seconds, rules = value if isinstance(value, list) else (value, None)
    found = float(seconds), None if rules is None else float(rules)
    if not all(time > 0.0 for time in found if time is not None):
        raise ValueError(f"{value} are no seconds")
    return found


def arguments() -> argparse.ArgumentParser:
    parser = harness.arguments(__doc__)
    parser.set_defaults(repeats=ROUNDS)
    names = lambda text: text.split(",")  # noqa: E731
    parser.add_argument("--weights", type=Path, help="of the model")
    parser.add_argument("--split", choices=("test", "development"), default="test")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--records", type=Path, metavar="DIR", help="what is measured, kept")
    parser.add_argument("--columns", type=_columns, default=COLUMNS, metavar="NAME,...")
    parser.add_argument("--only", type=names, metavar="NAME,...", help="tasks, of any split")
    parser.add_argument("--compute-bound", action="store_true", dest="bound", help="no others")
    parser.add_argument("--given", type=_given, action="append", default=[],
                        metavar="NAME:THREADS=FILE")  # fmt: skip
    parser.add_argument("--target", default="cpu", help="machine that code is made for")
    parser.add_argument("--report", action="store_true", help="measure nothing")
    parser.add_argument("--cost", action="store_true", help="what compiling and writing cost")
    parser.add_argument("--parts", type=_parts, default=judge_cost.PARTS, metavar="NAME,...",
                        help="of the cost")  # fmt: skip
    parser.add_argument("--peer-seconds", type=float, help="another search of a task, on average")
    parser.add_argument("--count", type=int, default=20_000, help="sentences that are checked")
    parser.add_argument("--networks", type=names, default=["efficientnet-b0", "gpt2"],
                        metavar="NAME,...", help="whose compilation is timed")  # fmt: skip
    return parser


def main() -> int:
    parser = arguments()
    options = parser.parse_args()
    models = any(column.startswith(MODEL) for column in options.columns)
    if options.weights is None and (models or options.cost):
        parser.error("--weights is needed for columns of the model, and for its cost")
    if options.records is None and not options.cost:
        parser.error("--records is needed: a folder, in which it can go on")
    try:
        return judge_cost.cost(options) if options.cost else run(options, models=models)
    except (ArgumentError, TargetError, WeightsError) as error:
        parser.error(str(error))


def _digest(file: Path) -> str:
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError as error:
        raise WeightsError(str(file), f"cannot be read: {error.strerror}") from None


def run(options: argparse.Namespace, *, models: bool) -> int:
    """Judge, and report what there is, however it ended."""
    places = [(task, threads) for task in chosen(options) for threads in options.threads]
    options.records.mkdir(parents=True, exist_ok=True)
    digest = _digest(options.weights) if models else ""
    wanted = Wanted(options.columns, tuple(options.seeds), options.records, options.target,
                    options.repeats, digest, dict(options.given))  # fmt: skip
    writer = opened(options.weights) if models and not options.report else None
    found, code = Found(), 0
    with nullcontext() if options.report else measurer() as machine:
        try:
            judge_all(Judge(wanted, writer, machine), places, found)
        except (KeyboardInterrupt, MeasureError, RecordsError) as stop:
            print(f"# stopped: {str(stop) or 'by the user'}", file=sys.stderr)
            code = 1
    head = f"{heading(threads=max(options.threads))}; {options.split}; weights {digest[:16]}"
    print(found.report(head))
    if options.json:
        options.json.write_text(json.dumps(found.as_data(head), indent=1) + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
