"""Torch's own operator samples through our importer: how much of them runs, and how right.

    python -m bench.op_db --list                  find the operators that count; writes the list
    python -m bench.op_db                         judge all their samples, and print the tables
    python -m bench.op_db --only 'nn.*pool'       some operators, by a regular expression
    python -m bench.op_db --json op_db.json       the same figures as data

The samples are those of `torch.testing._internal.common_methods_invocations.op_db` in float32,
without gradients. An operator counts when one of its first samples decomposes to core ATen: after
`run_decompositions` each operator in the graph carries `torch.Tag.core`, or is one that our
importer takes as it is. The list in `op_db_operators.txt` was made once and is judged as a whole;
all samples of an operator on it count, those that do not decompose to core ATen, too.

A sample becomes a module that calls the operator. Its tensors, those in lists as well, are inputs;
where torch cannot export that, the first is and the others are constants. Everything else is closed
over. The module is exported, imported and compiled (without a schedule, unless --scheduler says
otherwise), called with the sample's tensors, and compared with the module run by torch: structure,
dtype and shape of each result; integers and bools exactly; floats to 1e-4 relative plus 1e-5
absolute (NaN equals NaN), half precision to two roundings. Of operators that give undefined memory
only dtype and shape are compared.

    passed         all of that holds
    refused        a typed error of ours
    wrong          a result that differs
    crashed        any other error, the end of the process, or no end within --seconds
    not exported   torch.export itself refuses the sample; not counted
    in place       the sample changes its own input; not asked for and not counted

Each outcome is a line of the log; a run goes on where an earlier one stopped (--fresh starts anew).
Work is done in child processes, of which a crash ends one.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import selectors
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.harness import table

LIST = Path(__file__).with_name("op_db_operators.txt")
OUTCOMES = ("passed", "refused", "wrong", "crashed", "not exported", "in place")
COUNTED = OUTCOMES[:4]
# Importing torch and its tests takes long on a busy machine.
START_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Line:
    """One judged sample."""

    operator: str
    sample: int
    outcome: str
    reasons: tuple[str, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Row:
    outcome: str
    samples: int


class Child:
    """A process that judges samples."""

    def __init__(self, scheduler: str, cache: Path) -> None:
        command = [sys.executable, "-m", "bench.op_db_samples", scheduler]
        environment = {
            **os.environ, "TENSORC_CACHE_DIR": str(cache), "OMP_NUM_THREADS": "1",
            "TENSORC_NUM_THREADS": "1",
        }  # fmt: skip
        descriptor, name = tempfile.mkstemp(suffix=".stderr")
        self.errors = Path(name)
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=descriptor,
            env=environment,
        )  # fmt: skip
        os.close(descriptor)
        self.selector = selectors.DefaultSelector()
        assert self.process.stdout is not None
        self.output, self.unread = self.process.stdout.fileno(), b""
        self.selector.register(self.output, selectors.EVENT_READ)
        first = self.line(START_SECONDS)
        if first is None:
            raise SystemExit(f"the child process does not start:\n{self.end()}")
        self.operators: list[str] = first["operators"]

    def order(self, **what: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(what).encode() + b"\n")
        self.process.stdin.flush()

    def line(self, seconds: float) -> dict[str, Any] | None:
        """The next line; None when the process has ended or is silent for too long."""
        while b"\n" not in self.unread:
            if not self.selector.select(seconds):
                return None
            more = os.read(self.output, 1 << 16)
            if not more:
                return None
            self.unread += more
        text, _, self.unread = self.unread.partition(b"\n")
        found: dict[str, Any] = json.loads(text)
        return found

    def end(self) -> str:
        """End the process; why it did, if it ended by itself."""
        # A process that has closed its output is about to end.
        alive = not self.selector.select(0)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(0 if alive else 10)
        self.process.kill()
        code = self.process.wait()
        last = [line for line in self.errors.read_text().splitlines() if line.strip()][-1:]
        self.errors.unlink()
        if alive:
            return "no end"
        return last[0] if code > 0 and last else f"ended by signal {-code}"


def judge(
    child: Child, operator: str, first: int, seconds: float, restart: Any
) -> Iterator[tuple[Line, Child]]:
    """The outcomes of an operator's samples from the first on, and the child that goes on."""
    child.order(operator=operator, first=first)
    at: dict[str, Any] = {"operator": operator, "sample": first, "at": "samples"}
    while True:
        line = child.line(seconds)
        if line is None:
            reason = f"{at['at']}: {child.end()}"
            outcome = "not exported" if at["at"] == "export" else "crashed"
            child = restart()
            yield Line(operator, at["sample"], outcome, (reason,), seconds), child
            if at["at"] == "samples":
                return
            child.order(operator=operator, first=at["sample"] + 1)
            at = {"operator": operator, "sample": at["sample"] + 1, "at": "samples"}
        elif line.get("done"):
            return
        elif "outcome" in line:
            yield Line(**{**line, "reasons": tuple(line["reasons"])}), child
            at = {**at, "sample": line["sample"] + 1, "at": "samples"}
        else:
            at = line


class Survey:
    """Judges operators with several children at once; every outcome goes to the log."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.log = Path(options.log)
        self.log.parent.mkdir(parents=True, exist_ok=True)
        if options.fresh:
            self.log.unlink(missing_ok=True)
        self.lines = read_log(self.log)
        self.lock = threading.Lock()

    def run(self, operators: dict[str, int]) -> None:
        done = Counter(line.operator for line in self.lines)
        todo = [(name, done[name]) for name, number in operators.items() if done[name] < number]
        # The longest first, so that no child works alone at the end.
        todo.sort(key=lambda pair: operators[pair[0]] - pair[1])
        threads = [
            threading.Thread(target=self._work, args=(todo,)) for _ in range(self.options.workers)
        ]
        for thread in threads if todo else ():
            thread.start()
        for thread in threads if todo else ():
            thread.join()

    def _child(self) -> Child:
        return Child(self.options.scheduler, self.log.with_suffix(".cache"))

    def _work(self, todo: list[tuple[str, int]]) -> None:
        child = self._child()
        while True:
            with self.lock:
                if not todo:
                    break
                name, first = todo.pop()
            judged = judge(child, name, first, self.options.seconds, self._child)
            for line, current in judged:
                child = current
                with self.lock, self.log.open("a") as file:
                    file.write(json.dumps(asdict(line)) + "\n")
                    self.lines.append(line)
        child.end()


def read_log(log: Path) -> list[Line]:
    """The outcomes of earlier runs; a last line that was cut is left out."""
    if not log.exists():
        return []
    whole = [text for text in log.read_text().splitlines() if text.endswith("}")]
    entries = map(json.loads, whole)
    return [Line(**{**entry, "reasons": tuple(entry["reasons"])}) for entry in entries]


def find(options: argparse.Namespace) -> None:
    """Write the list of the operators that count, with their numbers of samples.

    What has been found is kept beside the log, so that a search goes on where it stopped.
    """
    kept = Path(options.log).with_name("list.jsonl")
    kept.parent.mkdir(parents=True, exist_ok=True)
    if options.fresh:
        kept.unlink(missing_ok=True)
    lines = kept.read_text().splitlines() if kept.exists() else []
    found = {line["operator"]: line for line in map(json.loads, lines)}
    cache = Path(options.log).with_suffix(".cache")
    child = Child("none", cache)
    for name in (one for one in child.operators if one not in found):
        child.order(operator=name, find=True)
        line = child.line(10 * options.seconds)
        if line is None:
            line = {"operator": name, "counts": False, "samples": 0, "reason": child.end()}
            child = Child("none", cache)
        found[name] = line
        with kept.open("a") as file:
            file.write(json.dumps(line) + "\n")
    child.end()
    counting = sorted(name for name, line in found.items() if line["counts"])
    LIST.write_text("".join(f"{name} {found[name]['samples']}\n" for name in counting))
    print(f"{len(counting)} operators in {LIST.name}")


def listed(pattern: str) -> dict[str, int]:
    rows = (row.rsplit(" ", 1) for row in LIST.read_text().splitlines())
    return {name: int(number) for name, number in rows if re.search(pattern, name)}


# Tables -----------------------------------------------------------------------------------------


def figures(operators: dict[str, int], lines: list[Line]) -> dict[str, Any]:
    """The outcomes counted, in all and by operator, and the reasons, most frequent first."""
    mine = [line for line in lines if line.operator in operators]
    by_operator = {name: Counter[str]() for name in operators}
    reasons: dict[str, Counter[str]] = {outcome: Counter() for outcome in OUTCOMES[1:]}
    for line in mine:
        by_operator[line.operator][line.outcome] += 1
        if line.outcome != "passed":
            texts = dict.fromkeys(re.sub(r"\d+(\.\d+)?(e[+-]?\d+)?", "N", r) for r in line.reasons)
            reasons[line.outcome].update(list(texts))
    total = Counter(line.outcome for line in mine)
    counted = sum(total[outcome] for outcome in COUNTED)
    whole = [c for c in by_operator.values() if any(c[outcome] for outcome in COUNTED)]
    return {
        "operators": len(operators),
        "samples": sum(operators.values()),
        "judged": len(mine),
        **{outcome: total[outcome] for outcome in OUTCOMES},
        "passed_share": round(total["passed"] / counted, 4) if counted else 0.0,
        "operators_passed": sum(all(not c[o] for o in COUNTED[1:]) for c in whole),
        "operators_counted": len(whole),
        "seconds": round(sum(line.seconds for line in mine)),
        "by_operator": {name: dict(c) for name, c in by_operator.items()},
        "reasons": {name: dict(c.most_common()) for name, c in reasons.items()},
    }


def show(found: dict[str, Any], most: int) -> None:
    print(table([Row(outcome, found[outcome]) for outcome in OUTCOMES]))
    print(
        f"{found['judged']} of {found['samples']} samples of {found['operators']} operators;"
        f" {100 * found['passed_share']:.1f} % of those counted passed;"
        f" all samples of {found['operators_passed']} of {found['operators_counted']} operators"
    )
    for outcome in OUTCOMES[1:]:
        reasons = list(found["reasons"][outcome].items())[:most]
        if reasons:
            print(f"\n{outcome}:")
            for reason, number in reasons:
                print(f"  {number:6d}  {reason:.160}")
    bad = {n: c for n, c in found["by_operator"].items() if c.get("wrong") or c.get("crashed")}
    for name, outcomes in bad.items():
        print(f"{name}: {outcomes}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    folder = Path(tempfile.gettempdir()) / "tensorc-op-db"
    parser.add_argument("--list", action="store_true", help="find the operators; write the list")
    parser.add_argument("--only", default="", metavar="PATTERN", help="operators, by expression")
    parser.add_argument("--log", default=str(folder / "log.jsonl"), help="where outcomes are kept")
    parser.add_argument("--fresh", action="store_true", help="forget what the log holds")
    parser.add_argument("--report", action="store_true", help="only the tables, of the log")
    parser.add_argument("--json", metavar="FILE", help="write the figures there")
    parser.add_argument("--scheduler", choices=["none", "default"], default="none")
    parser.add_argument("--workers", type=int, default=2, help="processes at once")
    parser.add_argument("--seconds", type=float, default=60.0, help="limit for a step of a sample")
    parser.add_argument("--most", type=int, default=40, help="reasons to print of each outcome")
    options = parser.parse_args()
    if options.list:
        find(options)
        return 0
    operators, survey = listed(options.only), Survey(options)
    if not options.report:
        survey.run(operators)
    found = figures(operators, survey.lines)
    show(found, options.most)
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=1) + "\n")
    return int(found["wrong"] + found["crashed"] > 0)


if __name__ == "__main__":
    sys.exit(main())
