"""Networks whose tasks run as kernels for a CUDA device."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from tensorc.codegen.pipeline import Options
from tensorc.errors import ArgumentError, LimitError, ScheduleError
from tensorc.graph.backend import Backend, Runner, declared_shape
from tensorc.graph.graph import Array
from tensorc.graph.kernels import Scheduler, UnscheduledWarning
from tensorc.ir.nodes import Buffer, Func
from tensorc.ir.words import kind_of
from tensorc.runtime.cuda import ArrayDevice, CudaModule, device_named
from tensorc.schedule.schedule import Schedule
from tensorc.space.default import default_schedule
from tensorc.space.grid import over_the_grid
from tensorc.target import Target


def on_device(target: Target, device: str | None, scheduler: str | Scheduler) -> Backend:
    """Tasks as kernels that run on a device which uses the arrays of the CPU in place.

    Raises:
        ArgumentError: there is no such device, or its memory is another one, or no scheduler of
            this name.
    """
    if device != "emulated":
        reason = f"got {device!r}; networks for a cuda target run on 'emulated' alone so far"
        raise ArgumentError("device", reason)
    if not callable(scheduler) and scheduler not in ("default", "none"):
        legal = "default, none, or a function from a Func to a Schedule"
        raise ArgumentError("scheduler", f"there is no scheduler {scheduler!r}; legal: {legal}")
    where = device_named(device)

    def backend(func: Func) -> Runner:
        return _Task(func, target, where, scheduler).run

    return backend


class _Task:
    """A task, compiled when it is made."""

    def __init__(
        self, func: Func, target: Target, device: ArrayDevice, scheduler: str | Scheduler
    ) -> None:
        nest = scheduled(func, target, scheduler)
        self.module = CudaModule(nest, target, Options(), (), device)
        self.module.ptx()
        self.shapes = [declared_shape(p.value) for p in func.params if isinstance(p.value, Buffer)]

    def run(self, arrays: Sequence[Array]) -> None:
        pairs = zip(arrays, self.shapes, strict=True)
        self.module(*(array.reshape(shape) for array, shape in pairs))


def scheduled(func: Func, target: Target, scheduler: str | Scheduler) -> Func:
    """A task's nest on the grid: by the scheduler, else by the rules for any program.

    Raises:
        ArgumentError: a scheduler of one's own gives no schedule.
    """
    if callable(scheduler):
        made = scheduler(func)
        nest = made if isinstance(made, Func) else getattr(made, "func", None)
        if not isinstance(nest, Func):
            reason = f"it gave {kind_of(made)}; needed a Schedule or a Func"
            raise ArgumentError("scheduler", reason)
        return nest
    if scheduler == "default":
        try:
            return default_schedule(func, target).func
        except (ScheduleError, LimitError) as error:
            message = f"the task {func.name} runs by the rules for any program: {error}"
            warnings.warn(message, UnscheduledWarning, stacklevel=4)
    plain = Schedule(func, target)
    over_the_grid(plain)
    return plain.func
