"""Tasks of the committed set beside what TVM's MetaSchedule finds for them.

    python -m bench.tvm_tasks translate --work DIR           in our environment: the test set
    python -m bench.tvm_tasks check --work DIR --python TVM --only NAME,...
    python -m bench.tvm_tasks tune --work DIR                in TVM's: one thread, then two
    python -m bench.tvm_tasks compare --work DIR --json tvm.json        in ours
    python -m bench.tvm_tasks seconds --json tvm.json --threads 1 > meta64.json

`translate` writes each task as a TensorIR function (`bench.tvm_script`) in a folder of its own, and
in DIR what could not be translated, with the reasons. `check` compares the functions, as they
stand, with our reference, on two sets of inputs. `tune` leaves a database for each number of
threads, on which candidates are timed and for which the target has cores; it goes on with what is
missing. `bench.tvm_peer` says how TVM's environment is made and how MetaSchedule runs; where one of
its rules ends with an error on a block, that rule leaves the block alone.

`compare` times TVM's best in turns with ours, scheduled by the rules, through the pipe that
`bench.tvm_peer` uses, and as a measurer does it: the results of both keep the bound that candidates
have to keep, and both read another copy of the constants at each call, 32 MB together. Constants
are packed before, on either side: MetaSchedule chooses their layout, too. Calls come from Python,
on arrays that exist. The file has a row for each task and number of threads, with all samples, and
what has none, with the reason; rows that are there are not timed again, so that a run may be
stopped at any moment. `seconds` makes of it what `bench.judge --given` reads.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench import harness, tvm_peer
from bench.totals import Kept
from bench.tvm_pipe import served, turns
from bench.tvm_record import Plan, Tuned

INDEX = "tasks.json"
PROGRAM = "program.py"
REST = 0.1
"""Seconds after which both sides' threads have stopped waiting for work."""


@dataclass(frozen=True, slots=True)
class Row:
    """Seconds of a task's call on so many threads, medians, and how many times faster ours is."""

    task: str
    family: str
    threads: int
    tvm: float
    ours: float
    ratio: float


@dataclass(slots=True)
class Found(Kept):
    """What `compare` has found.

    Attributes:
        machine: where.
        rows: a `Row` each, with `tvm_samples` and `ours_samples`, which were taken in turns.
        missing: others, with the reason, and the number of threads where it is not for any.
    """

    machine: str = ""
    rows: list[dict[str, Any]] = field(default_factory=list)
    missing: list[dict[str, Any]] = field(default_factory=list)

    def listed(self) -> list[Row]:
        names = Row.__dataclass_fields__
        return [Row(**{name: row[name] for name in names}) for row in self.rows]

    def has(self, task: str, threads: int) -> bool:
        return any(row["task"] == task and row["threads"] == threads for row in self.rows)


# In our environment: programs --------------------------------------------------------------------


def translate(options: argparse.Namespace) -> int:
    """Writes what TVM's side reads; what has other programs already is left as it is."""
    from bench import tvm_script
    from tensorc.tasks import task_set

    texts: dict[str, str] = {}
    refused: dict[str, str] = {}
    for task in task_set().of_split(options.split):
        try:
            texts[task.name] = tvm_script.translate(task.func)
        except tvm_script.TranslationError as error:
            refused[task.name] = str(error)
    if changed := [name for name in texts if _differs(options.work / name / PROGRAM, texts[name])]:
        raise SystemExit(
            f"{options.work} has other programs for {', '.join(changed)}; take another"
        )
    for name, text in texts.items():
        folder = options.work / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / PROGRAM).write_text(text)
    record = {"tasks": list(texts), "refused": refused}
    (options.work / INDEX).write_text(json.dumps(record, indent=1) + "\n")
    for name, reason in refused.items():
        print(f"{name}: {reason}")
    print(f"# {len(texts)} of {len(texts) + len(refused)} tasks translated")
    return 0


def _differs(program: Path, text: str) -> bool:
    return program.exists() and program.read_text() != text


def _names(options: argparse.Namespace) -> list[str]:
    """The tasks that were asked for. Raises SystemExit for others."""
    try:
        record = json.loads((options.work / INDEX).read_text())
    except FileNotFoundError:
        raise SystemExit(f"{options.work} has no tasks; run `translate` first") from None
    refused: Mapping[str, str] = record["refused"]
    for name in options.only or ():
        if name in refused:
            raise SystemExit(f"{name} is not translated: {refused[name]}")
    return tvm_peer.known(options.only, dict.fromkeys(record["tasks"]))


def _tuning(work: Path, name: str, threads: int) -> Path:
    return work / name / f"threads-{threads}"


# In TVM's environment ----------------------------------------------------------------------------


def tune(options: argparse.Namespace) -> int:
    names = _names(options)
    if options.child:
        from bench import tvm_side

        (name,), (threads,) = names, options.threads
        plan = Plan(options.trials, options.cpu, options.cores or threads, options.seed, False)
        function = tvm_side.read(options.work / name / PROGRAM)
        tvm_side.tune(function, _tuning(options.work, name, threads), plan)
        return 0
    failed = []
    for threads in options.threads:
        for name in names:
            folder = _tuning(options.work, name, threads)
            tuned = Tuned.load(folder)
            if tuned is not None and tuned.trials >= options.trials:
                continue
            if not tvm_peer.apart("bench.tvm_tasks", name, folder, threads):
                failed.append(f"{name} on {threads}")
    return tvm_peer.report_failed(failed)


# In our environment: turns -----------------------------------------------------------------------


def check(options: argparse.Namespace) -> int:
    from bench.tvm_subject import subject
    from tensorc.runtime.measure.inputs import KINDS

    failed = []
    for name in _names(options):
        reasons = []
        for kind in KINDS:
            case = subject(name, kind)
            kernel = case.kernel(options.work / name / PROGRAM)
            try:
                with served(kernel, options.python, 1, case.given) as (_, results):
                    reasons.append(case.wrong(results))
            except RuntimeError as error:
                reasons.append(str(error))
        reason = "; ".join(filter(None, reasons))
        print(f"# {name}: {reason or 'right'}", flush=True)
        failed += [name] if reason else []
    return tvm_peer.report_failed(failed)


def compare(options: argparse.Namespace) -> int:
    from tensorc.target import Target

    names = _names(options)
    found = Found.load(options.json)
    found.machine = Target.parse("cpu").describe()
    refused = json.loads((options.work / INDEX).read_text())["refused"]
    found.missing = [{"task": name, "reason": reason} for name, reason in refused.items()]
    for threads in options.threads:
        for name in names:
            if found.has(name, threads):
                continue
            answer = measure(name, threads, options)
            if isinstance(answer, str):
                found.missing.append({"task": name, "threads": threads, "reason": answer})
            else:
                found.rows.append(answer)
            found.save(options.json)
            said = answer if isinstance(answer, str) else f"{answer['ratio']:.2f}"
            print(f"# {name}, {threads}: {said}", file=sys.stderr, flush=True)
    print(found.machine)
    print(harness.table(found.listed()))
    print(summary(found))
    return 0


def measure(name: str, threads: int, options: argparse.Namespace) -> dict[str, Any] | str:
    """A row with what belongs to it, or why there is none."""
    from bench.tvm_subject import by_the_rules, subject
    from tensorc.tasks import task_set

    folder = _tuning(options.work, name, threads)
    tuned = Tuned.load(folder)
    if tuned is None:
        return "it is not tuned"
    case = subject(name, "spread")
    kernel = case.kernel(options.work / name / PROGRAM, folder)
    python = options.python or tuned.python
    try:
        with (
            by_the_rules(case, threads) as (ours, check_ours),
            served(kernel, python, threads, case.given) as (tvm, results),
        ):
            if reason := case.wrong(results):
                return f"TVM's result: {reason}"
            rest = REST if threads > 1 else 0.0
            samples = turns({"ours": ours, "tvm": tvm}, options.repeats, rest)
            if reason := check_ours():
                return f"our result: {reason}"
    except RuntimeError as error:
        return str(error)
    median = {one: statistics.median(times) for one, times in samples.items()}
    row = Row(name, task_set()[name].family, threads, median["tvm"], median["ours"],
              median["tvm"] / median["ours"])  # fmt: skip
    kept = {"trials": tuned.trials, "records": tuned.records, "tuning_seconds": tuned.seconds}
    return asdict(row) | kept | {f"{one}_samples": times for one, times in samples.items()}


def summary(found: Found) -> str:
    """Geometric means of the ratios, over families and over all, and what has none."""
    lines = []
    rows = found.listed()
    for threads in sorted({row.threads for row in rows}):
        own = [row for row in rows if row.threads == threads]
        for family in sorted({row.family for row in own}):
            lines.append(
                _mean(f"{threads} threads, {family}", [r for r in own if r.family == family])
            )
        lines.append(_mean(f"{threads} threads", own))
    for one in found.missing:
        where = f" on {one['threads']} threads" if "threads" in one else ""
        lines.append(f"{one['task']}{where}: {one['reason']}")
    return "\n".join(lines)


def _mean(what: str, rows: Sequence[Row]) -> str:
    mean = statistics.geometric_mean(row.ratio for row in rows)
    return f"{what}: {mean:.2f}x TVM over {len(rows)}, least {min(r.ratio for r in rows):.2f}x"


def seconds(options: argparse.Namespace) -> int:
    rows = Found.load(options.json).listed()
    found = {row.task: row.tvm for row in rows if row.threads == options.threads}
    print(json.dumps(found, indent=1))
    return 0


# Commands ----------------------------------------------------------------------------------------


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    work = argparse.ArgumentParser(add_help=False)
    work.add_argument("--work", type=Path, required=True, metavar="DIR", help="a folder a task")
    some = argparse.ArgumentParser(add_help=False, parents=[work])
    some.add_argument("--only", type=tvm_peer.names, metavar="NAME,...")
    threads = argparse.ArgumentParser(add_help=False)
    threads.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    one = commands.add_parser("translate", parents=[work], help="in our environment")
    one.add_argument("--split", default="test", help="of the task set")
    one.set_defaults(run=translate)
    one = commands.add_parser("check", parents=[some], help="in our environment")
    one.add_argument("--python", required=True, help="TVM's interpreter")
    one.set_defaults(run=check)
    one = commands.add_parser("tune", parents=[some, threads], help="in TVM's environment")
    tvm_peer.add_tuning(one)
    one.set_defaults(run=tune)
    one = commands.add_parser("compare", parents=[some, threads], help="in our environment")
    one.add_argument("--repeats", type=int, default=30, help="rounds of timing")
    one.add_argument("--python", help="TVM's interpreter; by default the one that tuned")
    one.add_argument("--json", type=Path, required=True, metavar="FILE", help="to go on from")
    one.set_defaults(run=compare)
    one = commands.add_parser("seconds", help="TVM's, of each task, for bench.judge")
    one.add_argument("--json", type=Path, required=True, metavar="FILE", help="of `compare`")
    one.add_argument("--threads", type=int, default=1)
    one.set_defaults(run=seconds)
    return parser


def main() -> int:
    options = arguments().parse_args()
    return int(options.run(options))


if __name__ == "__main__":
    sys.exit(main())
