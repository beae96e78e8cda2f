"""Networks whose tasks run as kernels for a CUDA device."""

from __future__ import annotations

import warnings

from tensorc import config
from tensorc.codegen.pipeline import Options
from tensorc.errors import ArgumentError, LimitError, ScheduleError
from tensorc.graph.device_executor import DeviceExecutor
from tensorc.graph.graph import Graph
from tensorc.graph.kernels import (
    DEFAULT,
    NONE,
    RULES,
    Scheduler,
    UnscheduledWarning,
    check_scheduler,
)
from tensorc.graph.tasks import Partition
from tensorc.ir.nodes import Func
from tensorc.ir.words import kind_of
from tensorc.runtime.cuda import ArrayDevice, CudaModule, device_named
from tensorc.schedule.schedule import Schedule
from tensorc.space.default import default_schedule
from tensorc.space.grid import over_the_grid
from tensorc.target import Target


class Place:
    """A device on which networks run, and how they are scheduled for it.

    Args:
        target: a cuda target.
        device: "emulated", "cupy", or a device.
        scheduler: "rules", "none", "default" (`config.scheduler`, with the rules in place of the
            language model, which knows no devices), or a function from a `Func` to a `Schedule`.
        capture: whether launches are captured in a graph; None: except on an emulated device.

    Raises:
        ArgumentError: there is no such device or scheduler.
        DeviceError: the device cannot be had.
    """

    def __init__(
        self,
        target: Target,
        device: str | ArrayDevice | None,
        scheduler: str | Scheduler,
        capture: bool | None,
    ) -> None:
        check_scheduler(scheduler, (DEFAULT, RULES, NONE))
        if capture not in (None, False, True):
            raise ArgumentError("capture", f"expected True, False or None, got {capture!r:.80}")
        self.target, self.scheduler = target, scheduler
        self.device = device_named("cupy" if device is None else device)
        self.capture = self.device.name != "emulated" if capture is None else bool(capture)

    def executor(self, graph: Graph, parts: Partition) -> DeviceExecutor:
        """The network on the device, its tasks compiled. Raises as `tensorc.compile` does."""
        modules = [self._module(task.func) for task in parts.tasks]
        return DeviceExecutor(graph, parts, modules, self.device, self.capture)

    def _module(self, func: Func) -> CudaModule:
        nest = scheduled(func, self.target, self.scheduler)
        module = CudaModule(nest, self.target, Options(), (), self.device)
        module.compile()
        return module


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
    if (config.scheduler if scheduler == DEFAULT else scheduler) != NONE:
        try:
            return default_schedule(func, target).func
        except (ScheduleError, LimitError) as error:
            message = f"the task {func.name} runs by the rules for any program: {error}"
            warnings.warn(message, UnscheduledWarning, stacklevel=4)
    plain = Schedule(func, target)
    over_the_grid(plain)
    return plain.func
