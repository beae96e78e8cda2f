"""Running a network on a device: its kernels in order, on memory that was placed once.

Every value has memory of its own or in the arena, inputs and results included, so that all runs are
the same launches. Where they are captured, the first run launches them one by one, the second
captures them in a graph, and from then on one call starts all.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np

from tensorc.codegen.locks import ForkLock
from tensorc.errors import UnsupportedError, VerifyError
from tensorc.graph.backend import declared_shape
from tensorc.graph.device_arguments import GpuCall, GpuDevice, is_on_gpu
from tensorc.graph.executor import Timing
from tensorc.graph.graph import Array, Graph, Value
from tensorc.graph.passes.fuse import stored_as
from tensorc.graph.plan import Plan, plan_memory, verify_plan
from tensorc.graph.tasks import Call, Partition
from tensorc.ir.interp.arrays import STORAGE
from tensorc.ir.nodes import Buffer
from tensorc.runtime.cuda import ArrayDevice, CudaModule
from tensorc.runtime.device import DeviceGraph, DeviceMemory
from tensorc.runtime.launches import Allocate, KernelLaunch


class Scratch:
    """Temporaries of captured kernels. Calls run one after the other, so that all share it: the
    n-th temporary of a call is that of any other call, if the sizes are equal."""

    def __init__(self, device: ArrayDevice) -> None:
        self._device = device
        self._held: dict[tuple[int, int], DeviceMemory] = {}

    def of_call(self) -> Allocate:
        """Memory for one call, in which a name stands for the same temporary each time."""
        names: dict[str, int] = {}

        def allocate(name: str, size: int) -> DeviceMemory:
            key = (names.setdefault(name, len(names)), size)
            if key not in self._held:
                self._held[key] = self._device.alloc(size)
            return self._held[key]

        return allocate


class DeviceExecutor:
    """A network ready to run on a device.

    Args:
        modules: of the tasks, in their order.
        capture: whether launches are captured. If not, temporaries are fresh memory in each run.

    Raises:
        VerifyError: a program, or the plan of the memory, is none for these values.
        DeviceError: there is not that much memory.
    """

    def __init__(
        self,
        graph: Graph,
        partition: Partition,
        modules: Sequence[CudaModule],
        device: ArrayDevice,
        capture: bool,
    ) -> None:
        self.graph, self.partition, self.device = graph, partition, device
        self._modules = tuple(modules)
        self._results = tuple(stored_as(graph, value) for value in graph.outputs)
        computed = {value for call in partition.calls for value in call.outputs}
        made = dict.fromkeys(value for value in self._results if value in computed)
        self.plan: Plan = plan_memory(partition.calls, made)
        verify_plan(self.plan, partition.calls)
        self._memory = self._places((*graph.inputs, *made))
        self._scratch = Scratch(device)
        self._capture, self._planned = capture, tuple[KernelLaunch, ...]()
        self._graph: DeviceGraph | None = None
        self._stream = device.current_stream()
        self._lock = ForkLock()
        for call in partition.calls:
            self._fits(call)

    def _places(self, own: Sequence[Value]) -> dict[Value, DeviceMemory]:
        device = self.device
        memory = {v: device.constant(a, v.name) for v, a in self.graph.constants.items()}
        arena = device.alloc(self.plan.size)
        for value, offset in self.plan.offsets.items():
            memory[value] = device.part(arena, offset, value.bytes)
        for value in own:
            memory[value] = device.alloc(value.bytes)
        return memory

    def _fits(self, call: Call) -> None:
        func = self.partition.tasks[call.task].func
        for param, value in zip(func.params, call.values, strict=True):
            assert isinstance(param.value, Buffer)
            if math.prod(declared_shape(param.value)) != value.size:
                reason = f"`{param.name}: {param.value}` of {func.name} for {value}"
                raise VerifyError("a parameter has the elements of its value", reason)

    def __reduce__(self) -> Any:
        raise UnsupportedError(
            "a compiled network cannot be copied or pickled; compile it again, which takes its code"
            " from the cache"
        )

    @property
    def arena_bytes(self) -> int:
        """The memory for values that are neither inputs nor outputs."""
        return self.plan.size

    # Launches -------------------------------------------------------------------------------------

    def _launches(self, call: Call, allocate: Allocate) -> Iterator[KernelLaunch]:
        memory = [self._memory[value] for value in call.values]
        return self._modules[call.task].launches(memory, allocate)

    def _fresh(self, name: str, size: int) -> DeviceMemory:
        return self.device.alloc(size)

    def _one_call(self, call: Call, stream: int | None) -> None:
        for launch in self._launches(call, self._fresh):
            launch.run(self.device, stream)

    def _run(self, stream: int | None) -> None:
        if not self._capture:
            for call in self.partition.calls:
                self._one_call(call, stream)
        elif not self._planned:
            # What a driver does when a kernel is first launched cannot always be captured.
            self._planned = tuple(
                launch
                for call in self.partition.calls
                for launch in self._launches(call, self._scratch.of_call())
            )
            self._launch_planned(stream)
        else:
            if self._graph is None:
                self._graph = self.device.capture(lambda: self._launch_planned(None))
            self._graph.launch(stream)

    def _launch_planned(self, stream: int | None) -> None:
        for launch in self._planned:
            launch.run(self.device, stream)

    # Runs -----------------------------------------------------------------------------------------

    def run(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Fill `outputs` from `inputs`: compact arrays of the CPU in storage form, of the graph's
        shapes.

        Raises:
            DeviceError: a copy or a kernel failed; on an emulated device, a detector found
                something.
        """
        with self._lock:
            self._take(inputs)
            self._run(self._stream)
            self._give(outputs)

    def on_gpu(self, given: Sequence[Any]) -> bool:
        """Whether arguments of a call lie where the network runs, which is not the CPU."""
        return self.device.name != "emulated" and any(map(is_on_gpu, given))

    def run_on_gpu(self, given: Sequence[Any]) -> list[Any]:
        """Results on the GPU from arrays there, in the order of the caller's stream.

        It returns before they are there, as all that torch and CuPy do. Calls on another stream
        wait for the ones before.

        Raises:
            ArgumentError: see `GpuCall`.
            DeviceError: a copy or a launch failed.
        """
        device = cast("GpuDevice", self.device)
        call = GpuCall(device, self.graph.inputs, given, self.graph.outputs)
        with self._lock:
            self._come_from(call.stream)
            for value, memory in zip(self.graph.inputs, call.inputs, strict=True):
                self.device.copy(self._memory[value], memory, call.stream)
            self._run(call.stream)
            for value, memory in zip(self._results, call.outputs, strict=True):
                self.device.copy(memory, self._memory[value], call.stream)
        return call.results

    def _come_from(self, stream: int | None) -> None:
        """Wait for what was last run on another stream."""
        if self._stream != stream:
            self.device.sync(self._stream)
            self._stream = stream

    def _take(self, inputs: Sequence[Array]) -> None:
        self._come_from(self.device.current_stream())
        for value, array in zip(self.graph.inputs, inputs, strict=True):
            self.device.copy(self._memory[value], _bytes(array), self._stream)

    def _give(self, outputs: Sequence[Array]) -> None:
        for value, array in zip(self._results, outputs, strict=True):
            self.device.copy(_bytes(array), self._memory[value], self._stream)
        self.device.sync(self._stream)

    def steps(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Iterator[Call]:
        """Run call by call: each is yielded when it is done, and `value` gives what it wrote."""
        with self._lock:
            self._take(inputs)
            for call in self.partition.calls:
                self._one_call(call, self._stream)
                self.device.sync(self._stream)
                yield call
            self._give(outputs)

    def value(self, value: Value) -> Array:
        """A copy of what lies at a value's place now."""
        array = np.empty(value.shape, STORAGE[value.dtype])
        self.device.copy(_bytes(array), self._memory[value], self._stream)
        self.device.sync(self._stream)
        return array

    def timed(self, inputs: Sequence[Array], outputs: Sequence[Array], runs: int) -> list[Timing]:
        """The time of each call in each of several whole runs, its launches included."""
        seconds: list[list[float]] = [[] for _ in self.partition.calls]
        with self._lock:
            self._take(inputs)
            for _ in range(runs):
                for times, call in zip(seconds, self.partition.calls, strict=True):
                    start = time.perf_counter()
                    self._one_call(call, self._stream)
                    self.device.sync(self._stream)
                    times.append(time.perf_counter() - start)
            self._give(outputs)
        pairs = zip(self.partition.calls, seconds, strict=True)
        return [Timing(call, tuple(times)) for call, times in pairs]


def _bytes(array: Array) -> Array:
    """The bytes of a compact array, of none or of several dimensions."""
    return array.reshape(-1).view(np.uint8)
