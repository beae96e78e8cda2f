"""From tensor expressions to a program: stages in order, unique names, loop nests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tensorc.dtype import DType
from tensorc.errors import ArgumentError
from tensorc.ir.arith import index
from tensorc.ir.combiner import COMBINERS
from tensorc.ir.depth import within_depth
from tensorc.ir.handles import Handle
from tensorc.ir.naming import first_free, named
from tensorc.ir.nodes import (
    Alloc,
    Buffer,
    Expr,
    For,
    Func,
    Load,
    Node,
    Param,
    Reduce,
    Stmt,
    Store,
    Var,
)
from tensorc.ir.tensors import Axis, Declared, Reduction, Stage, Symbol, Tensor, checked_name
from tensorc.ir.walk import nodes, replace, rewrite, seq
from tensorc.ir.words import kind_of


@within_depth("the program of tc.func_of")
def func_of(
    inputs: Iterable[Tensor | Handle],
    outputs: Tensor | Iterable[Tensor],
    *,
    name: str = "main",
) -> Func:
    """The program that computes `outputs` from `inputs`.

    Its parameters are the inputs (placeholders and scalars) and then the outputs, in the order
    given. Every other tensor that they need is a buffer within the program. Names are the user's;
    one that is taken gets the first free of `_2`, `_3`, ...: sizes choose first, then inputs,
    outputs, temporaries and loops.

    Raises:
        ArgumentError: an input is no placeholder or scalar, an output is not computed, one is
            listed twice, one that is needed is not listed, or a size is no parameter's dimension.
    """
    if not isinstance(outputs, Tensor):
        _check_list("outputs", outputs)
    _check_list("inputs", inputs)
    declared = [_input(value) for value in inputs]
    results = [_output(t) for t in ((outputs,) if isinstance(outputs, Tensor) else outputs)]
    for argument, values in (("inputs", declared), ("outputs", results)):
        if len({id(value) for value in values}) < len(values):
            raise ArgumentError(argument, "one is listed twice")
    if not results:
        raise ArgumentError("outputs", "expected one or more tensors")
    stages = _in_order(buffer.stage for buffer in results if buffer.stage is not None)
    return _Program(stages, declared, results).func(checked_name(name))


def _check_list(argument: str, given: object) -> None:
    if not isinstance(given, Iterable) or isinstance(given, str | bytes):
        hint = "; write [...] around it" if isinstance(given, Tensor | Handle) else ""
        raise ArgumentError(argument, f"expected a list of tensors, got {kind_of(given)}{hint}")


def _input(value: object) -> Declared | Symbol:
    if isinstance(value, Tensor) and value.buffer.stage is None:
        return value.buffer
    if isinstance(value, Handle) and not isinstance(value, Axis | Reduction):
        expr = value.expr
        if isinstance(expr, Symbol) and expr.dtype is not DType.INDEX:
            return expr
        if isinstance(expr, Var):
            raise ArgumentError("inputs", f"size {expr.name} is read from the shapes; leave it out")
    raise ArgumentError("inputs", f"expected placeholders and scalars, got {value!r}")


def _output(value: object) -> Declared:
    if isinstance(value, Tensor):
        if value.buffer.stage is not None:
            return value.buffer
        raise ArgumentError(
            "outputs",
            f"{value.name} is a placeholder; copy it: tc.compute({value.name}.shape, "
            f"lambda *i: {value.name}[i])",
        )
    raise ArgumentError("outputs", f"expected tensors from tc.compute, got {value!r}")


def _expressions(stage: Stage) -> Iterator[Expr]:
    """All expressions of a stage, in the order in which the nest has them."""
    if isinstance(stage.body, Reduction):
        for axis in stage.body.axes:
            yield from (axis.begin, axis.end)
        yield from stage.body.values
    else:
        yield stage.body


def _reads(stage: Stage) -> Iterator[Declared]:
    for expr in _expressions(stage):
        for load in nodes(expr, Load):
            assert isinstance(load.buffer, Declared)
            yield load.buffer


def _in_order(wanted: Iterable[Stage]) -> list[Stage]:
    """The stages that `wanted` need and these, each once and after those it reads."""
    done: dict[Stage, None] = {}

    def visit(stage: Stage) -> None:
        if stage not in done:
            for buffer in _reads(stage):
                if buffer.stage is not None:
                    visit(buffer.stage)
            done[stage] = None

    for stage in wanted:
        visit(stage)
    return list(done)


class _Program:
    """Names and final nodes for what the stages of one program use."""

    def __init__(
        self, stages: Sequence[Stage], inputs: list[Declared | Symbol], outputs: list[Declared]
    ) -> None:
        self.stages, self.inputs, self.outputs = stages, inputs, outputs
        self.sizes = self._sizes()
        self.taken = {*self.sizes}
        self.variables: dict[Symbol, Var] = {}
        self.buffers: dict[object, Buffer] = {}
        self.params = [*(self._input(value) for value in inputs)]
        self.params += [Param(self._computed(buffer), "out") for buffer in outputs]

    def func(self, name: str) -> Func:
        temporaries = []
        for stage in self.stages:
            for output in stage.outputs():
                if (stage, output.buffer.part) not in self.buffers:
                    temporaries.append(self._computed(output.buffer))
        body = seq(*(self._nest(stage) for stage in self.stages))
        for buffer in reversed(temporaries):
            body = Alloc(buffer, body)
        return Func(name, tuple(self.params), named(body))

    def _sizes(self) -> list[str]:
        """The symbolic sizes, in order of appearance. Each must be a parameter's dimension."""
        shapes = [b.shape for b in (*self.inputs, *self.outputs) if isinstance(b, Declared)]
        known = {d.name for shape in shapes for d in shape if isinstance(d, Var)}
        everything = [*shapes, *(s.shape for s in self.stages), *map(_expressions, self.stages)]
        found: dict[str, None] = {}
        for expr in (expr for exprs in everything for expr in exprs):
            for variable in nodes(expr, Var):
                if not isinstance(variable, Symbol):
                    found[variable.name] = None
        unknown = [size for size in found if size not in known]
        if unknown:
            raise ArgumentError(
                "inputs",
                f"size {unknown[0]} is not, on its own, a dimension of any input or output, so no "
                f"call could tell it; add an input whose shape has it",
            )
        return list(found)

    def _fresh(self, name: str) -> str:
        fresh = first_free(name, self.taken)
        self.taken.add(fresh)
        return fresh

    def _input(self, value: Declared | Symbol) -> Param:
        if isinstance(value, Symbol):
            self.variables[value] = variable = Var(self._fresh(value.name), value.dtype)
            return Param(variable)
        buffer = Buffer(self._fresh(value.name), value.shape, value.dtype)
        self.buffers[value] = buffer
        return Param(buffer, value.mode)

    def _computed(self, output: Declared) -> Buffer:
        buffer = Buffer(self._fresh(output.name), output.shape, output.dtype)
        self.buffers[output.stage, output.part] = buffer
        return buffer

    def _resolve(self, expr: Expr) -> Expr:
        def change(node: Node) -> Node | None:
            match node:
                case Symbol():
                    return self._variable(node)
                case Load(buffer=Declared() as buffer):
                    return replace(node, buffer=self._buffer(buffer))
            return None

        return rewrite(expr, change)

    def _variable(self, symbol: Symbol) -> Var:
        if symbol not in self.variables:
            raise ArgumentError("inputs", f"scalar {symbol.name} is used but not among the inputs")
        return self.variables[symbol]

    def _buffer(self, buffer: Declared) -> Buffer:
        key = buffer if buffer.stage is None else (buffer.stage, buffer.part)
        if key not in self.buffers:
            raise ArgumentError("inputs", f"{buffer.name} is read but not among the inputs")
        return self.buffers[key]

    def _loop(self, symbol: Symbol, suffix: str = "") -> Var:
        """The loop variable of an axis in the stage at hand; another stage gets another."""
        self.variables[symbol] = variable = Var(self._fresh(symbol.name + suffix), DType.INDEX)
        return variable

    def _nest(self, stage: Stage) -> Stmt:
        axes = [self._loop(axis, stage.suffix) for axis in stage.axes]
        buffers = tuple(self.buffers[stage, part] for part in range(len(stage.names)))
        point = tuple(axes)
        if isinstance(stage.body, Reduction):
            body = self._reduction(stage.body, buffers, point, stage)
        else:
            value = self._resolve(stage.body)
            body = Store("", buffers[0], point, value, stage.span)
        for axis, extent in zip(reversed(axes), reversed(stage.shape), strict=True):
            body = For(axis, index(0), extent, body, span=stage.span)
        return body

    def _reduction(
        self, body: Reduction, buffers: tuple[Buffer, ...], point: tuple[Var, ...], stage: Stage
    ) -> Stmt:
        identity = COMBINERS[body.op].identity(body.accumulators)
        start = [
            Store("", buffer, point, value, stage.span)
            for buffer, value in zip(buffers, identity, strict=True)
        ]
        loops = []
        for axis in body.axes:
            begin, end = self._resolve(axis.begin), self._resolve(axis.end)
            loops.append((self._loop(axis.symbol), begin, end))
        values = tuple(self._resolve(value) for value in body.values)
        nest: Stmt = Reduce("", body.op, buffers, point, values, stage.span)
        for variable, begin, end in reversed(loops):
            nest = For(variable, begin, end, nest, span=stage.span)
        return seq(*start, nest)
