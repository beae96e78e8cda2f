"""A lowered function as LLVM text.

The text uses opaque pointers and asks for nothing that is not proved: parameters do not overlap
and are aligned to their elements, arithmetic on data wraps, and floats are contracted to fused
multiply-adds at most. It defines one global symbol, the entry; all it may need from outside is the
parallel hook.
"""

from __future__ import annotations

from dataclasses import dataclass

from tensorc.codegen.context import Check, Checks, Context, Module, Place
from tensorc.codegen.emit_expr import evaluate
from tensorc.codegen.emit_memory import from_memory
from tensorc.codegen.emit_parallel import first_worker
from tensorc.codegen.emit_profile import measured
from tensorc.codegen.emit_stmt import execute
from tensorc.codegen.hook import HOOK_DECLARATION
from tensorc.codegen.passes.trees import sizes_of
from tensorc.codegen.pipeline import Lowered, Options
from tensorc.codegen.symbols import entry_symbol
from tensorc.codegen.values import Value, memory_type
from tensorc.dtype import DType
from tensorc.ir.arith import TRUE
from tensorc.ir.nodes import Expr, Param, Var
from tensorc.ir.print import print_expr
from tensorc.target import Target


@dataclass(frozen=True, slots=True)
class Kernel:
    """Code for one function.

    Attributes:
        name: the function's.
        text: an LLVM module without a triple, which the compiler of the text adds.
        symbol: the global symbol of the entry, with the C interface that `tensorc.runtime.abi`
            describes.
        params, sizes: the C parameters, but for the workspace.
        shared_bytes, worker_bytes: of workspace, as index expressions over the sizes: it takes
            shared_bytes + workers * worker_bytes. Both are 0 for a kernel without a workspace.
        parallel: whether the hook is called.
        checks: what result k + 1 of the entry means, for code with checks and for that which has
            a condition on its sizes.
        profile: the outermost nests, for code with profile. The entry then takes a last pointer,
            to two 64-bit counters for each: to them it adds ticks of the clock, and 1.
    """

    name: str
    text: str
    symbol: str
    params: tuple[Param, ...]
    sizes: tuple[str, ...]
    shared_bytes: Expr
    worker_bytes: Expr
    parallel: bool
    checks: tuple[Check, ...]
    profile: tuple[str, ...]
    target: Target
    options: Options


def emit(lowered: Lowered, legal: Expr = TRUE) -> Kernel:
    """LLVM text for a lowered function, whose entry asks for a condition on the sizes first."""
    func = lowered.original
    symbol = entry_symbol(func.name)
    module = Module(lowered.target, symbol, lowered.options.strict_float)
    c = Context(module, lowered.storage, evaluate, execute)
    arguments = [_parameter(c, param) for param in func.params]
    sizes = sizes_of(func)
    for size in sizes:
        arguments.append(f"i64 {_scalar(c, Var(size))}")
        c.natural.add(size)
    if lowered.storage.workspace:
        # Also outside of a region: a parallel loop of one iteration runs in place.
        c.shared = "%workspace"
        c.worker = first_worker(c)
        arguments += ["ptr noalias %workspace", "i32 %workers"]
    failures = _require(c, legal) if legal != TRUE else ()
    if lowered.options.checks:
        c.checks = Checks(lowered.shadows)
        # One after the other, so that the first failure in order is the one that is told.
        c.inside_parallel = True
    regions: tuple[str, ...] = ()
    if lowered.options.profile:
        arguments.append("ptr noalias %profile")
        regions = measured(c, lowered.func.body)
    else:
        execute(c, lowered.func.body)
    c.out.effect("ret i32 0")
    body = c.out.body()
    module.functions.append(
        f"define i32 @{symbol}({', '.join(arguments)}) #0 {{\nentry:\n{body}\n}}\n"
    )
    width = lowered.target.vector_bits
    parts = [
        HOOK_DECLARATION if module.parallel else "",
        module.text(),
        'attributes #0 = { nounwind "no-builtins" "no-stack-arg-probe" '
        f'"prefer-vector-width"="{width}" "min-legal-vector-width"="{width}" }}\n',
    ]
    return Kernel(
        func.name,
        "\n".join(part for part in parts if part),
        symbol,
        func.params,
        sizes,
        lowered.storage.shared,
        lowered.storage.worker,
        module.parallel,
        (*failures, *(c.checks.table if c.checks is not None else ())),
        regions,
        lowered.target,
        lowered.options,
    )


def _require(c: Context, legal: Expr) -> tuple[Check]:
    """End the function with result 1 where its sizes would lead outside of an array."""
    failed, going_on = c.out.fresh("failed"), c.out.fresh("on")
    c.out.branch(c.evaluate(c, legal).text, going_on, failed)
    c.out.start(failed)
    c.out.effect("ret i32 1")
    c.out.start(going_on)
    reason = f"the sizes lead outside of an array; legal: {print_expr(legal)}"
    return (Check("", "", reason),)


def _parameter(c: Context, param: Param) -> str:
    value = param.value
    if isinstance(value, Var):
        return f"{memory_type(value.dtype)} {_scalar(c, value)}"
    name = c.out.named(value.name)
    alignment = max(value.alignment or 1, value.dtype.bytes)
    c.places[value.name] = Place(name, alignment)
    access = " readonly" if param.mode in ("in", "const") else ""
    return f"ptr noalias{access} align {alignment} {name}"


def _scalar(c: Context, var: Var) -> str:
    """A scalar parameter, converted from the form in which it travels."""
    name = c.out.named(var.name)
    if var.dtype is DType.INDEX:
        c.variables[var.name] = Value(name, DType.INDEX)
    else:
        c.variables[var.name] = from_memory(c, name, var.dtype, 1)
    return name
