"""Every operator against torch, on random small shapes."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tensorc.graph.elements import common_dtype, operand, promote_dtypes
from tensorc.graph.ops import Kind, table
from tensorc.graph.torch_tensors import dtype_of
from tensorc.ir import build as tc
from tests.graph.torch_nodes import check

aten = torch.ops.aten
pytestmark = pytest.mark.torch

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGERS = [torch.int64, torch.int32, torch.int8, torch.uint8, torch.int16]
DTYPES = [*FLOATS, *INTEGERS, torch.bool]
extents = st.sampled_from([0, 1, 1, 2, 3, 4])
shapes = st.lists(extents, max_size=3).map(tuple)
SPECIAL = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, 1e-30, 88.0, -104.0, 1e10]


@st.composite
def tensors(draw, shape=shapes, dtype=None, special=True, low=-4.0, high=4.0):
    """A tensor of drawn shape and dtype; floats now and then are special."""
    size = draw(shape) if isinstance(shape, st.SearchStrategy) else shape
    kind = dtype if isinstance(dtype, torch.dtype) else draw(st.sampled_from(dtype or DTYPES))
    seed = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    values = torch.rand(size, generator=seed) * (high - low) + low
    if kind.is_floating_point:
        result = values.to(kind)
        if special and result.numel() and draw(st.booleans()):
            place = draw(st.integers(0, result.numel() - 1))
            result.view(-1)[place] = draw(st.sampled_from(SPECIAL))
        return result
    if kind is torch.bool:
        return values > 0
    return values.round().abs().to(kind) if kind is torch.uint8 else values.round().to(kind)


def smaller(draw, shape):
    """A shape that broadcasts to `shape`."""
    kept = draw(st.integers(0, len(shape)))
    return tuple(draw(st.sampled_from([1, n])) for n in shape[len(shape) - kept :])


# Dtypes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("a", DTYPES)
@pytest.mark.parametrize("b", DTYPES)
def test_promotion_of_dtypes(a, b):
    assert promote_dtypes(dtype_of(a), dtype_of(b)) is dtype_of(torch.promote_types(a, b))


@given(tensors(), tensors() | st.sampled_from([True, 2, -1, 2.5]))
def test_promotion_of_operands(a, b):
    def ours(x):
        if not isinstance(x, torch.Tensor):
            return x
        return operand(tc.placeholder(tuple(x.shape), dtype_of(x.dtype)))

    assert common_dtype(ours(a), ours(b)) is dtype_of(torch.result_type(a, b))


# Maps --------------------------------------------------------------------------------------------

REAL = [
    "exp", "log", "sqrt", "rsqrt", "tanh", "erf", "sigmoid", "sin", "cos", "reciprocal", "log1p",
    "expm1", "sinh", "cosh", "tan", "log2", "log10", "exp2",
]  # fmt: skip
NUMERIC = ["neg", "abs", "sign", "floor", "ceil", "trunc", "round", "relu"]
SAME = [*NUMERIC, "isnan", "isinf", "logical_not"]
BINARY = [
    "add", "mul", "maximum", "minimum", "eq", "ne", "lt", "le", "gt", "ge", "logical_and",
    "logical_or", "logical_xor",
]  # fmt: skip
INTEGRAL = ["bitwise_and", "bitwise_or", "bitwise_xor"]


@pytest.mark.parametrize("name", REAL)
@given(data=st.data())
def test_functions_of_real_numbers(name, data):
    low = 0.1 if name in ("log", "sqrt", "rsqrt", "log2", "log10", "reciprocal") else -0.9
    x = data.draw(tensors(low=low, dtype=[torch.float32, torch.float64, torch.int32]))
    check(getattr(aten, name).default, x, scale=8)


@pytest.mark.parametrize("name", SAME)
@given(data=st.data())
def test_functions_within_a_dtype(name, data):
    x = data.draw(tensors())
    if x.dtype is torch.bool and name in NUMERIC:
        x = x.to(torch.int32)
    check(getattr(aten, name).default, x)


@pytest.mark.parametrize("name", BINARY + INTEGRAL)
@given(data=st.data())
def test_two_operands_broadcast_and_promote(name, data):
    dtypes = [t for t in DTYPES if not t.is_floating_point] if name in INTEGRAL else DTYPES
    a = data.draw(tensors(dtype=dtypes))
    b = data.draw(tensors(shape=smaller(data.draw, a.shape), dtype=dtypes))
    if data.draw(st.booleans()):
        a, b = b, a
    packet = getattr(aten, name)
    check(packet.Tensor if "Tensor" in packet.overloads() else packet.default, a, b)


@pytest.mark.parametrize("name", ["add", "mul", "sub", "div", "eq", "lt", "remainder", "fmod"])
@given(data=st.data())
def test_a_number_is_an_operand_too(name, data):
    x = data.draw(tensors(dtype=[torch.float32, torch.int64, torch.int32]))
    check(getattr(aten, name).Scalar, x, data.draw(st.sampled_from([2, -3, 0.5, 2.5])))


@given(st.data())
def test_sub_add_and_their_alpha(data):
    dtype = data.draw(st.sampled_from([torch.float32, torch.int32, torch.int64]))
    a, b = data.draw(tensors(dtype=dtype)), data.draw(tensors(shape=(), dtype=dtype))
    alpha = data.draw(st.sampled_from([1, 2, -3]))
    check(aten.sub.Tensor, a, b, alpha=alpha)
    check(aten.add.Tensor, a, b, alpha=alpha)
    check(aten.rsub.Scalar, a, 3, alpha)


@given(st.data())
def test_division(data):
    dtypes = [torch.float32, torch.float64, torch.int64, torch.int32]
    a = data.draw(tensors(dtype=dtypes, special=False))
    b = data.draw(tensors(shape=smaller(data.draw, a.shape), dtype=dtypes, special=False))
    check(aten.div.Tensor, a, b)
    # torch refuses to divide integers by zero.
    b = torch.where(b == 0, torch.ones_like(b), b)
    for mode in ("floor", "trunc"):
        check(aten.div.Tensor_mode, a, b, rounding_mode=mode)
    check(aten.remainder.Tensor, a, b)
    check(aten.fmod.Tensor, a, b)


@given(tensors(dtype=[torch.float32, torch.float64, torch.int64], low=0.25), st.sampled_from(
    [0, 1, 2, 3, 4, 7, 0.5, -0.5, -1, -2, 1.5, 2.5]))  # fmt: skip
def test_powers(x, exponent):
    if not x.dtype.is_floating_point and exponent < 0:
        exponent = -exponent
    check(aten.pow.Tensor_Scalar, x, exponent, scale=16)


@given(st.data())
def test_powers_of_tensors(data):
    a = data.draw(tensors(dtype=torch.float32, low=0.25))
    b = data.draw(tensors(shape=smaller(data.draw, a.shape), dtype=torch.float32, special=False))
    check(aten.pow.Tensor_Tensor, a, b, scale=64)
    check(aten.pow.Scalar, 2.5, b, scale=64)


@given(st.data())
def test_where(data):
    condition = data.draw(tensors(dtype=torch.bool))
    a = data.draw(tensors(shape=smaller(data.draw, condition.shape)))
    b = data.draw(tensors(shape=smaller(data.draw, condition.shape)))
    check(aten.where.self, condition, a, b)


@given(tensors(dtype=FLOATS))
def test_activations(x):
    # Half precision rounds once in torch and after every operation here.
    scale = 2 if x.dtype in (torch.float16, torch.bfloat16) else 4
    # torch's vector code takes infinity to NaN.
    finite = torch.where(x.isinf(), torch.full_like(x, 3.0), x)
    check(aten.gelu.default, finite, scale=scale)
    check(aten.gelu.default, finite, approximate="tanh", scale=scale)
    check(aten.hardtanh.default, x, -1.5, 2)
    check(aten.leaky_relu.default, x, 0.2)
    check(aten.elu.default, x, 1.25, scale=scale)
    check(aten.silu.default, x, scale=scale)


@given(tensors(), st.sampled_from([(None, 1), (-1, None), (-1, 2), (0.5, 2.5), (2, 1)]))
def test_clamp(x, limits):
    if x.dtype is torch.bool:
        x = x.to(torch.uint8)
    if x.dtype is torch.uint8:
        limits = tuple(None if one is None else abs(one) for one in limits)
    check(aten.clamp.default, x, *limits)


@given(tensors(special=False), st.sampled_from(DTYPES))
def test_conversions(x, dtype):
    if x.dtype.is_floating_point and not dtype.is_floating_point:
        x = x.abs()
    check(aten._to_copy.default, x, dtype=dtype)


# Views and fills ---------------------------------------------------------------------------------

boxes = st.lists(extents, min_size=1, max_size=4).map(tuple)


def dims(draw, x):
    return draw(st.integers(-x.dim(), x.dim() - 1))


@given(st.data())
def test_permute_transpose_expand_and_unit_dimensions(data):
    x = data.draw(tensors(shape=boxes, dtype=torch.int32))
    order = data.draw(st.permutations(range(x.dim())))
    check(aten.permute.default, x, order)
    check(aten.transpose.int, x, dims(data.draw, x), dims(data.draw, x))
    check(aten.unsqueeze.default, x, data.draw(st.integers(-x.dim() - 1, x.dim())))
    check(aten.squeeze.default, x)
    check(aten.squeeze.dim, x, dims(data.draw, x))
    check(aten.squeeze.dims, x, [0, -1] if x.dim() > 1 else [0])
    grown = [n if n != 1 else data.draw(st.integers(1, 3)) for n in x.shape]
    check(aten.expand.default, x, [2, *grown])
    check(aten.expand.default, x, [-1] * x.dim())
    check(aten.flip.default, x, sorted({dims(data.draw, x) % x.dim() for _ in range(2)}))


def factors(draw, size):
    """A shape of `size` elements."""
    if size == 0:
        return draw(st.sampled_from([(0,), (0, 10), (4, 0), (2, 0, 3)]))
    shape = []
    while size > 1:
        divisors = [d for d in range(1, size + 1) if size % d == 0]
        shape.append(draw(st.sampled_from(divisors)))
        size //= shape[-1]
        if len(shape) > 4:
            break
    return (*shape, size)


@given(st.data())
def test_reshapes(data):
    x = data.draw(tensors(shape=boxes, dtype=torch.int32))
    check(aten.view.default, x, factors(data.draw, x.numel()))
    if x.numel():
        shape = [*factors(data.draw, x.numel())]
        shape[data.draw(st.integers(0, len(shape) - 1))] = -1
        check(aten.view.default, x, shape)


@given(st.data())
def test_slices_and_pieces(data):
    x = data.draw(tensors(shape=boxes, dtype=torch.int32))
    at = dims(data.draw, x)
    bounds = st.none() | st.integers(-6, 6)
    step = data.draw(st.integers(1, 3))
    check(aten.slice.Tensor, x, at, data.draw(bounds), data.draw(bounds), step)
    extent = x.shape[at]
    cut = data.draw(st.integers(0, extent))
    check(aten.split_with_sizes.default, x, [cut, extent - cut, 0], at)
    check(aten.split.Tensor, x, data.draw(st.integers(1, 3)), at)
    if extent:
        check(aten.select.int, x, at, data.draw(st.integers(-extent, extent - 1)))
        check(aten.unbind.int, x, at)
    check(aten.repeat.default, x, [2, *(data.draw(st.integers(1, 2)) for _ in x.shape)])
    if x.dim() > 1:
        check(aten.diagonal.default, x, data.draw(st.integers(-2, 2)), 0, -1)
        check(aten.tril.default, x, data.draw(st.integers(-2, 2)))
        check(aten.triu.default, x, data.draw(st.integers(-2, 2)))


def test_slices_to_the_end():
    check(aten.slice.Tensor, torch.arange(6), 0, 2, 9223372036854775807)
    check(aten.pixel_shuffle.default, torch.arange(24.0).view(1, 8, 3, 1), 2)


def test_fills():
    check(aten.full.default, [2, 3], 1.5)
    check(aten.full.default, [2], True, dtype=torch.bool)
    check(aten.full.default, [], 7)
    check(aten.full_like.default, torch.zeros(2, dtype=torch.int8), 300 - 256)
    check(aten.scalar_tensor.default, -math.inf, dtype=torch.float32)
    check(aten.zeros.default, [2, 0])
    check(aten.ones.default, [2], dtype=torch.int64)
    check(aten.fill.Scalar, torch.zeros(2), 3)
    check(aten.fill.Tensor, torch.zeros(2), torch.tensor(3))
    check(aten.eye.default, 3)
    check(aten.eye.m, 2, 4, dtype=torch.int32)


@given(st.sampled_from([(5,), (2, 7), (7, 2, -2), (0, 1, 0.1), (0.5, 4), (3, 3), (1, 10, 4)]))
def test_arange(bounds):
    overload = (aten.arange.default, aten.arange.start, aten.arange.start_step)[len(bounds) - 1]
    check(overload, *bounds)


# Products ----------------------------------------------------------------------------------------

sizes = st.sampled_from([0, 1, 2, 3, 5])
numbers = [torch.float32, torch.float64, torch.int64, torch.float16]


@given(st.data())
def test_matrix_products(data):
    m, n, k, b = (data.draw(sizes) for _ in range(4))
    dtype = data.draw(st.sampled_from(numbers))

    def drawn(*shape):
        return data.draw(tensors(shape=shape, dtype=dtype, special=False))

    scale = 8 * max(k, 1)
    check(aten.mm.default, drawn(m, k), drawn(k, n), scale=scale)
    check(aten.bmm.default, drawn(b, m, k), drawn(b, k, n), scale=scale)
    term = data.draw(st.sampled_from([(n,), (m, n), (1, n)]))
    check(aten.addmm.default, drawn(*term), drawn(m, k), drawn(k, n), scale=scale)
    if dtype is not torch.float16:
        check(aten.addmm.default, drawn(n), drawn(m, k), drawn(k, n), beta=2, alpha=3,
              scale=4 * scale)  # fmt: skip
    check(aten.baddbmm.default, drawn(b, m, n), drawn(b, m, k), drawn(b, k, n), scale=scale)
    check(aten.mv.default, drawn(m, k), drawn(k), scale=scale)
    check(aten.dot.default, drawn(k), drawn(k), scale=scale)


@given(st.data())
def test_convolutions(data):
    rank = data.draw(st.sampled_from([1, 2, 2, 3]))
    groups = data.draw(st.sampled_from([1, 1, 2, 3]))
    transposed = data.draw(st.booleans())
    inputs, outputs = (groups * data.draw(st.integers(1, 2)) for _ in range(2))
    small = st.integers(1, 2)
    kernel = [data.draw(st.integers(1, 3)) for _ in range(rank)]
    stride, dilation = ([data.draw(small) for _ in range(rank)] for _ in range(2))
    padding = [data.draw(st.integers(0, 2)) for _ in range(rank)]
    steps = zip(stride, dilation, strict=True)
    extra = [data.draw(st.integers(0, max(pair) - 1)) for pair in steps]
    if not transposed:
        extra = [0] * rank
    inner = [data.draw(st.integers(2, 5)) for _ in range(rank)]
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    if transposed:
        bounds = zip(inner, stride, padding, reach, extra, strict=True)
        if any((n - 1) * s - 2 * p + r + e <= 0 for n, s, p, r, e in bounds):
            padding = [0] * rank
    elif any(n + 2 * p < r for n, p, r in zip(inner, padding, reach, strict=True)):
        dilation, kernel = [1] * rank, [min(k, 2) for k in kernel]
    x = data.draw(tensors(shape=(data.draw(small), inputs, *inner), dtype=torch.float32,
                          special=False))  # fmt: skip
    first = (inputs, outputs // groups) if transposed else (outputs, inputs // groups)
    weight = data.draw(tensors(shape=(*first, *kernel), dtype=torch.float32, special=False))
    bias = data.draw(st.none() | tensors(shape=(outputs,), dtype=torch.float32, special=False))
    check(aten.convolution.default, x, weight, bias, stride, padding, dilation, transposed, extra,
          groups, scale=64)  # fmt: skip


# Windows -----------------------------------------------------------------------------------------


@given(st.data())
def test_pooling(data):
    kernel = [data.draw(st.integers(1, 3)) for _ in range(2)]
    stride = data.draw(st.sampled_from([[], [1], [2], [2, 1], [3, 2]]))
    padding = [data.draw(st.integers(0, k // 2)) for k in kernel]
    ceil = data.draw(st.booleans())
    outer = data.draw(st.sampled_from([(2,), (2, 2)]))
    shape = (*outer, *(data.draw(st.integers(3, 6)) for _ in "hw"))
    x = data.draw(tensors(shape=shape, dtype=[torch.float32, torch.float64]))
    dilation = data.draw(st.sampled_from([1, 1, 2]))
    sizes = zip(shape[-2:], padding, kernel, strict=True)
    if all(n + 2 * p > dilation * (k - 1) for n, p, k in sizes):
        check(aten.max_pool2d_with_indices.default, x, kernel, stride, padding, dilation, ceil)
    include = data.draw(st.booleans())
    divisor = data.draw(st.sampled_from([None, None, 3]))
    check(aten.avg_pool2d.default, x, kernel, stride, padding, ceil, include, divisor)
    result = [data.draw(st.integers(1, 4)) for _ in "hw"]
    check(aten._adaptive_avg_pool2d.default, x, result, scale=4)
    if len(shape) == 4:
        check(aten.upsample_nearest2d.default, x, [data.draw(st.integers(1, 7)) for _ in "hw"])
        factors = [float(data.draw(st.integers(1, 3))) for _ in "hw"]
        check(aten.upsample_nearest2d.vec, x, None, factors)
        check(aten.upsample_nearest2d.vec, x, [data.draw(st.integers(1, 7)) for _ in "hw"], None)


def test_pooling_in_three_dimensions():
    x = torch.randn(1, 2, 4, 5, 4)
    check(aten.max_pool3d_with_indices.default, x, [2, 3, 2], [1, 2, 2], [1, 1, 0])
    check(aten.avg_pool3d.default, x, [2, 3, 2], [1, 2, 2], [1, 1, 0])
    check(aten._adaptive_avg_pool3d.default, x, [2, 3, 3])


# Reductions --------------------------------------------------------------------------------------


def some_dims(draw, x):
    some = st.lists(st.integers(0, max(x.dim() - 1, 0)), unique=True, max_size=2)
    chosen = draw(st.none() | some)
    return chosen if x.dim() else None


@given(st.data())
def test_reductions(data):
    x = data.draw(tensors(special=False))
    keepdim = data.draw(st.booleans())
    chosen = some_dims(data.draw, x)
    check(aten.sum.dim_IntList, x, chosen, keepdim, scale=8)
    check(aten.any.dims, x, chosen or None, keepdim)
    check(aten.all.dims, x, chosen or None, keepdim)
    if x.dtype.is_floating_point:
        check(aten.mean.dim, x, chosen, keepdim, scale=4)
        wide = x.to(torch.float64)
        less = data.draw(st.sampled_from([None, 0, 1]))
        check(aten.var.correction, wide, chosen, correction=less, keepdim=keepdim, scale=8)
    check(aten.sum.default, x, scale=16)
    check(aten.any.default, x)
    if x.dim():
        at = dims(data.draw, x)
        check(aten.cumsum.default, x, at, scale=16)
        check(aten.prod.dim_int, x, at, keepdim, scale=64)


@given(st.data())
def test_extremes_and_where_they_are(data):
    x = data.draw(tensors(shape=st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple)))
    keepdim = data.draw(st.booleans())
    at = dims(data.draw, x)
    check(aten.amax.default, x, [at], keepdim)
    check(aten.amin.default, x, some_dims(data.draw, x) or [], keepdim)
    if x.dtype is not torch.bool:
        check(aten.max.dim, x, at, keepdim)
        check(aten.min.dim, x, at, keepdim)
        check(aten.argmax.default, x, data.draw(st.sampled_from([None, at])), keepdim)
        check(aten.argmin.default, x, at)
        check(aten.max.default, x)
        check(aten.min.default, x)


# Normalisations ----------------------------------------------------------------------------------


@given(tensors(shape=boxes, dtype=FLOATS, special=False), st.data())
def test_softmax(x, data):
    at = dims(data.draw, x)
    half = x.dtype in (torch.float16, torch.bfloat16)
    check(aten._softmax.default, x, at, False, scale=1 if half else 4)
    check(aten._log_softmax.default, x, at, False, scale=1 if half else 4)
    check(aten._safe_softmax.default, x, at, scale=1 if half else 4)


def test_rows_of_minus_infinity():
    x = torch.tensor([[-math.inf] * 8 + [1.0, 2.0], [-math.inf] * 10])
    check(aten._softmax.default, x, -1, False)
    check(aten._safe_softmax.default, x, -1)


def test_half_softmax_of_equal_values():
    check(aten._softmax.default, torch.zeros(1, 512, dtype=torch.bfloat16), -1, False)


@given(st.data())
def test_layer_and_group_norm(data):
    outer = data.draw(st.lists(st.integers(0, 3), max_size=2).map(tuple))
    inner = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=2).map(tuple))
    kind = data.draw(st.sampled_from([torch.float32, torch.float64]))

    def drawn(shape, dtype=torch.float32):
        return tensors(shape=shape, dtype=dtype, special=False)

    x = data.draw(drawn(outer + inner, kind))
    affine = [data.draw(st.none() | drawn(inner, kind)) for _ in "wb"]
    check(aten.native_layer_norm.default, x, inner, *affine, 1e-5, scale=64)
    n, groups, per, area = (data.draw(st.integers(1, 3)) for _ in range(4))
    channels = groups * per
    y = data.draw(drawn((n, channels, area)))
    affine = [data.draw(st.none() | drawn((channels,))) for _ in "wb"]
    check(aten.native_group_norm.default, y, *affine, n, channels, area, groups, 1e-5, scale=512)


@given(st.data())
def test_batch_norm(data):
    channels = data.draw(st.integers(1, 4))
    inner = data.draw(st.lists(st.integers(0, 3), max_size=2).map(tuple))
    x = data.draw(tensors(shape=(2, channels, *inner), dtype=torch.float32, special=False))

    def drawn(low=-2.0):
        return data.draw(tensors(shape=(channels,), dtype=torch.float32, special=False, low=low))

    check(aten._native_batch_norm_legit_no_training.default, x, drawn(), drawn(), drawn(),
          drawn(0.5), 0.1, 1e-5, scale=16, only=1)  # fmt: skip


# Reading at computed places ----------------------------------------------------------------------


@given(st.data())
def test_gathers(data):
    extents = st.tuples(st.integers(1, 4), st.integers(1, 3))
    x = data.draw(tensors(shape=extents, dtype=torch.float32))
    kind = data.draw(st.sampled_from([torch.int64, torch.int32]))

    def indices(shape, extent, low=0):
        return torch.randint(low, extent, shape).to(kind)

    shape = data.draw(shapes)
    check(aten.embedding.default, x, indices(shape, x.shape[0]))
    check(aten.index_select.default, x, 1, indices((3,), x.shape[1]))
    check(aten.index.Tensor, x, [None, indices(shape, x.shape[1], -x.shape[1]).long()])
    both = [indices((2, 1), x.shape[0]).long(), indices((3,), x.shape[1]).long()]
    check(aten.index.Tensor, x, both)
    along = data.draw(st.sampled_from([0, 1]))
    picked = [min(2, n) for n in x.shape]
    check(aten.gather.default, x, along, indices(picked, x.shape[along]).long())


def test_indices_that_do_not_lie_together():
    x = torch.randn(2, 3, 4)
    check(aten.index.Tensor, x, [torch.tensor([0, 1]), None, torch.tensor([3, -1])])
    check(aten.index.Tensor, x, [None, torch.tensor([[2], [0]]), torch.tensor([3, -1])])


@given(st.data())
def test_joining_and_padding(data):
    x = data.draw(tensors(shape=boxes, dtype=[torch.float32, torch.int32, torch.bool]))
    at = dims(data.draw, x)
    parts = [x]
    for _ in range(data.draw(st.integers(1, 2))):
        shape = list(x.shape)
        shape[at] = data.draw(extents)
        parts.append(data.draw(tensors(shape=tuple(shape))))
    check(aten.cat.default, parts, at)
    pads = [data.draw(st.integers(0, 2)) for _ in range(2 * data.draw(st.integers(0, x.dim())))]
    check(aten.constant_pad_nd.default, x, pads, data.draw(st.sampled_from([0, 1])))
    if x.shape[-1] > 1:
        check(aten.constant_pad_nd.default, x, [-1, 1], 0)
    first = x[..., :1]
    src = data.draw(tensors(shape=tuple(first.shape), dtype=x.dtype))
    check(aten.slice_scatter.default, x, src, -1, 0, 1)


def test_joins_with_nothing_and_scatters():
    check(aten.cat.default, [torch.zeros(0), torch.randn(2, 3)], 0)
    check(aten.cat.default, [torch.zeros(2, 0), torch.zeros(2, 0)], 1)
    check(aten.slice_scatter.default, torch.zeros(7, 2), torch.randn(3, 2), 0, 1, 7, 2)
    check(aten.select_scatter.default, torch.zeros(4, 2), torch.randn(4), 1, -1)


def test_padding_by_the_edge():
    x = torch.randn(1, 2, 4, 5)
    check(aten.reflection_pad2d.default, x, [2, 3, 1, 0])
    check(aten.replication_pad2d.default, x, [2, 3, 1, 0])


# The table ---------------------------------------------------------------------------------------


def test_every_rows_operator_says_what_it_reduces():
    assert all(entry.reduced for entry in table().values() if entry.kind is Kind.ROWS)
