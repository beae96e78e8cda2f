"""Tasks to machine code: scheduled, compiled, and kept in the compile cache.

What a scheduler made of a task is kept as text, beside the code, so that a network that was
compiled before is scheduled by nobody. A task that the schedule database knows (`config.database`)
takes its best schedule from there, if it still applies. What is
missing is compiled by this process and by helpers beside it: scheduling is Python and LLVM takes
one thread at a time, so threads would not do.

Where the language model is the default (`config.scheduler`), it is never what a compilation fails
by: without weights that can be used, and for tasks that it cannot write, the rules schedule, and
one warning says so.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import subprocess
import sys
import threading
import warnings
from collections import defaultdict, deque
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

# From a function to its schedule.
Scheduler: TypeAlias = Callable[[Func], Scheduled | Func]

DEFAULT, RULES, TLM, NONE = "default", "rules", "tlm", "none"
NAMES = (DEFAULT, *config.SCHEDULERS)
MOST_HELPERS = 8
# A helper takes about as long to start as two tasks take to compile; with a network to load, ten.
TASKS_PER_HELPER, TASKS_PER_WRITER = 3, 12
# So many tasks a warning names, and so many reasons it gives.
MOST_NAMED = 3


class UnscheduledWarning(UserWarning):
    """The scheduler failed on a task, which runs as slowly as its plain nest."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """A compiled task.

    `packs` bring constant parameters, by name, into the layout that the code wants: each takes the
    constant as it is, or as the pack before it left it, and gives another one. `reason` says why
    the rules schedule it and not the language model, which was asked to.
    """

    module: Module
    packs: tuple[tuple[str, Module], ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Scheduling:
    """A task's nest as scheduled, how constants are packed for it, and `reason` as of `Kernel`."""

    func: Func
    packs: tuple[tuple[str, Func], ...] = ()
    reason: str = ""


def build_kernels(
    funcs: Sequence[Func], target: Target, scheduler: str | Scheduler = DEFAULT
) -> list[Kernel]:
    """Compile tasks, one kernel for each.

    Raises:
        ArgumentError: the scheduler is neither a known name nor callable, or gives no schedule; or
            it is "tlm", and what runs the model is not installed.
        CompileError: the code generator or LLVM refuses a task.
        TargetError: the target is not a CPU that LLVM knows.
        RecordsError: `config.database` cannot be read.
        WeightsError: it is "tlm", and its weights cannot be used.
    """
    check_scheduler(scheduler, NAMES)
    if not funcs:
        return []
    chosen = scheduler if callable(scheduler) else named(scheduler)
    if isinstance(chosen, str):
        _compile_aside(funcs, target, chosen)
    made = [make_kernel(func, target, chosen) for func in funcs]
    _warn_of_rules(funcs, made)
    return made


def check_scheduler(scheduler: str | Scheduler, names: Sequence[str]) -> None:
    """Raises ArgumentError for what is neither one of the names nor a function."""
    if not callable(scheduler) and scheduler not in names:
        legal = f"{', '.join(names)}, or a function from a Func to a Schedule"
        raise ArgumentError("scheduler", f"there is no scheduler {scheduler!r}; legal: {legal}")


def named(scheduler: str) -> str:
    """Whom a name means: "default" is `config.scheduler`, or, with a warning, the rules where that
    is the language model and its weights cannot be used."""
    if scheduler != DEFAULT:
        return scheduler
    if config.scheduler == TLM:
        from tensorc.tlm.failures import WeightsError
        from tensorc.tlm.schedule import UnwrittenWarning, digest

        try:
            digest()
        except (WeightsError, ArgumentError) as error:
            message = f"all tasks are scheduled by rules: {error}"
            warnings.warn(message, UnwrittenWarning, stacklevel=3)
            return RULES
    return config.scheduler


def _warn_of_rules(funcs: Sequence[Func], made: Sequence[Kernel]) -> None:
    """One warning of all tasks that the language model was asked to write and did not."""
    found: dict[str, list[str]] = defaultdict(list)
    for func, kernel in zip(funcs, made, strict=True):
        if kernel.reason:
            found[kernel.reason].append(func.name)
    if not found:
        return
    from tensorc.tlm.schedule import UnwrittenWarning

    count = sum(map(len, found.values()))
    told = [f"{_listed(names)}: {reason}" for reason, names in found.items()][:MOST_NAMED]
    if len(found) > MOST_NAMED:
        told.append("...")
    head = f"{count} of {len(funcs)} tasks are scheduled by rules"
    warnings.warn(f"{head}: {'; '.join(told)}", UnwrittenWarning, stacklevel=3)


def _listed(names: Sequence[str]) -> str:
    more = [f"{len(names) - MOST_NAMED} more"] if len(names) > MOST_NAMED else []
    return ", ".join([*names[:MOST_NAMED], *more])


def make_kernel(func: Func, target: Target, scheduler: str | Scheduler) -> Kernel:
    """The kernel of one task, from the cache if it was compiled before."""
    if isinstance(scheduler, str):
        plan = _kept_schedule(func, target, scheduler)
    else:
        plan = _parts(scheduler(func))
    # Not by `build`, which looks at accesses once more: a schedule keeps them within bounds.
    packed = tuple((name, Module(pack, target, Options())) for name, pack in plan.packs)
    return Kernel(Module(plan.func, target, Options()), packed, plan.reason)


def _parts(made: object, reason: str = "") -> Scheduling:
    if isinstance(made, Schedule):
        return Scheduling(made.func, made.state.packs, reason)
    func = made if isinstance(made, Func) else getattr(made, "func", None)
    if not isinstance(func, Func):
        reason = f"it gave {kind_of(made)}; needed a Schedule or a Func"
        raise ArgumentError("scheduler", reason)
    return Scheduling(func)


# Schedulers by name ------------------------------------------------------------------------------


def _rules(func: Func, target: Target) -> Scheduling:
    from tensorc.space.default import default_schedule

    recorded = _recorded(func, target)
    return _parts(default_schedule(func, target) if recorded is None else recorded)


def _recorded(func: Func, target: Target) -> Schedule | None:
    """The best schedule that the database knows."""
    known = _database()
    return None if known is None else known.schedule(func, target)


def _database() -> Database | None:
    if config.database is None:
        return None
    from tensorc.search.database import database

    return database()


def _none(func: Func, target: Target) -> Scheduling:
    del target
    return Scheduling(func)


def _tlm(func: Func, target: Target) -> Scheduling:
    from tensorc.space.default import default_schedule
    from tensorc.tlm import schedule

    recorded = _recorded(func, target)
    if recorded is not None:
        return _parts(recorded)
    writer = schedule.opened()
    try:
        return _parts(schedule.written(writer, func, target))
    except schedule.REFUSALS as error:
        return _parts(default_schedule(func, target), str(error))


_NAMED: dict[str, Callable[[Func, Target], Scheduling]] = {RULES: _rules, NONE: _none, TLM: _tlm}


# The cache ---------------------------------------------------------------------------------------


def _kept_schedule(func: Func, target: Target, scheduler: str) -> Scheduling:
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
        plan = _NAMED[scheduler](func, target)
    except (ScheduleError, LimitError) as error:
        message = f"the task {func.name} runs unscheduled: {error}"
        warnings.warn(message, UnscheduledWarning, stacklevel=4)
        return Scheduling(func)
    store.put(key, _packed(plan))
    return plan


def _packed(plan: Scheduling) -> bytes:
    """A schedule as text. Why the rules made it stays known, so that every compilation says so."""
    packs = [(name, print_func(pack)) for name, pack in plan.packs]
    kept = {"nest": print_func(plan.func), "packs": packs, "reason": plan.reason}
    return json.dumps(kept).encode()


def _unpacked(payload: bytes) -> Scheduling | None:
    try:
        kept = json.loads(payload)
        packs = tuple((str(name), parse(text)) for name, text in kept["packs"])
        return Scheduling(parse(kept["nest"]), packs, str(kept["reason"]))
    except (KeyError, ValueError, TypeError, ParseError):
        return None


def _key(func: Func, target: Target, scheduler: str) -> CacheKey:
    known = _database() if scheduler in (RULES, TLM) else None
    records = () if known is None else known.known(func, target)
    return CacheKey.of(
        print_func(func),
        target,
        scheduler=scheduler,
        schedulers=_sources(),
        records="\n".join(record.steps for record in records),
        weights=_weights(config.num_threads) if scheduler == TLM else "",
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
    each = TASKS_PER_WRITER if scheduler == TLM else TASKS_PER_HELPER
    helpers = min(config.num_threads - 1, len(missing) // each, MOST_HELPERS)
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
            "data_dir": str(config.data_dir),
            "tlm_network": config.tlm_network,
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
        names = ("cache_dir", "database", "num_threads", "data_dir", "tlm_network")
        with config.scope(**{name: request[name] for name in names}):
            target = Target.from_json(request["target"])
            make_kernel(parse(request["func"]), target, request["scheduler"])
        print("done", flush=True)
