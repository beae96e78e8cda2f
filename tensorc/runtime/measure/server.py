"""What a measurer's process runs: jobs, one after the other, until the pipe is closed.

Builds happen in the process itself, so that what analyses remember serves the next candidate of the
task. Runs happen in a fork of it, one for each candidate: a fork takes milliseconds where a new
process takes most of a second, what a candidate breaks is gone with it, and one that crashes or
hangs costs no new start. The process that forks loads no kernel and has no other thread.
"""

from __future__ import annotations

import math
import os
import pickle
import signal
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any

from tensorc.runtime import parallel
from tensorc.runtime.measure import quiet
from tensorc.runtime.measure.candidate import Limits
from tensorc.runtime.measure.expected import Expected
from tensorc.runtime.measure.inputs import KINDS, Kind, inputs
from tensorc.runtime.measure.jobs import (
    Answer,
    Begun,
    Build,
    Compare,
    Died,
    Failed,
    Ready,
    Run,
    Subject,
    TimedOut,
)
from tensorc.runtime.measure.memory import Arguments, task_bytes
from tensorc.runtime.measure.pipe import ClosedError, LateError, Receiver, send
from tensorc.runtime.measure.record import Outcome
from tensorc.runtime.measure.work import (
    Prepared,
    Say,
    build,
    cap_memory,
    compare,
    not_quiet,
    reference,
    run,
    without_reference,
)

KEPT_BYTES = 64 << 20
"""Inputs and results of several tasks are kept up to this size; of a larger one, its own alone."""
_WATCH_SECONDS = 0.5
GRACE_SECONDS = 2
"""A job that is so much late is ended by the system, for want of anybody else: see `_alarm`."""


def main(requests: int, answers: int) -> None:
    """Serve until the other side of `requests` is closed."""
    # Whatever a kernel or a library prints must not get among the answers.
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    server = _Server(requests, answers)
    try:
        server.serve()
    except (ClosedError, SystemExit):
        # Nothing is left to be done for anybody; what runs on threads need not end.
        os._exit(0)


class _Server:
    def __init__(self, requests: int, answers: int):
        self._requests, self._answers = requests, answers
        self._receiver = Receiver(requests)
        self._subjects: OrderedDict[Subject, Prepared | Failed] = OrderedDict()
        # Compiled here, the thread pool's code is in every fork.
        parallel.address()

    def serve(self) -> None:
        send(self._answers, Ready())
        while True:
            try:
                job = self._receiver.receive()
            except (AttributeError, ImportError, pickle.UnpicklingError) as error:
                # Its `apply` is of a module that this process does not find.
                reason = f"the candidate cannot be loaded: {error}"
                send(self._answers, Failed(Outcome.BUILD_ERROR, reason))
                continue
            send(self._answers, self._answer(job))

    def _answer(self, job: Build | Run | Compare) -> Answer:
        if isinstance(job, Build):
            return self._build(job)
        prepared = self._prepared(job.subject, job.limits)
        if isinstance(prepared, Failed):
            return prepared
        work = (
            partial(run, job, prepared) if isinstance(job, Run) else partial(compare, job, prepared)
        )
        answer: Answer = self._forked(work, job.seconds, job.limits)
        return answer

    def _build(self, job: Build) -> Answer:
        _watch_parent()
        with quiet.together(time.monotonic() + job.limits.quiet_seconds) as may_build:
            if not may_build:
                return not_quiet(job.limits)
            _alarm(job.limits.build_seconds)
            try:
                return build(job, lambda thing: send(self._answers, thing))
            finally:
                signal.alarm(0)

    def _prepared(self, subject: Subject, limits: Limits) -> Prepared | Failed:
        """The inputs and the expected results of a task, computed in a fork the first time."""
        found = self._subjects.get(subject)
        if found is None:
            # Room first: the arrays of two large tasks are never here together.
            needed = 4 * task_bytes(subject.func.params, dict(subject.sizes))
            while self._subjects and self._kept() + needed > KEPT_BYTES:
                self._subjects.popitem(last=False)
            found = self._prepare(subject, limits)
            if isinstance(found, Failed) and found.outcome is Outcome.LOST:
                # The machine may be quiet the next time.
                return found
            self._subjects[subject] = found
        self._subjects.move_to_end(subject)
        return found

    def _kept(self) -> int:
        """The memory of what is kept, in bytes."""
        return sum(x.size for x in self._subjects.values() if isinstance(x, Prepared))

    def _prepare(self, subject: Subject, limits: Limits) -> Prepared | Failed:
        sizes = dict(subject.sizes)
        needed = task_bytes(subject.func.params, sizes)
        # A reference holds inputs, results, and both once more as f64.
        if 4 * needed > limits.memory_bytes:
            reason = f"the task's arrays have {needed} bytes; with {limits.memory_bytes} bytes of"
            return Failed(Outcome.MEMORY, f"{reason} memory at most a quarter of that can be run")
        arguments: dict[Kind, Arguments] = {
            kind: inputs(subject.func, sizes, kind, subject.seed) for kind in KINDS
        }
        results: dict[Kind, Expected] = {}
        for kind in KINDS:
            work = partial(reference, subject, kind, arguments[kind], limits)
            answer = self._forked(work, limits.reference_seconds, limits)
            if not isinstance(answer, Expected):
                return without_reference(answer)
            results[kind] = answer
        return Prepared(arguments, results)

    def _forked(self, work: Callable[[Say], object], seconds: float, limits: Limits) -> Any:
        """The result of `work` in a fork of this process, or what became of the fork."""
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            os.close(reading)
            # Its death is no business of those who wait at the pipes of this process.
            os.close(self._requests)
            os.close(self._answers)
            cap_memory(limits.memory_bytes)
            _alarm(limits.quiet_seconds + seconds)

            def say(thing: object) -> None:
                _alarm(seconds)
                send(writing, thing)

            # An error that is no candidate's ends the fork with a traceback.
            send(writing, work(say))
            os._exit(0)
        os.close(writing)
        try:
            return self._waited(reading, child, seconds, limits.quiet_seconds)
        finally:
            os.close(reading)

    def _waited(self, reading: int, child: int, seconds: float, quiet_seconds: float) -> Any:
        receiver = Receiver(reading, self._requests)
        number, limit = 0, quiet_seconds + seconds
        try:
            while True:
                thing = receiver.receive(time.monotonic() + limit)
                if not isinstance(thing, Begun):
                    os.waitpid(child, 0)
                    return thing
                number, limit = thing.number, seconds
        except ClosedError:
            return Died(os.waitpid(child, 0)[1], number)
        except (LateError, SystemExit) as end:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            if isinstance(end, SystemExit):
                raise
            return TimedOut(limit, number)


def _alarm(seconds: float) -> None:
    """Have the system end this process if it is late and nobody is left who would: its parents may
    have been killed, and native code need not let a thread of ours run."""
    signal.alarm(math.ceil(seconds) + GRACE_SECONDS)


_watching: list[threading.Thread] = []


def _watch_parent() -> None:
    """End this process, also in the middle of a build, when the one that started it is gone.

    Only processes that build have this thread: those that fork have no other than their first.
    """
    if _watching:
        return
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_WATCH_SECONDS)
        os.kill(os.getpid(), signal.SIGKILL)

    _watching.append(threading.Thread(target=watch, name="tensorc-watch", daemon=True))
    _watching[0].start()
