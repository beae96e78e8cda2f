"""Running a network: its calls in order, on buffers that were placed once.

One native call, of the network's driver, runs all kernels. Every value has a place in the table of
addresses that it reads; inputs and outputs are the memory of the caller's arrays. Runs of one
network exclude each other, because they share its buffers.
"""

from __future__ import annotations

import ctypes
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

from tensorc.codegen.locks import ForkLock
from tensorc.errors import InterpreterError, UnsupportedError, VerifyError
from tensorc.graph.backend import Backend, declared_shape
from tensorc.graph.driver import Driver, Step
from tensorc.graph.graph import Array, Graph, Value
from tensorc.graph.kernels import Kernel
from tensorc.graph.passes.fuse import stored_as
from tensorc.graph.plan import ALIGNMENT, Plan, plan_memory, verify_plan
from tensorc.graph.tasks import Call, Partition
from tensorc.ir.arith import constant
from tensorc.ir.interp.arrays import STORAGE
from tensorc.ir.nodes import Buffer, Func
from tensorc.runtime import parallel
from tensorc.runtime.array import aligned_bytes, of_storage
from tensorc.runtime.module import Module


class Slot:
    """A place for a value: the array that holds it now, and its address as C takes it."""

    __slots__ = ("array", "number", "pointer")

    def __init__(self, array: Array, number: int, pointer: ctypes.c_void_p):
        self.number, self.pointer = number, pointer
        self.hold(array)

    def hold(self, array: Array) -> None:
        self.array = array
        self.pointer.value = array.__array_interface__["data"][0]


class Table:
    """The addresses of slots, one after the other: what the driver reads."""

    def __init__(self, most: int):
        self.addresses = (ctypes.c_void_p * most)()
        self._count = 0

    def slot(self, array: Array) -> Slot:
        """The next slot, holding an array. There are no more than `most`."""
        number = self._count
        self._count += 1
        offset = number * ctypes.sizeof(ctypes.c_void_p)
        return Slot(array, number, ctypes.c_void_p.from_buffer(self.addresses, offset))


class Workspace:
    """Scratch memory for the largest kernel, for the workers of the run at hand."""

    def __init__(self) -> None:
        self.shared = self.worker = 0
        self.pointer = ctypes.c_void_p()
        self.workers = ctypes.c_int32(0)
        self._memory = aligned_bytes(0, ALIGNMENT)

    def require(self, shared: int, worker: int) -> None:
        """Be large enough for a kernel that takes so many bytes, and so many for each worker."""
        self.shared = max(self.shared, shared)
        self.worker = max(self.worker, worker)

    def prepare(self, workers: int) -> None:
        if self.workers.value != workers:
            self._memory = aligned_bytes(self.shared + workers * self.worker, ALIGNMENT)
            self.pointer.value = self._memory.ctypes.data
            self.workers.value = workers


# What inputs and outputs hold between runs.
_NOWHERE = np.empty(0, np.uint8)

# A call with all its arguments in place.
Bound: TypeAlias = Callable[[], None]


class Runnable(Protocol):
    """A task that can be tied to the places of its parameters."""

    def bind(self, slots: Sequence[Slot], workspace: Workspace) -> Bound: ...

    def packed(self, parameter: str, constant: Array) -> Array:
        """A constant in the layout in which the task reads it."""


class CompiledTask:
    """A kernel: binding it makes the arguments of its C call."""

    def __init__(self, kernel: Kernel):
        self.kernel = kernel
        signature = kernel.module.signature
        self.address = kernel.module.address
        self._function = signature.function(self.address)
        self.scratch = signature.scratch
        sizes = (signature.shared_bytes, signature.worker_bytes)
        self._shared, self._worker = (constant(size) or 0 for size in sizes)

    def bind(self, slots: Sequence[Slot], workspace: Workspace) -> Bound:
        arguments: list[Any] = [slot.pointer for slot in slots]
        if self.scratch:
            workspace.require(self._shared, self._worker)
            arguments += [workspace.pointer, workspace.workers]
        return _c_call(self.kernel.module, self._function, tuple(arguments))

    def packed(self, parameter: str, constant: Array) -> Array:
        for name, module in self.kernel.packs:
            if name == parameter:
                source = module.func.params[0].value
                assert isinstance(source, Buffer)
                plain = np.ascontiguousarray(constant).reshape(declared_shape(source))
                constant = module.fill(of_storage(plain, source.dtype))
        return constant


def _c_call(module: Module, function: Callable[..., int], arguments: tuple[Any, ...]) -> Bound:
    def bound() -> None:
        code = function(*arguments)
        if code:
            # The module is named here so that its code lives as long as the call.
            raise _failed(module, code)

    return bound


def _failed(module: Module, code: int) -> InterpreterError:
    return InterpreterError(f"{module.func.name}: run-time check {code} failed")


def _driven(
    steps: Sequence[Step], kernels: Sequence[CompiledTask], table: Table, workspace: Workspace
) -> Bound:
    driver = Driver(steps, kernels[0].kernel.module.target)
    entries = (ctypes.c_void_p * len(kernels))(*(kernel.address for kernel in kernels))

    def run() -> None:
        result = driver.run(table.addresses, entries, workspace.pointer, workspace.workers)
        if result:
            failed = steps[(result >> 32) - 1].kernel
            raise _failed(kernels[failed].kernel.module, result & 0xFFFFFFFF)

    return run


def _one_by_one(calls: Sequence[Bound]) -> Bound:
    def run() -> None:
        for call in calls:
            call()

    return run


class PlainTask:
    """A task run by a backend such as the interpreter, in place of compiled code."""

    def __init__(self, func: Func, backend: Backend):
        self._run = backend(func)

    def bind(self, slots: Sequence[Slot], workspace: Workspace) -> Bound:
        del workspace
        return lambda: self._run([slot.array for slot in slots])

    def packed(self, parameter: str, constant: Array) -> Array:
        del parameter
        return constant


# The network --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Timing:
    """The times of one call over several runs, in seconds."""

    call: Call
    seconds: tuple[float, ...]


class Executor:
    """A network ready to run: its buffers, its constants in place, its calls bound.

    `graph` is the network without the constants that are only kept packed.

    Raises:
        VerifyError: a program, or the plan of the memory, is none for these values.
    """

    def __init__(self, graph: Graph, partition: Partition, tasks: Sequence[Runnable]):
        self.graph, self.partition = graph, partition
        # Each output value of its own has memory of its own, made new for every run.
        self._results = tuple(stored_as(graph, value) for value in graph.outputs)
        computed = {value for call in partition.calls for value in call.outputs}
        self._made = dict.fromkeys(value for value in self._results if value in computed)
        self.plan: Plan = plan_memory(partition.calls, self._made)
        verify_plan(self.plan, partition.calls)
        self._arena = aligned_bytes(self.plan.size, ALIGNMENT)
        self._workspace = Workspace()
        self._table = Table(self._most_places())
        self._slots = self._places()
        self._packed: dict[tuple[Value, int, str], Slot] = {}
        arguments = [self._arguments(call, tasks[call.task]) for call in partition.calls]
        self._bound = [
            tasks[call.task].bind(slots, self._workspace)
            for call, slots in zip(partition.calls, arguments, strict=True)
        ]
        self._drop_unused()
        self._driven = all(isinstance(task, CompiledTask) for task in tasks) and bool(tasks)
        self._run = self._runner(tasks, arguments)
        self._taken = [self._slots[value] for value in graph.inputs]
        self._given = self._written()
        places = (*self._taken, *self._given)
        self._numbers = [slot.number for slot in places if slot is not None]
        self._lock = ForkLock()

    def _written(self) -> list[Slot | None]:
        """For each output the slot that is its memory; None where another output is that already,
        or no call writes it."""
        seen: set[Value] = set()
        slots = []
        for value in self._results:
            slots.append(self._slots[value] if value in self._made and value not in seen else None)
            seen.add(value)
        return slots

    def _most_places(self) -> int:
        values = len(self.graph.constants) + len(self.plan.offsets) + len(self.graph.inputs)
        packed = sum(len(call.values) for call in self.partition.calls)
        return values + len(self._made) + packed

    def _places(self) -> dict[Value, Slot]:
        slot = self._table.slot
        slots = {value: slot(array) for value, array in self.graph.constants.items()}
        for value, offset in self.plan.offsets.items():
            raw = self._arena[offset : offset + value.bytes]
            slots[value] = slot(raw.view(STORAGE[value.dtype]).reshape(value.shape))
        for value in (*self.graph.inputs, *self._made):
            slots[value] = slot(_NOWHERE)
        return slots

    def _arguments(self, call: Call, task: Runnable) -> list[Slot]:
        func = self.partition.tasks[call.task].func
        slots = []
        for param, value in zip(func.params, call.values, strict=True):
            assert isinstance(param.value, Buffer)
            if math.prod(declared_shape(param.value)) != value.size:
                reason = f"`{param.name}: {param.value}` of {func.name} for {value}"
                raise VerifyError("a parameter has the elements of its value", reason)
            slot = self._slots[value]
            if param.mode == "const":
                slot = self._constant(call.task, param.name, value, task)
            slots.append(slot)
        return slots

    def _runner(self, tasks: Sequence[Runnable], arguments: Sequence[Sequence[Slot]]) -> Bound:
        """All calls as one: of the driver, or of each task where they are not compiled."""
        if not self._driven:
            return _one_by_one(self._bound)
        kernels = [task for task in tasks if isinstance(task, CompiledTask)]
        steps = [
            Step(call.task, tuple(slot.number for slot in slots), kernels[call.task].scratch)
            for call, slots in zip(self.partition.calls, arguments, strict=True)
        ]
        return _driven(steps, kernels, self._table, self._workspace)

    def _constant(self, number: int, parameter: str, value: Value, task: Runnable) -> Slot:
        """The slot of a constant as a task reads it; calls of one task share what was packed."""
        key = (value, number, parameter)
        if key not in self._packed:
            plain = self.graph.constants[value]
            array = task.packed(parameter, plain)
            self._packed[key] = self._slots[value] if array is plain else self._table.slot(array)
        return self._packed[key]

    def _drop_unused(self) -> None:
        """Let go of the constants that all their readers have in another layout."""
        kept = {id(slot) for slot in self._packed.values()}
        for value in self.graph.constants:
            if id(self._slots[value]) not in kept and value not in self._results:
                del self._slots[value]
        used = {v: a for v, a in self.graph.constants.items() if v in self._slots}
        self.graph = self.graph.replace(constants=used)

    def __reduce__(self) -> Any:
        raise UnsupportedError(
            "a compiled network cannot be copied or pickled; compile it again, which takes its code"
            " from the cache"
        )

    @property
    def arena_bytes(self) -> int:
        """The memory for values that are neither inputs nor outputs."""
        return self.plan.size

    def run(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Fill `outputs` from `inputs`: compact arrays in storage form, of the graph's shapes."""
        with self._lock:
            self._place(inputs, outputs)
            self._run()
            self._copy(outputs)
            self._let_go()

    @property
    def direct(self) -> bool:
        """Whether `run_at` can be used: all is compiled, and every output written in place."""
        return self._driven and None not in self._given

    def run_at(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """`run` on memory by its addresses, which the caller keeps alive; only if `direct`."""
        with self._lock:
            self._workspace.prepare(parallel.prepare())
            addresses = self._table.addresses
            for number, address in zip(self._numbers, (*inputs, *outputs), strict=True):
                addresses[number] = address
            self._run()

    def steps(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Iterator[Call]:
        """Run call by call: each is yielded when it is done, and `value` gives what it wrote."""
        with self._running(inputs, outputs):
            for call, bound in zip(self.partition.calls, self._bound, strict=True):
                bound()
                yield call

    def value(self, value: Value) -> Array:
        """What lies at a value's place now; while `steps` is at the call that wrote it."""
        return self._slots[value].array

    def timed(self, inputs: Sequence[Array], outputs: Sequence[Array], runs: int) -> list[Timing]:
        """The time of each call in each of several whole runs."""
        seconds: list[list[float]] = [[] for _ in self._bound]
        with self._running(inputs, outputs):
            for _ in range(runs):
                for times, bound in zip(seconds, self._bound, strict=True):
                    start = time.perf_counter()
                    bound()
                    times.append(time.perf_counter() - start)
        pairs = zip(self.partition.calls, seconds, strict=True)
        return [Timing(call, tuple(times)) for call, times in pairs]

    @contextmanager
    def _running(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Iterator[None]:
        """The arrays in their slots; the results that no call wrote itself, behind."""
        with self._lock:
            self._place(inputs, outputs)
            yield
            self._copy(outputs)
            self._let_go()

    def _place(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        self._workspace.prepare(parallel.prepare())
        for slot, array in zip(self._taken, inputs, strict=True):
            slot.hold(array)
        for place, array in zip(self._given, outputs, strict=True):
            if place is not None:
                place.hold(array)

    def _let_go(self) -> None:
        """Of the caller's arrays, which may be large."""
        for place in (*self._taken, *self._given):
            if place is not None:
                place.hold(_NOWHERE)

    def _copy(self, outputs: Sequence[Array]) -> None:
        for value, slot, array in zip(self._results, self._given, outputs, strict=True):
            if slot is None:
                np.copyto(array, self._slots[value].array.reshape(array.shape))
