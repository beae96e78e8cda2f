"""Products: matrices and convolutions. The sum is a stage; scale and bias are maps of it."""

from __future__ import annotations

from collections.abc import Sequence

from tensorc.dtype import DType
from tensorc.graph.elements import (
    Index,
    Number,
    Operand,
    RefusedError,
    Shape,
    axes_of,
    elementwise,
    guard,
    minus,
    number,
    plus,
    quotient,
    reduce_axis,
    remainder,
    stage,
    times,
    within,
)
from tensorc.graph.ops import Kind, operator
from tensorc.ir import build as tc
from tensorc.ir.build import Handle


def _same_dtype(*operands: Operand) -> DType:
    dtypes = {one.dtype for one in operands}
    if len(dtypes) > 1:
        raise RefusedError(f"operands of dtypes {', '.join(sorted(map(str, dtypes)))}")
    if DType.BOOL in dtypes:
        raise RefusedError("operands of dtype bool")
    return dtypes.pop()


def _sum(value: Handle, indices: Sequence[Index]) -> Handle:
    """The sum over the axes among `indices`; with none there is one term, summed as such."""
    axes = axes_of(indices)
    return tc.sum(value, axis=axes or tc.reduce_axis(1, name="one"))


def product(name: str, a: Operand, b: Operand) -> Operand:
    """The matrix product of the last two dimensions, with equal dimensions before them."""
    _same_dtype(a, b)
    *batch, rows, inner = a.shape
    if a.rank != b.rank or (*batch, inner) != b.shape[:-1]:
        raise RefusedError(f"a product of shapes {list(a.shape)} and {list(b.shape)}")
    loops = tuple(f"b{d}" for d in range(len(batch))) if len(batch) > 1 else ("b",) * len(batch)

    def element(*at: Handle) -> Handle:
        *outer, i, j = at
        k = reduce_axis(inner, "k")
        return _sum(a[(*outer, i, k)] * b[(*outer, k, j)], [k])

    shape = (*batch, rows, b.shape[-1])
    return stage(name, shape, (*loops, "i", "j"), element)[0]


@operator("mm", kind=Kind.ANCHOR)
def mm(self: Operand, mat2: Operand) -> Operand:
    return product("matmul", self, mat2)


@operator("bmm", kind=Kind.ANCHOR)
def bmm(self: Operand, mat2: Operand) -> Operand:
    return product("matmul", self, mat2)


def _scaled(value: Operand, factor: Number) -> Operand:
    if factor == 1:
        return value
    dtype = value.dtype
    return elementwise(lambda x: x * number(factor, dtype), value, compute=dtype)


def _added(product: Operand, term: Operand, alpha: Number, beta: Number) -> Operand:
    dtype = product.dtype
    scaled = _scaled(product, alpha)
    if beta == 0:
        return scaled
    total = elementwise(lambda x, y: x + y, scaled, _scaled(term, beta), compute=dtype)
    if total.shape != product.shape:
        raise RefusedError(f"a term of shape {list(term.shape)} for {list(product.shape)}")
    return total


@operator("addmm", kind=Kind.ANCHOR)
def addmm(
    self: Operand, mat1: Operand, mat2: Operand, beta: Number = 1, alpha: Number = 1
) -> Operand:
    _same_dtype(self, mat1, mat2)
    return _added(product("matmul", mat1, mat2), self, alpha, beta)


@operator("baddbmm", kind=Kind.ANCHOR)
def baddbmm(
    self: Operand, batch1: Operand, batch2: Operand, beta: Number = 1, alpha: Number = 1
) -> Operand:
    _same_dtype(self, batch1, batch2)
    return _added(product("matmul", batch1, batch2), self, alpha, beta)


@operator("mv", kind=Kind.ANCHOR)
def mv(self: Operand, vec: Operand) -> Operand:
    _same_dtype(self, vec)

    def element(i: Handle) -> Handle:
        k = reduce_axis(vec.shape[0], "k")
        return _sum(self[i, k] * vec[k], [k])

    return stage("matmul", self.shape[:1], ("i",), element)[0]


@operator("addmv", kind=Kind.ANCHOR)
def addmv(
    self: Operand, mat: Operand, vec: Operand, beta: Number = 1, alpha: Number = 1
) -> Operand:
    _same_dtype(self, mat, vec)
    return _added(mv(mat, vec), self, alpha, beta)


@operator("addbmm", kind=Kind.ANCHOR)
def addbmm(
    self: Operand, batch1: Operand, batch2: Operand, beta: Number = 1, alpha: Number = 1
) -> Operand:
    """Plus the sum of the products of all batches."""
    _same_dtype(self, batch1, batch2)
    batch, rows, inner = batch1.shape

    def element(i: Handle, j: Handle) -> Handle:
        axes = [reduce_axis(batch, "b"), reduce_axis(inner, "k")]
        b, k = axes
        return _sum(batch1[b, i, k] * batch2[b, k, j], axes)

    total = stage("matmul", (rows, batch2.shape[2]), ("i", "j"), element)[0]
    return _added(total, self, alpha, beta)


@operator("dot", kind=Kind.ANCHOR)
def dot(self: Operand, tensor: Operand) -> Operand:
    _same_dtype(self, tensor)

    def element() -> Handle:
        k = reduce_axis(self.shape[0], "k")
        return _sum(self[k] * tensor[k], [k])

    return stage("matmul", (), (), element)[0]


# Convolutions ----------------------------------------------------------------------------------

SPATIAL = {1: ("w",), 2: ("h", "w"), 3: ("d", "h", "w")}


def padded(
    source: Operand, low: Sequence[int], high: Sequence[int], value: Number, name: str = "pad"
) -> Operand:
    """A stage with `value` around the last dimensions, low before and high after each."""
    if not any(low) and not any(high):
        return source
    outer = source.rank - len(low)
    inner = source.shape[outer:]
    grown = tuple(n + a + b for n, a, b in zip(inner, low, high, strict=True))

    def element(*at: Handle) -> Handle:
        own = tuple(minus(i, a) for i, a in zip(at[outer:], low, strict=True))
        tests = [
            test
            for i, n, a, b in zip(own, inner, low, high, strict=True)
            for test in _needed(i, n, a, b)
        ]
        border = number(value, source.dtype)
        return guard(tests, lambda: source[(*at[:outer], *own)], lambda: border)

    axes = (*("n", "c")[:outer], *SPATIAL.get(len(low), map(str, low)))
    return stage(name, (*source.shape[:outer], *grown), axes, element)[0]


def _needed(index: Index, extent: int, low: int, high: int) -> list[Handle]:
    """The sides on which an index can be outside."""
    lower, upper = within(index, 0, extent)
    return [*([lower] if low > 0 else []), *([upper] if high > 0 else [])]


def per_dimension(value: int | tuple[int, ...], rank: int) -> tuple[int, ...]:
    """A list for `rank` dimensions, of which a single number stands for all."""
    given = value if isinstance(value, tuple) else (value,)
    if len(given) == 1:
        return given * rank
    if len(given) != rank:
        raise RefusedError(f"{list(given)} for {rank} dimensions")
    return given


def _stretched(source: Operand, stride: Sequence[int]) -> Operand:
    """A stage with stride - 1 zeros between neighbours along the last dimensions."""
    if all(step == 1 for step in stride):
        return source
    outer = source.rank - len(stride)
    inner = tuple((n - 1) * step + 1 for n, step in zip(source.shape[outer:], stride, strict=True))

    def element(*at: Handle) -> Handle:
        pairs = list(zip(at[outer:], stride, strict=True))
        tests = [Handle(i.expr) % step == 0 for i, step in pairs if step > 1]
        own = [quotient(i, step) for i, step in pairs]
        return guard(tests, lambda: source[(*at[:outer], *own)], lambda: number(0, source.dtype))

    axes = ("n", "c", *SPATIAL[len(stride)])
    return stage("stretch", (*source.shape[:outer], *inner), axes, element)[0]


def _cropped(source: Operand, low: Sequence[int], high: Sequence[int]) -> Operand:
    """`padded` by zeros; where an amount is negative, elements are left out instead."""
    outer = source.rank - len(low)
    cut = [max(-a, 0) for a in low]
    inner = source.shape[outer:]
    kept = tuple(n + min(a, 0) + min(b, 0) for n, a, b in zip(inner, low, high, strict=True))
    if kept != inner:
        whole = source

        def element(*at: Handle) -> Handle:
            own = (plus(i, c) for i, c in zip(at[outer:], cut, strict=True))
            return whole[(*at[:outer], *own)]

        source = Operand((*source.shape[:outer], *kept), source.dtype, element)
    return padded(source, [max(a, 0) for a in low], [max(b, 0) for b in high], 0)


def window_extents(
    source: Shape, kernel: Shape, stride: Sequence[int], dilation: Sequence[int]
) -> Shape:
    return tuple(
        (n - spread * (k - 1) - 1) // step + 1
        for n, k, step, spread in zip(source, kernel, stride, dilation, strict=True)
    )


def _correlated(
    source: Operand, weight: Operand, stride: Sequence[int], dilation: Sequence[int],
    groups: int, turned: bool = False,
) -> Operand:  # fmt: skip
    """The sum over windows. `turned` takes a transposed convolution's weight, back to front."""
    kernel = weight.shape[2:]
    inputs = source.shape[1] // groups
    outputs = weight.shape[1] if turned else weight.shape[0] // groups
    spatial = SPATIAL[len(kernel)]

    def element(n: Handle, c: Handle, *at: Handle) -> Handle:
        channel = reduce_axis(inputs, "rc")
        window = [reduce_axis(k, f"r{axis}") for k, axis in zip(kernel, spatial, strict=True)]
        group = quotient(c, outputs) if groups > 1 else 0
        row = plus(times(group, inputs), channel)
        place = tuple(
            plus(times(i, step), times(r, spread))
            for i, step, r, spread in zip(at, stride, window, dilation, strict=True)
        )
        if turned:
            column = remainder(c, outputs) if groups > 1 else c
            back = tuple(minus(k - 1, r) for k, r in zip(kernel, window, strict=True))
            factor = weight[(row, column, *back)]
        else:
            factor = weight[(c, channel, *window)]
        return _sum(source[(n, row, *place)] * factor, [channel, *window])

    extents = window_extents(source.shape[2:], kernel, stride, dilation)
    shape = (source.shape[0], outputs * groups, *extents)
    return stage("conv", shape, ("n", "c", *spatial), element)[0]


def biased(source: Operand, bias: Operand | None) -> Operand:
    """Plus bias[c] at every place of channel c, dimension 1."""
    if bias is None:
        return source
    dtype = _same_dtype(source, bias)
    return Operand(source.shape, dtype, lambda *i: source[i] + bias[i[1]])


@operator("convolution", kind=Kind.ANCHOR)
def convolution(
    self: Operand,
    weight: Operand,
    bias: Operand | None,
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    transposed: bool,
    output_padding: tuple[int, ...],
    groups: int,
) -> Operand:
    rank = weight.rank - 2
    if rank not in SPATIAL or self.rank != weight.rank:
        raise RefusedError(f"an input of shape {list(self.shape)} and {rank} window dimensions")
    _same_dtype(self, weight)
    step, around, spread, extra = (
        per_dimension(one, rank) for one in (stride, padding, dilation, output_padding)
    )
    if not transposed:
        source = padded(self, around, around, 0)
        return biased(_correlated(source, weight, step, spread, groups), bias)
    reach = [d * (k - 1) for d, k in zip(spread, weight.shape[2:], strict=True)]
    low = [r - p for r, p in zip(reach, around, strict=True)]
    high = [r - p + e for r, p, e in zip(reach, around, extra, strict=True)]
    source = _cropped(_stretched(self, step), low, high)
    ones = (1,) * rank
    return biased(_correlated(source, weight, ones, spread, groups, turned=True), bias)
