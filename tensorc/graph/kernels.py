"""Tasks to machine code: scheduled, compiled, and kept in the compile cache.

What a scheduler made of a task is kept as text, beside the code, so that a network that was
compiled before is scheduled by nobody. A task that the schedule database knows (`config.database`)
takes its best schedule from there, if it still applies, in place of the rule-based one. What is
missing is compiled by this process and by helpers beside it: scheduling is Python and LLVM takes
one thread at a time, so threads would not do.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import subprocess
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import tensorc
from tensorc import config
from tensorc.codegen.pipeline import Options
from tensorc.errors import ArgumentError, CacheWarning, LimitError, ParseError, ScheduleError
from tensorc.ir.nodes import Func
from tensorc.ir.parse import parse
from tensorc.ir.print import print_func
from tensorc.ir.words import kind_of
from tensorc.runtime.cache import CacheKey, cache_in
from tensorc.runtime.module import Module, Scheduled
from tensorc.schedule.schedule import Schedule
from tensorc.target import Target

if TYPE_CHECKING:
    from tensorc.search.database import Database

# From a function to its schedule; "default" is the rule-based one of the CPU templates.
Scheduler: TypeAlias = Callable[[Func], Scheduled | Func]

MOST_HELPERS = 8
# A helper takes about as long to start as two tasks take to compile.
TASKS_PER_HELPER = 3


class UnscheduledWarning(UserWarning):
    """The scheduler failed on a task, which runs as slowly as its plain nest."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A compiled task.

    `packs` bring constant parameters, by name, into the layout that the code wants: each takes the
    constant as it is, or as the pack before it left it, and gives another one.
    """

    module: Module
    packs: tuple[tuple[str, Module], ...] = ()


def build_kernels(
    funcs: Sequence[Func], target: Target, scheduler: str | Scheduler = "default"
) -> list[Kernel]:
    """Compile tasks, one kernel for each.

    Raises:
        ArgumentError: the scheduler is neither a known name nor callable, or gives no schedule.
        CompileError: the code generator or LLVM refuses a task.
        TargetError: the target is not a CPU that LLVM knows.
        RecordsError: `config.database` cannot be read.
    """
    if not callable(scheduler) and scheduler not in _NAMED:
        legal = f"{', '.join(_NAMED)}, or a function from a Func to a Schedule"
        raise ArgumentError("scheduler", f"there is no scheduler {scheduler!r}; legal: {legal}")
    if isinstance(scheduler, str):
        _compile_aside(funcs, target, scheduler)
    return [make_kernel(func, target, scheduler) for func in funcs]


def make_kernel(func: Func, target: Target, scheduler: str | Scheduler) -> Kernel:
    """The kernel of one task, from the cache if it was compiled before."""
    if isinstance(scheduler, str):
        nest, packs = _kept_schedule(func, target, scheduler)
    else:
        nest, packs = _parts(scheduler(func))
    # Not by `build`, which looks at accesses once more: a schedule keeps them within bounds.
    packed = tuple((name, Module(pack, target, Options())) for name, pack in packs)
    return Kernel(Module(nest, target, Options()), packed)


Nest: TypeAlias = tuple[Func, tuple[tuple[str, Func], ...]]


def _parts(made: object) -> Nest:
    if isinstance(made, Schedule):
        return made.func, made.state.packs
    func = made if isinstance(made, Func) else getattr(made, "func", None)
    if not isinstance(func, Func):
        reason = f"it gave {kind_of(made)}; needed a Schedule or a Func"
        raise ArgumentError("scheduler", reason)
    return func, ()


# Schedulers by name ------------------------------------------------------------------------------


def _default(func: Func, target: Target) -> Nest:
    from tensorc.space.default import default_schedule

    known = _database()
    found = None if known is None else known.schedule(func, target)
    return _parts(default_schedule(func, target) if found is None else found)


def _database() -> Database | None:
    if config.database is None:
        return None
    from tensorc.search.database import database

    return database()


def _none(func: Func, target: Target) -> Nest:
    del target
    return func, ()


def _tlm(func: Func, target: Target) -> Nest:
    from tensorc.tlm.schedule import named

    return _parts(named(func, target))


_NAMED: dict[str, Callable[[Func, Target], Nest]] = {
    "default": _default,
    "none": _none,
    "tlm": _tlm,
}


# The cache ---------------------------------------------------------------------------------------


def _kept_schedule(func: Func, target: Target, scheduler: str) -> Nest:
    store = cache_in(config.cache_dir / "schedules")
    key = _key(func, target, scheduler)
    payload = store.get(key)
    if payload is not None:
        found = _unpacked(payload)
        if found is not None:
            return found
        message = f"a cache entry for the schedule of {func.name} is damaged; it is made anew"
        warnings.warn(message, CacheWarning, stacklevel=4)
    try:
        nest, packs = _NAMED[scheduler](func, target)
    except (ScheduleError, LimitError) as error:
        message = f"the task {func.name} runs unscheduled: {error}"
        warnings.warn(message, UnscheduledWarning, stacklevel=4)
        return func, ()
    texts = [print_func(nest), *(text for name, pack in packs for text in (name, print_func(pack)))]
    store.put(key, json.dumps(texts).encode())
    return nest, packs


def _unpacked(payload: bytes) -> Nest | None:
    try:
        first, *rest = json.loads(payload)
        packs = zip(rest[::2], map(parse, rest[1::2]), strict=True)
        return parse(first), tuple(packs)
    except (ValueError, TypeError, ParseError):
        return None


def _key(func: Func, target: Target, scheduler: str) -> CacheKey:
    known = _database() if scheduler == "default" else None
    records = () if known is None else known.known(func, target)
    return CacheKey.of(
        print_func(func),
        target,
        scheduler=scheduler,
        schedulers=_sources(),
        records="\n".join(record.steps for record in records),
        weights=_weights(config.num_threads) if scheduler == "tlm" else "",
    )


def _weights(threads: int) -> str:
    """What the language model's schedules depend on beside the task."""
    from tensorc.tlm.schedule import digest

    return f"{digest()} {threads}"


@cache
def _sources() -> str:
    """A hash of the sources that make schedules."""
    root = Path(tensorc.__file__).parent
    digest = hashlib.sha256()
    for folder in ("analysis", "schedule", "space", "tlm"):
        for path in sorted((root / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


# Helpers -----------------------------------------------------------------------------------------


def _compile_aside(funcs: Sequence[Func], target: Target, scheduler: str) -> None:
    """Bring what the cache lacks into it, with helper processes when there is much."""
    store = cache_in(config.cache_dir / "schedules")
    missing = [f for f in dict.fromkeys(funcs) if store.get(_key(f, target, scheduler)) is None]
    helpers = min(config.num_threads - 1, len(missing) // TASKS_PER_HELPER, MOST_HELPERS)
    if helpers < 1 or not sys.executable:
        return
    # The longest programs take longest: begun last, one would be waited for alone.
    queue = deque(sorted(missing, key=lambda func: -len(print_func(func))))
    started = [_Helper(queue, target, scheduler) for _ in range(helpers)]
    try:
        while queue:
            make_kernel(queue.popleft(), target, scheduler)
    except IndexError:
        pass  # a helper took the last one
    finally:
        queue.clear()
        for helper in started:
            helper.finish()


class _Helper:
    """A process that compiles what a thread of ours takes from the queue and hands to it."""

    def __init__(self, queue: deque[Func], target: Target, scheduler: str):
        self.queue = queue
        self.settings = {
            "target": target.to_json(),
            "scheduler": scheduler,
            "cache_dir": str(config.cache_dir),
            "database": None if config.database is None else str(config.database),
            "num_threads": config.num_threads,
        }
        program = (
            f"import sys; sys.path[:] = {sys.path!r}\n"
            "from tensorc.graph.kernels import serve\nserve()"
        )
        self.process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # what it fails at, this process meets again
            text=True,
        )
        self.thread = threading.Thread(target=self._feed, daemon=True)
        self.thread.start()

    def _feed(self) -> None:
        """Hand over tasks one by one. A task that its process fails at is compiled by ours later,
        which then says what is wrong."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        while True:
            try:
                func = self.queue.popleft()
                request = json.dumps({**self.settings, "func": print_func(func)})
                self.process.stdin.write(request + "\n")
                self.process.stdin.flush()
            except (IndexError, OSError):
                return
            if not self.process.stdout.readline():
                return

    def finish(self) -> None:
        """Wait for the task at hand, then for the end of the process."""
        self.thread.join()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        # What a dead process left unread in its pipe cannot be flushed.
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


def serve() -> None:
    """What a helper runs: one request a line on standard input, one answer each on the output."""
    for line in sys.stdin:
        request = json.loads(line)
        names = ("cache_dir", "database", "num_threads")
        with config.scope(**{name: request[name] for name in names}):
            target = Target.from_json(request["target"])
            make_kernel(parse(request["func"]), target, request["scheduler"])
        print("done", flush=True)
