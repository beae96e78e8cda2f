"""Schedules that the model writes: one generation a task, and nothing measured."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Callable
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from tensorc import config
from tensorc.errors import ArgumentError, LimitError, ScheduleError, TensorcError
from tensorc.ir.nodes import Func
from tensorc.schedule.schedule import Schedule
from tensorc.space.default import default_schedule
from tensorc.space.space import Space
from tensorc.target import Target
from tensorc.tlm import shipped
from tensorc.tlm.failures import LengthError, VocabularyError, WeightsError, missing
from tensorc.tlm.sentence import machine_of, prompt
from tensorc.tlm.vocabulary import vocabulary

if TYPE_CHECKING:
    from tensorc.tlm.decode import Writer

VARIABLE = "TENSORC_TLM"
"""The environment variable that names the file of weights."""


REFUSALS: tuple[type[TensorcError], ...] = (
    ArgumentError,
    LengthError,
    VocabularyError,
    ScheduleError,
    LimitError,
)
"""Why a task cannot be written: it is none, too long, or beyond the language; or a step that was
written is refused."""


class UnwrittenWarning(UserWarning):
    """The model cannot be used for some tasks, which the rule-based scheduler takes."""


def scheduler(
    target: str | Target = "cpu",
    *,
    weights: str | os.PathLike[str] | None = None,
    threads: int | None = None,
    count: int | None = None,
) -> Callable[[Func], Schedule]:
    """What `tc.compile` takes as its `scheduler`: for each task the schedule that the model writes.

    A task that it cannot read gets the schedule of the rules, with an `UnwrittenWarning`.

    Args:
        target: the machine that code is made for.
        weights: the file; by default as `place` says.
        threads: that the tasks run on; `config.num_threads` by default.
        count: sentences that are written for one that is taken, 16 by default; with 1 each
            decision is the likeliest.

    Raises:
        ArgumentError: `config.tlm_network` is "torch", and torch or safetensors is not installed.
        TargetError: the target is not understood.
        WeightsError: there are no weights, or they cannot be used.
    """
    machine = Target.parse(target)
    writer = opened(weights)

    def scheduled(func: Func) -> Schedule:
        try:
            return written(writer, func, machine, threads, count)
        except REFUSALS as error:
            message = f"the task {func.name} is scheduled by rules: {error}"
            warnings.warn(message, UnwrittenWarning, stacklevel=2)
        return default_schedule(func, machine)

    return scheduled


def written(
    writer: Writer,
    func: Func,
    target: Target,
    threads: int | None = None,
    count: int | None = None,
) -> Schedule:
    """The schedule of one task, see `scheduler`. Raises one of `REFUSALS`."""
    from tensorc.tlm.decode import COUNT

    if target.kind != "cpu":
        raise VocabularyError(f"the language describes CPUs, not {target.describe()}")
    threads = config.num_threads if threads is None else threads
    space, read = Space(func, machine_of(target, threads)), prompt(func, target, threads)
    found = writer.best(space, read, COUNT if count is None else count)
    schedule = Schedule(func, target)
    schedule.replay(found.sentence.steps)
    return schedule


def digest() -> str:
    """SHA-256 of the weights that "tlm" uses: schedules that are kept are of these. They are whole
    and of this vocabulary; nothing is loaded that runs them.

    Raises:
        ArgumentError, WeightsError: as `scheduler`.
    """
    if config.tlm_network == "torch":
        for name in ("torch", "safetensors"):
            if find_spec(name) is None:
                raise missing(name)
    return _digest(*_stamp(place()))


def place(weights: str | os.PathLike[str] | None = None) -> Path:
    """The file of weights: the one given, or what `TENSORC_TLM` names, or those that were adapted
    to this machine, or those that the package comes with.

    Raises:
        WeightsError: there are none of these.
    """
    found = weights or os.environ.get(VARIABLE)
    if found:
        return Path(found)
    for own in (adapted(), shipped.weights()):
        if own.exists():
            return own
    reason = f"there are no weights: set {VARIABLE} to a file that `tensorc train` made"
    raise WeightsError("weights", reason)


def adapted() -> Path:
    """Where `tensorc adapt` keeps the weights of this machine, and of this vocabulary."""
    known = json.dumps([Target.parse("cpu").to_json(), vocabulary().hash], sort_keys=True)
    name = hashlib.sha256(known.encode()).hexdigest()[:12]
    folder: Path = config.data_dir
    return folder / "tlm" / f"{name}.safetensors"


def opened(weights: str | os.PathLike[str] | None = None) -> Writer:
    """The model of a file, run by `config.tlm_network`, read again when the file changes. Raises as
    `scheduler`."""
    return _opened(*_stamp(place(weights)), config.tlm_network)


def _stamp(file: Path) -> tuple[str, int, int]:
    """What changes when a file does."""
    try:
        found = file.stat()
    except OSError as error:
        raise WeightsError(str(file), f"cannot be read: {error.strerror}") from None
    return str(file), found.st_mtime_ns, found.st_size


@lru_cache(maxsize=2)
def _opened(path: str, changed: int, size: int, network: str) -> Writer:
    del changed, size
    from tensorc.tlm.decode import Writer
    from tensorc.tlm.weights import load, load_native

    return Writer(load_native(path) if network == "native" else load(path).model)


@lru_cache(maxsize=2)
def _digest(path: str, changed: int, size: int) -> str:
    del changed, size
    from tensorc.tlm.weights import checked

    return checked(path)
