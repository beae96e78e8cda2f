"""What `bench.tvm_peer` and `bench.tvm_tasks` do with TVM: tuning, kernels, the sixteen workloads.

This imports TVM and runs in TVM's environment; nothing of tensorc is needed there.

Each workload is one TIR function. Its parameters are the arguments of the module of that name in
`bench.workloads`, then the weights and biases in the order of the module's `parameters()`, then the
result. GELU is x / (1 + exp(-2z)), the tanh form with one exponential.
"""

from __future__ import annotations

import functools
import importlib.metadata
import math
import operator
import os
import statistics
import sys
import time
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import tvm
from tvm import te, tirx, topi
from tvm.driver import build
from tvm.ir.utils import derived_object
from tvm.s_tir import SBlockRealize, ScheduleError, meta_schedule
from tvm.s_tir.meta_schedule.schedule_rule import (
    MultiLevelTiling,
    MultiLevelTilingWithIntrin,
    PyScheduleRule,
)
from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

from bench.tvm_pipe import Kernel
from bench.tvm_record import PACKAGES, Plan, Tuned

Nodes = Sequence[te.Tensor]

# Read by TVMScript for half a minute when imported, and of no use on x86.
FOREIGN_INTRINSICS = ("arm_cpu", "cuda", "hexagon", "metal", "riscv_cpu", "rocm")
LIMIT_SECONDS = 600.0
"""Of a build and of a run; on a busy machine TVM's 30 are over while a worker still starts."""
SAMPLES, SAMPLE_SECONDS = 5, 0.02
"""How often and for how long a candidate is timed by the processor's time."""

TILING = (MultiLevelTiling, MultiLevelTilingWithIntrin)
PREPROCESSING = "meta_schedule.layout_rewrite_preproc"
OPERATORS: Mapping[type, Callable[[Any, Any], Any]] = {
    tirx.Add: operator.add, tirx.Sub: operator.sub, tirx.Mul: operator.mul,
    tirx.FloorDiv: operator.floordiv, tirx.FloorMod: operator.mod,
}  # fmt: skip

# The workloads -----------------------------------------------------------------------------------


def tensor(*shape: int) -> te.Tensor:
    return te.placeholder(shape, "float32")


def contraction(a: te.Tensor, b: te.Tensor, *, transposed: bool = False) -> te.Tensor:
    """a times b, or b transposed, over the last two axes; the axes before these are common."""
    *common, rows, depth = a.shape
    columns = b.shape[-2 if transposed else -1]
    k = te.reduce_axis((0, depth), "k")

    def element(*indices: Any) -> Any:
        *outer, i, j = indices
        right = b(*outer, j, k) if transposed else b(*outer, k, j)
        return te.sum(a(*outer, i, k) * right, axis=k)

    return te.compute((*common, rows, columns), element)


def matmul(*shapes: tuple[int, ...], transposed: bool = False) -> Nodes:
    a, b = (tensor(*shape) for shape in shapes)
    return a, b, contraction(a, b, transposed=transposed)


def gelu(x: Any) -> Any:
    z = math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x)
    return x / (1.0 + te.exp(-2.0 * z))


def ffn() -> Nodes:
    x, w1, b1 = tensor(128, 768), tensor(3072, 768), tensor(3072)
    w2, b2 = tensor(768, 3072), tensor(768)
    product = contraction(x, w1, transposed=True)
    inner = te.compute(product.shape, lambda i, j: product[i, j] + b1[j])
    activated = te.compute(inner.shape, lambda i, j: gelu(inner[i, j]))
    outer = contraction(activated, w2, transposed=True)
    return x, w1, b1, w2, b2, te.compute(outer.shape, lambda i, j: outer[i, j] + b2[j])


def convolution(channels: int, filters: int, size: int, kernel: int, step: int = 1) -> Nodes:
    x, weight = tensor(1, channels, size, size), tensor(filters, channels, kernel, kernel)
    return x, weight, topi.nn.conv2d_nchw(x, weight, step, kernel // 2, 1)


def convolution_bias_relu() -> Nodes:
    x, weight, result = convolution(256, 64, 56, 1)
    bias = tensor(64)
    function = lambda n, c, y, x: te.max(result[n, c, y, x] + bias[c], 0.0)  # noqa: E731
    return x, weight, bias, te.compute(result.shape, function)


def depthwise(channels: int, size: int, step: int = 1, most: float | None = None) -> Nodes:
    """3x3; with `most`, the result is limited to [0, most]."""
    x, weight = tensor(1, channels, size, size), tensor(channels, 1, 3, 3)
    result = topi.nn.depthwise_conv2d_nchw(x, weight, step, 1, 1)
    return x, weight, result if most is None else topi.clip(result, 0.0, most)


def softmax() -> Nodes:
    x = tensor(1536, 128)
    return x, topi.nn.softmax(x, axis=-1)


def layer_norm() -> Nodes:
    x, scale, shift = tensor(512, 768), tensor(768), tensor(768)
    return x, scale, shift, topi.nn.layer_norm(x, scale, shift, [1], 1e-5)


def gelu_mul_add() -> Nodes:
    x, y, z = (tensor(4 << 20) for _ in range(3))
    return x, y, z, te.compute(x.shape, lambda i: gelu(x[i]) * y[i] + z[i])


def total() -> Nodes:
    x = tensor(16 << 20)
    return x, topi.sum(x)


TASKS: Mapping[str, Callable[[], Nodes]] = MappingProxyType(
    {
        "mm128": lambda: matmul((128, 128), (128, 128)),
        "mm512": lambda: matmul((512, 512), (512, 512)),
        "mm1024": lambda: matmul((1024, 1024), (1024, 1024)),
        "gemv4096": lambda: matmul((1, 4096), (4096, 4096), transposed=True),
        "ffn_gelu": ffn,
        "bmm_attn": lambda: matmul((12, 128, 64), (12, 64, 128)),
        "conv3x3_c64_56": lambda: convolution(64, 64, 56, 3),
        "conv3x3_c256_14": lambda: convolution(256, 256, 14, 3),
        "conv7x7_s2_224": lambda: convolution(3, 64, 224, 7, 2),
        "conv1x1_256_64_56_bias_relu": convolution_bias_relu,
        "dw3x3_s2_c96_112": lambda: depthwise(96, 112, 2),
        "dw3x3_s1_c384_14_relu6": lambda: depthwise(384, 14, most=6.0),
        "softmax": softmax,
        "layernorm": layer_norm,
        "gelu_mul_add": gelu_mul_add,
        "sum16m": total,
    }
)

# Tuning and kernels ------------------------------------------------------------------------------


def skip_foreign_intrinsics() -> None:
    """Spares this process the intrinsics of other machines, which TVM imports all at once.

    To read them takes longer than a worker has for a build: all builds would end as too slow.
    """
    for name in FOREIGN_INTRINSICS:
        full = f"tvm.s_tir.tensor_intrin.{name}"
        sys.modules.setdefault(full, types.ModuleType(full))


def host() -> str:
    """The processor of this machine, as LLVM names it."""
    return str(tvm.get_global_func("tvm.codegen.llvm.GetHostCPUName")())


def processor_time(
    module: Any, _device: Any, _configuration: Any, repeated: Sequence[Sequence[Any]]
) -> list[float]:
    """Seconds of one call on this thread's processor, the median of some samples.

    This is an evaluator of TVM's runner, in place of its own, which counts what passes on the clock
    while others have the processor. A sample is at least one call.
    """
    run = module[module.entry_name]
    (arguments,) = repeated
    run(*arguments)
    start = time.thread_time()
    run(*arguments)
    calls = max(1, int(SAMPLE_SECONDS / max(time.thread_time() - start, 1e-7)))
    samples = []
    for _ in range(SAMPLES):
        start = time.thread_time()
        for _ in range(calls):
            run(*arguments)
        samples.append((time.thread_time() - start) / calls)
    return [statistics.median(samples)]


def tune(function: Any, folder: Path, plan: Plan) -> Tuned:
    """Tunes a function until its database in `folder` has so many records, or the space ends.

    A run that was interrupted goes on behind the records it left; one that was finished with as
    many trials is not repeated.
    """
    before = Tuned.load(folder)
    if before is not None and before.trials >= plan.trials:
        return before
    skip_foreign_intrinsics()
    folder.mkdir(parents=True, exist_ok=True)
    done, cpu = len(_database(folder)), plan.cpu or host()
    workers = os.cpu_count() or 1
    start = time.perf_counter()
    if done < plan.trials:
        meta_schedule.tune_tir(
            function,
            _target(cpu, plan.cores),
            str(folder),
            plan.trials - done,
            builder=meta_schedule.builder.LocalBuilder(
                max_workers=workers, timeout_sec=LIMIT_SECONDS, initializer=skip_foreign_intrinsics
            ),
            runner=meta_schedule.runner.LocalRunner(
                timeout_sec=LIMIT_SECONDS,
                f_run_evaluator=processor_time if plan.processor else None,
            ),
            space=_space(function, _target(cpu, plan.cores)),
            num_tuning_cores=workers,
            # Another one behind what is done, lest it draw the same again.
            seed=plan.seed + done,
        )
    seconds = time.perf_counter() - start + (before.seconds if before is not None else 0.0)
    versions = {package: importlib.metadata.version(package) for package in PACKAGES}
    threads = int(os.environ["TVM_NUM_THREADS"])
    found = Tuned(plan.trials, len(_database(folder)), seconds, cpu, plan.cores, threads,
                  plan.processor, versions, sys.executable)  # fmt: skip
    found.save(folder)
    return found


@derived_object
class TilingWhereItCan(PyScheduleRule):  # type: ignore[misc]
    """MetaSchedule's multi-level tiling, which leaves a block alone that it ends with an error on.

    It does so where it would fuse the next block although that one has other producers, as between
    the scores of attention under a mask and their softmax.
    """

    def __init__(self, rule: Any) -> None:
        super().__init__()
        self.rule = rule

    def _initialize_with_tune_context(self, context: Any) -> None:
        self.rule._initialize_with_tune_context(context)

    def apply(self, sch: Any, block: Any) -> list[Any]:
        try:
            return self.rule.apply(sch.copy(), block)
        except ScheduleError:
            return [sch]

    def clone(self) -> Any:
        return TilingWhereItCan(self.rule.clone())


def _space(function: Any, target: Any) -> Any:
    """MetaSchedule's own space of a function; with `TilingWhereItCan` if it ends with an error."""
    found = meta_schedule.TuneContext(
        mod=tvm.IRModule({"main": function}),
        target=target,
        space_generator="post-order-apply",
        search_strategy="evolutionary",
        num_threads=1,
    )
    try:
        found.generate_design_space()
    except ScheduleError:
        print("# multi-level tiling leaves some blocks alone", flush=True)
        own = found.space_generator
        return meta_schedule.space_generator.PostOrderApply(
            sch_rules=[
                TilingWhereItCan(rule) if isinstance(rule, TILING) else rule
                for rule in own.sch_rules
            ],
            postprocs=list(own.postprocs),
            mutator_probs=dict(own.mutator_probs.items()),
        )
    return "post-order-apply"


def kernel(
    asked: Kernel, inputs: Sequence[np.ndarray]
) -> tuple[list[Callable[[], Any]], list[Any]]:
    """Calls of a program on the inputs, one for each copy of the constants, and its results.

    The program is the best of the database, if there is a folder. Constants whose layout it chose
    are packed. Results are TVM tensors, for the parameters behind the inputs.

    Raises:
        LookupError: there is no program.
    """
    skip_foreign_intrinsics()
    function = read(Path(asked.program)) if asked.program else workload(asked.name)
    if asked.folder:
        module, target = _best(asked.name, Path(asked.folder), function)
    else:
        module, target = tvm.IRModule({"main": function}), _target(host(), 1)
    packed = _packed(module["main"], inputs)
    module = RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(module)
    run = build(module, target=target)["main"]
    results = [
        tvm.runtime.empty([int(extent) for extent in buffer.shape], buffer.dtype)
        for buffer in list(function.params)[len(inputs) :]
    ]
    arguments = {
        n: tvm.runtime.tensor(array) for n, array in enumerate(packed) if n not in asked.constants
    }
    calls = []
    for _ in range(asked.copies):
        own = arguments | {n: tvm.runtime.tensor(packed[n]) for n in asked.constants}
        calls.append(functools.partial(run, *(own[n] for n in sorted(own)), *results))
    return calls, results


def workload(name: str) -> Any:
    """The function of a workload."""
    return te.create_prim_func(list(TASKS[name]()))


def read(program: Path) -> Any:
    """The function that a text, such as those of `bench.tvm_script`, says."""
    return tvm.script.from_source(program.read_text())


def _best(name: str, folder: Path, function: Any) -> tuple[Any, Any]:
    """The module of the best record of a function, and its target."""
    tuned = Tuned.load(folder)
    if tuned is None:
        raise LookupError(f"{folder} holds no finished tuning of {name}")
    target = _target(tuned.cpu, tuned.cores)
    schedule = meta_schedule.tir_integration.compile_tir(_database(folder), function, target)
    if schedule is None:
        raise LookupError(f"no program in {folder} is one of {name}")
    return schedule.mod, target


# Layouts -----------------------------------------------------------------------------------------


def _packed(function: Any, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The inputs, those that a schedule has in another layout in that one."""
    packed = list(inputs)
    names = [parameter.name for parameter in function.params]
    for block in _preprocessing(function.body):
        position = names.index(block.reads[0].source.name)
        packed[position] = _pack(block, inputs[position])
    return packed


def _preprocessing(stmt: Any) -> Iterator[Any]:
    """The blocks that copy a constant into the layout that a schedule chose for it."""
    if isinstance(stmt, SBlockRealize):
        if PREPROCESSING in stmt.block.annotations:
            yield stmt.block
        else:
            yield from _preprocessing(stmt.block.body)
    elif isinstance(stmt, tirx.SeqStmt):
        for part in stmt.seq:
            yield from _preprocessing(part)
    elif isinstance(stmt, tirx.For):
        yield from _preprocessing(stmt.body)


def _pack(block: Any, array: np.ndarray) -> np.ndarray:
    """What a block that stores packed[f(v)] = array[v] for all v leaves; zero elsewhere."""
    axes = np.ogrid[tuple(slice(extent) for extent in array.shape)]
    values = {axis.var: grid for axis, grid in zip(block.iter_vars, axes, strict=True)}
    places = tuple(_evaluated(index, values) for index in block.body.indices)
    shape = [int(extent) for extent in block.writes[0].source.shape]
    packed = np.zeros(shape, array.dtype)
    packed[places] = array
    return packed


def _evaluated(index: Any, values: Mapping[Any, np.ndarray]) -> Any:
    """An index, for all values of its variables at once."""
    if isinstance(index, tirx.IntImm):
        return int(index.value)
    for kind, combine in OPERATORS.items():
        if isinstance(index, kind):
            return combine(_evaluated(index.a, values), _evaluated(index.b, values))
    return next(grid for axis, grid in values.items() if axis.same_as(index))


def _target(cpu: str, cores: int) -> Any:
    return tvm.target.Target({"kind": "llvm", "mcpu": cpu, "num-cores": cores})


def _database(folder: Path) -> Any:
    return meta_schedule.database.JSONDatabase(work_dir=str(folder), module_equality="structural")
