"""Random schedules of random programs, all checked: `python -m tensorc.testing.fuzz`.

Every accepted step must leave a well-formed program with the old meaning; every promise of a
parallel or vectorized loop must hold in the access log; the steps, replayed, must give the same
program; refused steps of kind illegal are forced, to see the damage.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tensorc.dtype import DType
from tensorc.errors import Kind
from tensorc.ir.arith import constant, sub
from tensorc.ir.interp import Result, run
from tensorc.ir.nodes import Alloc, Binary, Cast, For, Func, If, Load, Select, Seq, Stmt
from tensorc.ir.types import dtype_of
from tensorc.ir.verify import verify
from tensorc.ir.walk import nodes, variables
from tensorc.schedule.state import State
from tensorc.schedule.step import Step, explain, questions
from tensorc.schedule.trace import from_json, to_json
from tensorc.testing import machine, oracle
from tensorc.testing.arrays import make_inputs, make_sizes
from tensorc.testing.checks import (
    FailedCheckError,
    check_form,
    check_machine,
    check_meaning,
    check_order,
    check_promises,
    examine,
    shrink,
)
from tensorc.testing.confirm import INTERNAL, confirmed
from tensorc.testing.differential import reference
from tensorc.testing.draw import Seeded, Source
from tensorc.testing.programs import ProgramOptions, make_program
from tensorc.testing.schedules import draw_step, start, text_of


@dataclass(frozen=True, slots=True)
class FuzzOptions:
    """How much of each pair is checked.

    Attributes:
        draws: how many steps are drawn for a program.
        data: percentage of programs that are not affine: half index through a buffer, all may
            load under a condition on data.
        confirm: percentage of illegal refusals that are forced.
        order: percentage of accepted order steps that brute force also looks at.
        compiled: percentage of schedules that are also run as machine code.
        strict: percentage of schedules under strict_float, whose results must be equal bit for bit.
        every: whether each step is compared, or only the last one of a schedule.
    """

    draws: int = 10
    data: int = 30
    confirm: int = 100
    order: int = 15
    compiled: int = 0
    strict: int = 10
    every: bool = True


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that must not happen: where it was drawn, and what happened."""

    name: str
    kind: str
    message: str
    func: Func
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        return f"--- {self.name}: {self.kind}: {self.message}\n{text_of(self.func, self.steps)}"

    def shrunk(self) -> Fault:
        """The fault in a smaller pair, when it shows there, too."""
        kind = self.kind

        def fails(func: Func, steps: tuple[Step, ...]) -> bool:
            found = examine(func, steps, inputs=1)
            return found is not None and found.kind == kind

        if not fails(self.func, self.steps):
            return self
        func, steps = shrink(self.func, self.steps, fails)
        return Fault(self.name, kind, str(examine(func, steps, inputs=1)), func, steps)


@dataclass(slots=True)
class Totals:
    """Counts over a run."""

    counts: Counter[str] = field(default_factory=Counter)
    accepted: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    unconfirmed: Counter[str] = field(default_factory=Counter)
    faults: list[Fault] = field(default_factory=list)
    earlier: list[str] = field(default_factory=list)
    """The texts of faults that a run before this one found."""

    def summary(self) -> dict[str, Any]:
        """The shares that the specification asks for."""
        c = self.counts
        illegal = c["forced"]
        return {
            "pairs": c["pairs"],
            "drawn": c["drawn"],
            "accepted share": _share(c["accepted"], c["drawn"]),
            "without a candidate": c["empty"],
            "accepted steps a schedule": round(c["accepted"] / max(c["pairs"], 1), 2),
            "verdicts at the dependence tier": _share(c["deep"], c["drawn"]),
            "programs with a conflict": _share(c["conflicting"], c["pairs"]),
            "illegal refusals confirmed": _share(c["confirmed"], illegal),
            "illegal refusals": illegal,
            "unsupported share of refusals, affine": _share(
                c["affine unsupported"], c["affine refused"]
            ),
            "malformed": c["malformed"],
            "too large to run": c["too large"],
            "compiled": c["compiled"],
            "accepted by primitive": dict(sorted(self.accepted.items())),
            "refused by code": dict(sorted(self.refused.items())),
            "unconfirmed by code": dict(sorted(self.unconfirmed.items())),
            "faults": len(self.faults) + len(self.earlier),
        }


def _share(part: int, whole: int) -> float:
    return round(part / whole, 4) if whole else 0.0


@dataclass(slots=True)
class Pair:
    """A program with its reference results, and the schedule so far."""

    func: Func
    strict: bool
    references: list[tuple[dict[str, Any], Result]] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    tried: list[Step] = field(default_factory=list)


def run_pair(name: str, options: FuzzOptions, totals: Totals) -> None:
    """One program and one schedule, all checks; faults and counts go into `totals`."""
    source = Seeded(name)
    data = source.chance(options.data)
    gathers = data and source.chance(50)
    func = make_program(source, ProgramOptions(gathers=gathers, data_guards=data))
    pair = Pair(func, source.chance(options.strict))
    totals.counts["pairs"] += 1
    try:
        _start(source, pair, totals)
        _schedule(source, pair, options, totals)
    except FailedCheckError as failure:
        fault = Fault(name, failure.kind, failure.message, func, tuple(pair.steps))
        totals.faults.append(fault)
    except INTERNAL as error:
        message = f"{type(error).__name__}: {error}\n{traceback.format_exc(limit=-4)}"
        steps = (*pair.steps, *pair.tried[-1:])
        fault = Fault(name, "internal error", message, func, steps)
        totals.faults.append(fault)


def _start(source: Source, pair: Pair, totals: Totals) -> None:
    verify(pair.func)
    for number in range(2):
        arguments = make_inputs(source, pair.func, make_sizes(source, pair.func))
        meaning = run if pair.strict else reference
        pair.references.append((arguments, meaning(pair.func, arguments)))
        if number == 0:
            log = oracle.log_of(pair.func, arguments)
            totals.counts["conflicting"] += oracle.has_conflict(pair.func, log)


def _schedule(source: Source, pair: Pair, options: FuzzOptions, totals: Totals) -> None:
    state = start(pair.func, strict_float=pair.strict)
    for _ in range(options.draws):
        step = draw_step(source, state, tried=pair.tried)
        pair.tried.clear()
        if step is None:
            totals.counts["empty"] += 1
            continue
        pair.steps.append(step)
        asked = questions()
        violation = explain(step, state)
        deep = questions() > asked
        after = step.apply(state) if violation is None else None
        if after is not None and work(after.func) > MOST_WORK:
            totals.counts["too large"] += 1
            pair.steps.pop()
            continue
        totals.counts["drawn"] += 1
        totals.counts["deep"] += deep
        if after is not None:
            _accepted(source, pair, step, state, after, options, totals)
            state = after
            continue
        assert violation is not None
        _refused(source, step, state, violation, options, totals)
        pair.steps.pop()
    if not options.every:
        check_meaning(state, pair.references, source.integer(0, 99))
    check_promises(state, pair.references[0][0])
    _replay(pair, state)
    if source.chance(options.compiled) and machine.runnable(pair.func):
        totals.counts["compiled"] += 1
        target = source.pick(machine.targets())
        check_machine(state, pair.func, pair.references, target)


def is_affine(func: Func) -> bool:
    """Are all indices, bounds and guards quasi-affine: no data, no products or quotients of sizes?

    The steps of a schedule can take that away: the loops of a symbolic size, fused, are not.
    """
    for node in nodes(func, Binary):
        sizes = [variables(part) for part in (node.a, node.b)]
        if dtype_of(node) is DType.INDEX and (
            (node.op == "mul" and all(sizes)) or (node.op in _QUOTIENTS and sizes[1])
        ):
            return False
    reads = (n.a for n in nodes(func, Cast) if n.dtype is DType.INDEX)
    lazy = (n.a for n in nodes(func, Binary) if n.op in ("and", "or"))
    guards = (*(n.condition for n in nodes(func, Select)), *lazy)
    return not any(next(nodes(part, Load), None) for part in (*reads, *guards))


_QUOTIENTS = ("floordiv", "floormod")


def work(func: Func) -> int:
    """About how many statements a run performs, where what is not known runs 8 times."""

    def count(stmt: Stmt) -> int:
        match stmt:
            case Seq(body=parts):
                return sum(map(count, parts))
            case For(begin=begin, end=end, body=body):
                extent = constant(sub(end, begin))
                return max(8 if extent is None else extent, 0) * count(body)
            case If(body=body) | Alloc(body=body):
                return count(body)
        return 1

    return count(func.body)


def _accepted(
    source: Source,
    pair: Pair,
    step: Step,
    state: State,
    after: State,
    options: FuzzOptions,
    totals: Totals,
) -> None:
    totals.counts["accepted"] += 1
    totals.accepted[step.primitive] += 1
    check_form(after)
    if options.every:
        check_meaning(after, pair.references, source.integer(0, 99))
    if source.chance(options.order):
        check_order(step, state, after, pair.references[0][0])


def _replay(pair: Pair, state: State) -> None:
    again = start(pair.func, strict_float=pair.strict)
    steps = from_json(to_json(pair.steps))
    for step in steps:
        again = step.apply(again)
    if again.func != state.func:
        raise FailedCheckError("replay differs", "the same steps gave another program")


def _refused(
    source: Source,
    step: Step,
    state: State,
    violation: Any,
    options: FuzzOptions,
    totals: Totals,
) -> None:
    kind: Kind = violation.kind
    totals.refused[violation.code] += 1
    totals.counts[kind.value] += 1
    if kind is not Kind.MALFORMED and is_affine(state.func):
        totals.counts["affine refused"] += 1
        totals.counts["affine unsupported"] += kind is Kind.UNSUPPORTED
    if kind is Kind.ILLEGAL and source.chance(options.confirm):
        totals.counts["forced"] += 1
        if confirmed(step, state) is not None:
            totals.counts["confirmed"] += 1
        else:
            totals.unconfirmed[f"{step.primitive} {violation.code}"] += 1


def fuzz(
    count: int,
    seed: int,
    options: FuzzOptions | None = None,
    *,
    first: int = 0,
    totals: Totals | None = None,
) -> Iterator[Totals]:
    """Run `count` pairs from number `first` on; gives the totals so far after each.

    `totals` are those of an earlier run, which go on.
    """
    totals = Totals() if totals is None else totals
    for number in range(first, first + count):
        run_pair(f"{seed}/{number}", options or FuzzOptions(), totals)
        yield totals


def save(totals: Totals, log: Path) -> None:
    """Write the totals to a file as JSON; a stop in between leaves the file before."""
    line = {
        "counts": totals.counts,
        "accepted": totals.accepted,
        "refused": totals.refused,
        "unconfirmed": totals.unconfirmed,
        "faults": totals.earlier + [str(fault) for fault in totals.faults],
    }
    fresh = log.with_name(f"{log.name}.new")
    fresh.write_text(json.dumps(line) + "\n", encoding="utf-8")
    fresh.replace(log)


def load(log: Path) -> Totals:
    """The totals that a run has saved; none when there is no such file yet."""
    if not log.exists():
        return Totals()
    last = json.loads(log.read_text(encoding="utf-8"))
    return Totals(
        Counter(last["counts"]),
        Counter(last["accepted"]),
        Counter(last["refused"]),
        Counter(last["unconfirmed"]),
        earlier=list(last["faults"]),
    )


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tensorc.testing.fuzz", description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="number of pairs")
    parser.add_argument("--seed", type=int, default=0, help="seed of the run")
    parser.add_argument("--draws", type=int, default=10, help="steps drawn for a program")
    parser.add_argument("--compiled", type=int, default=0, help="percentage run as machine code")
    parser.add_argument("--final", action="store_true", help="compare after the last step alone")
    parser.add_argument("--log", type=Path, help="file to save to, and to go on from")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON only")
    parser.add_argument("--stop", action="store_true", help="stop at the first fault")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns 1 when there is a fault."""
    given = _options(arguments)
    options = FuzzOptions(draws=given.draws, compiled=given.compiled, every=not given.final)
    totals = load(given.log) if given.log else Totals()
    began, first, shown = time.monotonic(), totals.counts["pairs"], 0
    left = max(given.count - first, 0)
    for _ in fuzz(left, given.seed, options, first=first, totals=totals):
        done = totals.counts["pairs"]
        for fault in totals.faults[shown:]:
            sys.stderr.write(f"\n{fault.shrunk()}\n")
        shown = len(totals.faults)
        if given.log and done % SAVED == 0:
            save(totals, given.log)
        if not given.json and done % SHOWN == 0:
            rate = (done - first) / (time.monotonic() - began)
            sys.stderr.write(f"\r{done} of {given.count} pairs, {rate:.1f}/s, {shown} faults ")
        if given.stop and shown:
            break
    print(json.dumps(totals.summary(), indent=None if given.json else 2))
    return 1 if totals.summary()["faults"] else 0


MOST_WORK = 100_000
"""A step whose program performs more statements than this is not taken."""

SAVED, SHOWN = 100, 20
"""After how many pairs the log is written, and progress shown."""

if __name__ == "__main__":
    sys.exit(main())
