"""Measuring through an executor: other processes or machines, each of which measures locally.

What is sent is one function with plain data. Each worker keeps one `LocalMeasurer` between calls,
so candidates are built and run in killable processes of the worker, one at a time on its machine.
"""

from __future__ import annotations

import atexit
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Executor, Future
from types import TracebackType
from typing import Any, Self

from tensorc.errors import ArgumentError
from tensorc.runtime.measure.candidate import Candidate, Limits, Measurer, Standing
from tensorc.runtime.measure.failures import MeasureError
from tensorc.runtime.measure.jobs import Failed
from tensorc.runtime.measure.local import (
    LocalMeasurer,
    check,
    check_finalists,
    record_of,
    standings,
)
from tensorc.runtime.measure.record import Outcome, Record

DASK = "dask://"
CONNECT_SECONDS = 10.0
LOST_SECONDS = 30.0
"""A scheduler that cannot be reached for so long is gone."""


def measurer(
    executor: str | Executor = "local", limits: Limits | None = None, **options: Any
) -> Measurer:
    """A measurer.

    Args:
        executor: "local" for this machine; "dask://HOST:PORT" for the workers of a Dask scheduler,
            which need tensorc; or any executor of `concurrent.futures`.
        limits: what a candidate may take.
        options: of `LocalMeasurer`, for "local" alone.

    Raises:
        ArgumentError: the executor is none of these.
        MeasureError: Dask is not installed, or its scheduler does not answer.
    """
    if executor == "local":
        return LocalMeasurer(limits, **options)
    if options:
        raise ArgumentError("options", f"{', '.join(options)}: these are for the executor 'local'")
    if isinstance(executor, str) and executor.startswith(DASK):
        return DaskMeasurer(executor.removeprefix(DASK), limits)
    if isinstance(executor, Executor):
        return ExecutorMeasurer(executor, limits)
    reason = f"got {executor!r:.80}; legal: 'local', 'dask://HOST:PORT', or an Executor"
    raise ArgumentError("executor", reason)


class ExecutorMeasurer:
    """A `Measurer` on the workers of an executor, which stays the caller's to shut down.

    Candidates go out one by one, each to be raced against the incumbent that was known when the
    call began, since no worker knows of the others.
    """

    def __init__(self, executor: Executor, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._executor: Executor = executor

    def measure(
        self, candidates: Sequence[Candidate], incumbent: float = math.inf
    ) -> Iterator[Record]:
        """See `Measurer.measure`."""
        listed = list(candidates)
        for candidate in listed:
            check(candidate)
        return self._records(listed, incumbent)

    def _records(self, listed: list[Candidate], incumbent: float) -> Iterator[Record]:
        futures = [self._submit(_measured, c, incumbent, self.limits) for c in listed]
        lost = ""
        try:
            for candidate, future in zip(listed, futures, strict=True):
                found = future if isinstance(future, str) else self._result(future)
                if isinstance(found, str):
                    lost = lost or found
                    yield record_of(candidate, Failed(Outcome.LOST, found))
                else:
                    yield found
        finally:
            for future in futures:
                if not isinstance(future, str):
                    future.cancel()
        if lost:
            raise MeasureError(f"the executor lost candidates: {lost}")

    def _submit(self, work: Callable[..., Any], *arguments: object) -> Future[Any] | str:
        """A future, or why there is none."""
        try:
            return self._executor.submit(work, *arguments)
        except RuntimeError as error:
            # What executors raise that are shut down or broken.
            return str(error) or type(error).__name__

    def _result(self, future: Future[Any]) -> Any:
        """What came of a future; a text if it was lost, which says why."""
        try:
            error = future.exception()
        except CancelledError:
            return "it was cancelled"
        if error is not None:
            return f"{type(error).__name__}: {error}"
        return future.result()

    def compare(self, candidates: Sequence[Candidate], rounds: int = 20) -> tuple[Standing, ...]:
        """See `Measurer.compare`: one worker times them all."""
        listed = check_finalists(candidates, rounds)
        future = self._submit(_compared, listed, rounds, self.limits)
        found = future if isinstance(future, str) else self._result(future)
        if isinstance(found, str):
            raise MeasureError(f"the executor lost the comparison: {found}")
        return standings([standing.record for standing in found])

    def close(self) -> None:
        """Nothing: the executor is the caller's."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class DaskMeasurer(ExecutorMeasurer):
    """A `Measurer` on the workers of a Dask scheduler (https://distributed.dask.org).

    Candidates that a worker dies with are given to others; those that no worker is left for, or
    that a scheduler goes away with, are recorded as lost.
    """

    def __init__(self, address: str, limits: Limits | None = None) -> None:
        try:
            import distributed
        except ImportError:
            raise MeasureError("Dask is not installed: pip install 'tensorc[dask]'") from None
        try:
            self._client = distributed.Client(
                f"tcp://{address}", timeout=CONNECT_SECONDS, set_as_default=False
            )
        except (OSError, ValueError) as error:
            reason = f"the Dask scheduler at {address!r} does not answer: {error}"
            raise MeasureError(reason) from None
        super().__init__(self._client.get_executor(pure=False), limits)

    def _result(self, future: Future[Any]) -> Any:
        # A client waits for ever for results that its scheduler took along.
        missing = 0.0
        while not future.done():
            try:
                error = future.exception(timeout=1.0)
            except TimeoutError:
                alive = self._client.status == "running"
                missing = 0.0 if alive else missing + 1.0
                if missing >= LOST_SECONDS:
                    return "the Dask scheduler is gone"
            except CancelledError:
                return "it was cancelled, as by a Dask scheduler that goes away"
            else:
                if error is not None:
                    return f"{type(error).__name__}: {error}"
        return super()._result(future)

    def close(self) -> None:
        """Leave the scheduler, which goes on."""
        self._client.close(timeout=1.0)


# On a worker --------------------------------------------------------------------------------------

_mine: dict[Limits, LocalMeasurer] = {}
_using = threading.Lock()


def _own(limits: Limits) -> LocalMeasurer:
    """This worker's measurer, made at the first call and ended with the worker."""
    if limits not in _mine:
        _mine[limits] = LocalMeasurer(limits, builders=1)
        atexit.register(_mine[limits].close)
    return _mine[limits]


def _measured(candidate: Candidate, incumbent: float, limits: Limits) -> Record:
    with _using:
        (record,) = _own(limits).measure([candidate], incumbent)
    return record


def _compared(candidates: Sequence[Candidate], rounds: int, limits: Limits) -> tuple[Standing, ...]:
    with _using:
        return _own(limits).compare(candidates, rounds)
