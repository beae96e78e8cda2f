"""`tc.compile`: a network of torch's or an ONNX model as one callable."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tensorc.errors import ArgumentError
from tensorc.graph.arguments import Inputs, Results
from tensorc.graph.backend import Backend
from tensorc.graph.evaluate import empty
from tensorc.graph.executor import CompiledTask, Executor, PlainTask, Runnable
from tensorc.graph.graph import Array, Graph, Value
from tensorc.graph.kernels import Scheduler, build_kernels
from tensorc.graph.network import Network, load
from tensorc.graph.passes import fuse, optimised
from tensorc.graph.passes.blocks import in_planes
from tensorc.graph.reports import Comparison, Layer, Profile, difference, profile_of, task_table
from tensorc.graph.tasks import Partition, Task, partition
from tensorc.ir.depth import within_depth
from tensorc.ir.words import counted
from tensorc.target import Target

if TYPE_CHECKING:
    from tensorc.graph.cuda import Place
    from tensorc.graph.device_executor import DeviceExecutor
    from tensorc.runtime.cuda import ArrayDevice


def compile(
    network: Any,
    example_inputs: Sequence[Any] | None = None,
    target: str | Target = "cpu",
    scheduler: str | Scheduler = "default",
    *,
    example_keywords: Mapping[str, Any] | None = None,
    backend: Backend | None = None,
    device: str | ArrayDevice | None = None,
    capture: bool | None = None,
) -> CompiledNetwork:
    """Compile a network.

    Args:
        network: a `torch.nn.Module` in evaluation mode, a `torch.export.ExportedProgram`, or the
            path of a `.pt2` file; an `onnx.ModelProto`, its bytes, or the path of a `.onnx` file.
        example_inputs: for a module, the positional arguments to export it with, as a tuple. For an
            ONNX model, arrays in the order of its inputs, whose shapes decide the dimensions that
            the model leaves open; an input on whose value a shape depends is fixed to its example.
        target: the machine to compile for.
        scheduler: "rules" (the rule-based one), "tlm" (the language model), "none" (plain nests),
            or a function from a `Func` to a `Schedule`. "default" is what `config.scheduler` says;
            where that is the model, the rules take what it cannot write, which is all without
            weights, with one `UnwrittenWarning`. Schedules of `config.database` come first.
        example_keywords: the same by name.
        backend: runs the tasks in place of compiled code, e.g. `backend.interpreted`, which checks
            every access and takes a second for what compiled code does in a microsecond.
        device: for a cuda target, where its kernels run: "cupy" (the default), a GPU, or
            "emulated", on the CPU with all detectors; or a `tensorc.runtime.device.Device`.
        capture: for a cuda target, whether the second call captures all launches in a graph, which
            later calls start as one. By default on a GPU.

    Raises:
        ArgumentError: an argument is not what it should be; a file is not whole.
        UnsupportedNetworkError: operators, dtypes or shapes that are not supported, all at once.
        DeviceError: the device cannot be had, or the weights do not fit on it.
        WeightsError: the scheduler is "tlm", and its weights cannot be used.
        TargetError, CompileError, LimitError: as `build`.
    """
    machine = Target.parse(target)
    if backend is not None and not callable(backend):
        raise ArgumentError("backend", f"needed a function of a task, got {backend!r:.80}")
    place = None
    if machine.kind == "cuda" and backend is None:
        from tensorc.graph.cuda import Place

        place = Place(machine, device, scheduler, capture)
    else:
        for name, given in (("device", device), ("capture", capture)):
            if given is not None:
                raise ArgumentError(name, "it is for a cuda target and its compiled kernels")
    imported = load(network, example_inputs, example_keywords)
    return compile_network(imported, machine, scheduler, backend, place)


@within_depth("a task of the network")
def compile_network(
    network: Network,
    target: Target,
    scheduler: str | Scheduler = "default",
    backend: Backend | None = None,
    place: Place | None = None,
) -> CompiledNetwork:
    """Compile a network that is imported; the arguments and errors are those of `compile`. `place`
    is the device of a cuda target."""
    graph, parts = partitioned(network, target, backend)
    if place is not None:
        return CompiledNetwork(network, parts, place.executor(graph, parts))
    executor = Executor(graph, parts, _runnable(parts, target, scheduler, backend))
    return CompiledNetwork(network, parts, executor)


def partitioned(
    network: Network, target: Target, backend: Backend | None = None
) -> tuple[Graph, Partition]:
    """The optimised graph of a network and its tasks. Constants are computed, no task is
    scheduled."""
    *_, (_, graph) = optimised_graphs(network, target, backend)
    return graph, partition(graph, fuse(graph))


def optimised_graphs(
    network: Network, target: Target, backend: Backend | None = None
) -> Iterator[tuple[str, Graph]]:
    """The graph of a network after each pass, with the pass's name, in order."""
    cuda = target.kind == "cuda"
    # Constants of a network for a device are computed here, before there is one.
    here, by = (Target.parse("cpu"), None) if cuda else (target, backend)

    def evaluate(graph: Graph) -> Mapping[Value, Array]:
        parts = partition(graph, fuse(graph))
        results = [empty(value) for value in graph.outputs]
        Executor(graph, parts, _runnable(parts, here, "none", by)).run([], results)
        return dict(zip(graph.outputs, results, strict=True))

    return optimised(network.graph, evaluate, 0 if cuda else target.lanes(32))


def _runnable(
    parts: Partition, target: Target, scheduler: str | Scheduler, backend: Backend | None
) -> list[Runnable]:
    funcs = [task.func for task in parts.tasks]
    if backend is not None:
        return [PlainTask(func, backend) for func in funcs]
    return [CompiledTask(kernel) for kernel in build_kernels(funcs, target, scheduler)]


class CompiledNetwork:
    """A compiled network. Call it like the module: torch tensors give torch tensors, as does a call
    without any; NumPy arrays (and other arrays) give NumPy arrays, in the structure that the module
    gives.

    One of an ONNX model takes arrays in the order of the model's inputs or by their names, and
    gives a NumPy array, or a tuple of several in the order of its outputs.

    On a GPU, arrays there give arrays there, on the caller's stream.

    Inputs of another shape or dtype than compiled for are refused; one that is not compact is
    copied. Calls from several threads run one after the other.
    """

    def __init__(
        self, network: Network, partition: Partition, executor: Executor | DeviceExecutor
    ) -> None:
        self.graph, self.partition = executor.graph, partition
        self._network, self._executor = network, executor
        self._inputs, self._results = Inputs(self.graph.inputs), Results(self.graph.outputs)

    def __repr__(self) -> str:
        inputs, outputs = (", ".join(map(str, v)) for v in (self.graph.inputs, self.graph.outputs))
        flops = sum(task.count * task.flops for task in self.tasks)
        return (
            f"<CompiledNetwork ({inputs}) -> ({outputs}): {counted(len(self.tasks), 'task')},"
            f" {counted(len(self.partition.calls), 'call')}, {flops} FLOP,"
            f" {self.arena_bytes} bytes for intermediate values>"
        )

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Run the network.

        Raises:
            ArgumentError: the call is not like the one that the network was compiled for.
        """
        given = self._network.flatten(arguments, keywords)
        executor = self._executor
        if isinstance(executor, Executor):
            addresses = self._inputs.addresses(given) if executor.direct else None
            if addresses is not None:
                results, places = self._results.tensors()
                executor.run_at(addresses, places)
                return self._network.unflatten(results)
        elif executor.on_gpu(given):
            return self._network.unflatten(executor.run_on_gpu(given))
        results, arrays = self._results_for(given)
        executor.run(self._inputs.arrays(given), arrays)
        return self._network.unflatten(results)

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The distinct programs, with how often each is run and what it costs at least."""
        return self.partition.tasks

    @property
    def arena_bytes(self) -> int:
        """The memory that intermediate values share, in bytes."""
        return self._executor.arena_bytes

    def report(self) -> str:
        """The tasks as a table."""
        return task_table(self.partition, self.arena_bytes)

    def profile(
        self,
        *arguments: Any,
        runs: int = 10,
        peak_flops: float | None = None,
        bandwidth: float | None = None,
        **keywords: Any,
    ) -> Profile:
        """The time of every task over several runs, after one that is not counted.

        With the machine's peak (float operations and bytes of memory traffic a second), each task's
        time is set against its roofline (Williams, Waterman, Patterson, 2009).

        Raises:
            ArgumentError: as a call; or `runs` is no integer of 1 or more, or a peak is not
                positive.
        """
        if type(runs) is not int or runs < 1:
            raise ArgumentError("runs", f"expected an integer of 1 or more, got {runs!r:.80}")
        for name, peak in (("peak_flops", peak_flops), ("bandwidth", bandwidth)):
            if peak is not None and (type(peak) not in (int, float) or not 0 < peak < math.inf):
                raise ArgumentError(name, f"expected a positive number, got {peak!r:.80}")
        given = self._network.flatten(arguments, keywords)
        inputs, arrays = self._inputs.arrays(given), self._results_for(given)[1]
        self._executor.run(inputs, arrays)
        timings = self._executor.timed(inputs, arrays, runs)
        return profile_of(self.partition, timings, peak_flops, bandwidth)

    def compare(
        self, module: Any, *arguments: Any, tolerance: float = 1e-3, **keywords: Any
    ) -> Comparison:
        """What the network's framework computes against what we compute, layer by layer.

        The layers are those of the exported program, which torch runs operator by operator; beside
        them stand the results of `module` itself. For an ONNX model, ONNX's own evaluator runs
        `module` where that is a model, else the one that was compiled; results are those of
        `module`: a model, a session of ONNX Runtime, or a function of the arrays. Errors are
        relative norms `|a - b| / |b|`.

        Raises:
            ArgumentError: as a call.
        """
        if type(tolerance) not in (int, float) or not tolerance >= 0:
            raise ArgumentError(
                "tolerance", f"expected a number of 0 or more, got {tolerance!r:.80}"
            )
        given = self._network.flatten(arguments, keywords)
        known = self._network.values(given, module)
        layers: list[Layer] = []
        arrays = self._results_for(given)[1]
        for call in self._executor.steps(self._inputs.arrays(given), arrays):
            for value in call.outputs:
                planes = self.graph.blocked.get(value, value)
                if planes in known:
                    ours = in_planes(self._executor.value(value), planes.shape)
                    layers.append(
                        Layer(call.where, call.label, planes.name, *difference(ours, known[planes]))
                    )
        references = self._network.results(module, arguments, keywords)
        results = tuple(
            Layer("", "the module's result", value.name, *difference(ours, (theirs, value.dtype)))
            for value, ours, theirs in zip(self.graph.outputs, arrays, references, strict=True)
        )
        return Comparison(tuple(layers), results, tolerance)

    def _results_for(self, given: Sequence[Any]) -> tuple[list[Any], list[Array]]:
        """New arrays for the results, as the caller gets them and in storage form."""
        if self._network.gives_tensors(given):
            tensors, _ = self._results.tensors()
            return tensors, self._results.shared(tensors)
        arrays = self._results.arrays()
        return list(arrays), arrays
