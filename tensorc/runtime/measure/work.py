"""The jobs of a measurer's process, apart from how processes are started and ended."""

from __future__ import annotations

import random
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from tensorc import config
from tensorc.codegen.jit import check_runs_here
from tensorc.codegen.pipeline import Options
from tensorc.errors import LimitError, TensorcError
from tensorc.ir.hash import structural_hash
from tensorc.runtime.code import made
from tensorc.runtime.measure import quiet
from tensorc.runtime.measure.candidate import Limits
from tensorc.runtime.measure.expected import Expected, expected
from tensorc.runtime.measure.inputs import KINDS, Kind
from tensorc.runtime.measure.jobs import (
    Begun,
    Build,
    Built,
    Compare,
    Failed,
    Run,
    Subject,
    Timed,
    TimedOut,
)
from tensorc.runtime.measure.memory import Arguments
from tensorc.runtime.measure.record import Outcome
from tensorc.runtime.measure.trial import Clock, Trial, samples

Say: TypeAlias = Callable[[object], None]
"""How a job tells that a candidate begins, before it gives its answer."""


class Prepared:
    """Inputs of a task, and what comes of them."""

    def __init__(self, arguments: dict[Kind, Arguments], results: dict[Kind, Expected]):
        self.arguments, self.expected = arguments, results
        inputs_size = sum(getattr(a, "nbytes", 0) for x in arguments.values() for a in x.values())
        self.size = inputs_size + sum(result.size for result in results.values())


def build(job: Build, say: Say) -> Built | Failed:
    say(Begun())
    candidate, start = job.candidate, time.perf_counter()
    cap_memory(job.limits.memory_bytes)
    try:
        nest, packs = candidate.apply(candidate.func, candidate.target, candidate.steps)
    except TensorcError as error:
        return Failed(Outcome.REFUSED, str(error))
    except MemoryError as error:
        return _over(job.limits, error)
    try:
        code = made(nest, candidate.target, Options())
        packed = tuple((name, made(pack, candidate.target, Options())) for name, pack in packs)
    except (TensorcError, RecursionError) as error:
        return Failed(Outcome.BUILD_ERROR, f"{type(error).__name__}: {error}")
    except MemoryError as error:
        return _over(job.limits, error)
    return Built(code, packed, structural_hash(nest), time.perf_counter() - start)


def _over(limits: Limits, error: MemoryError | LimitError, number: int = 0) -> Failed:
    """Memory that cannot be had; which of them, a LimitError says."""
    said = f": {error}" if str(error) else ""
    reason = f"it takes more than {limits.memory_bytes} bytes of memory{said}"
    return Failed(Outcome.MEMORY, reason, number)


def reference(
    subject: Subject, kind: Kind, arguments: Arguments, limits: Limits, say: Say
) -> Expected | Failed:
    with quiet.together(time.monotonic() + limits.quiet_seconds) as may_run:
        if not may_run:
            return not_quiet(limits)
        say(Begun())
        try:
            sizes = dict(subject.sizes)
            return expected(subject.func, subject.target, sizes, arguments, kind)
        except (MemoryError, LimitError) as error:
            return _over(limits, error)
        except TensorcError as error:
            return Failed(Outcome.RUN_ERROR, str(error))


def without_reference(answer: object) -> Failed:
    """Why a task has no expected results, so that none of its candidates can be checked."""
    match answer:
        case Failed(outcome=outcome, reason=reason):
            return Failed(outcome, f"the plain nest, which results are compared with: {reason}")
        case TimedOut(seconds=seconds):
            reason = f"the plain nest, which results are compared with, takes over {seconds:g} s"
            return Failed(Outcome.RUN_TIMEOUT, reason)
    return Failed(Outcome.CRASH, f"the plain nest, which results are compared with: {answer}")


def run(job: Run, prepared: Prepared, say: Say) -> Timed | Failed:
    config.num_threads = job.threads
    with quiet.alone(time.monotonic() + job.limits.quiet_seconds) as may_run:
        if not may_run:
            return not_quiet(job.limits)
        say(Begun())
        try:
            return _checked_and_timed(job, prepared)
        except (MemoryError, LimitError) as error:
            return _over(job.limits, error)
        except TensorcError as error:
            return Failed(Outcome.RUN_ERROR, str(error))


def _checked_and_timed(job: Run, prepared: Prepared) -> Timed | Failed:
    check_runs_here(job.subject.target)
    trial = Trial(job.built, job.subject.func.params, dict(job.subject.sizes))
    before, after = KINDS
    reason = _wrong(trial, prepared, before)
    if reason:
        return Failed(Outcome.WRONG, f"before timing: {reason}")
    times, raced = samples(trial.load(prepared.arguments[after]), job.limits, job.incumbent)
    reason = trial.check(prepared.expected[after])
    if reason:
        return Failed(Outcome.WRONG, f"after timing: {reason}")
    return Timed((times,), raced)


def _wrong(trial: Trial, prepared: Prepared, kind: Kind) -> str:
    trial.load(prepared.arguments[kind], copies=1)
    return trial.check(prepared.expected[kind])


def compare(job: Compare, prepared: Prepared, say: Say) -> Timed | Failed:
    """Every round times every candidate once, in an order drawn anew."""
    config.num_threads = job.threads
    with quiet.alone(time.monotonic() + job.limits.quiet_seconds) as may_run:
        if not may_run:
            return not_quiet(job.limits)
        number, clocks = 0, []
        before, after = KINDS
        try:
            trials = []
            for number, built in enumerate(job.built):
                say(Begun(number))
                trial = Trial(built, job.subject.func.params, dict(job.subject.sizes))
                reason = _wrong(trial, prepared, before)
                if reason:
                    return Failed(Outcome.WRONG, f"before timing: {reason}", number)
                clocks.append(Clock(trial.load(prepared.arguments[after])))
                trials.append(trial)
        except (MemoryError, LimitError) as error:
            return _over(job.limits, error, number)
        except TensorcError as error:
            return Failed(Outcome.RUN_ERROR, str(error), number)
        times = _in_turns(clocks, job.rounds, say)
        for number, trial in enumerate(trials):
            say(Begun(number))
            reason = trial.check(prepared.expected[after])
            if reason:
                return Failed(Outcome.WRONG, f"after timing: {reason}", number)
        return Timed(times)


def _in_turns(clocks: list[Clock], rounds: int, say: Say) -> tuple[tuple[float, ...], ...]:
    draw = random.Random(rounds)
    times: list[list[float]] = [[] for _ in clocks]
    for _ in range(rounds):
        for number in draw.sample(range(len(clocks)), len(clocks)):
            say(Begun(number))
            times[number].append(clocks[number].sample())
    return tuple(map(tuple, times))


def not_quiet(limits: Limits) -> Failed:
    reason = f"other measurements kept the machine busy for {limits.quiet_seconds:g} s"
    return Failed(Outcome.LOST, reason)


def cap_memory(count: int) -> None:
    """Let this process take so many bytes more than it has now, where the system can tell."""
    if sys.platform != "linux":
        return
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = pages * resource.getpagesize() + count
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
