"""ONNX's products, windows, resampling, normalisations and recurrent layers, by definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.graph.onnx_models import array, check_node, ints

few = settings(max_examples=12)

# Products ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "right"),
    [((2, 3), (3, 4)), ((3,), (3, 4)), ((2, 3), (3,)), ((3,), (3,)), ((2, 5, 3), (3, 4)),
     ((2, 1, 5, 3), (4, 3, 2)), ((1, 5, 3), (2, 3, 4)), ((2, 2, 3), (3,)), ((3,), (2, 3, 4))],
)  # fmt: skip
def test_matrix_products_broadcast(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    random = np.random.default_rng(1)
    a, b = (random.integers(-4, 4, shape).astype(np.float32) for shape in (left, right))
    check_node("MatMul", [a, b])


@pytest.mark.parametrize("turned", [(0, 0), (1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize("bias", [None, (), (4,), (2, 1), (2, 4)])
def test_gemm(turned: tuple[int, int], bias: tuple[int, ...] | None) -> None:
    random = np.random.default_rng(1)
    a = random.standard_normal((3, 2) if turned[0] else (2, 3)).astype(np.float32)
    b = random.standard_normal((4, 3) if turned[1] else (3, 4)).astype(np.float32)
    c = None if bias is None else random.standard_normal(bias).astype(np.float32)
    given = [a, b] if c is None else [a, b, c]
    check_node("Gemm", given, transA=turned[0], transB=turned[1], alpha=0.5, beta=2.0)


@pytest.mark.parametrize(
    "equation",
    ["ij,jk->ik", "bij,bjk->bik", "ii->i", "ij->ji", "ij->", "i,j->ij", "...ij,...jk->...ik",
     "bhd,bkd->bhk", "ij,jk", "ab,bc,cd->ad", "ij,ij->j", "iij->j", "i,i"],
)  # fmt: skip
def test_einsum(equation: str) -> None:
    sizes = dict(zip("ijkabcdh", (2, 3, 4, 2, 3, 2, 4, 3), strict=True))
    random = np.random.default_rng(2)
    terms = equation.partition("->")[0].split(",")
    values = []
    for term in terms:
        inner = [sizes[c] for c in term.replace("...", "")]
        shape = [2, *inner] if "..." in term else inner
        values.append(random.integers(-3, 4, shape).astype(np.float32))
    check_node("Einsum", values, expected=[np.einsum(equation, *values)], equation=equation)


def test_integer_products() -> None:
    random = np.random.default_rng(1)
    a = random.integers(0, 255, (2, 3)).astype(np.uint8)
    b = random.integers(-100, 100, (3, 4)).astype(np.int8)
    zeros = [np.array(7, np.uint8), np.array(-3, np.int8)]
    expected = (a.astype("i4") - 7) @ (b.astype("i4") + 3)
    check_node("MatMulInteger", [a, b], zeros, expected=[expected], opset=10)
    image = random.integers(0, 255, (1, 2, 4, 4)).astype(np.uint8)
    kernel = random.integers(-9, 9, (3, 2, 3, 3)).astype(np.int8)
    wide = image.astype("i4") - 7
    around = np.pad(wide, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(around, (3, 3), (2, 3))
    product = np.einsum("nchwij,ocij->nohw", windows, kernel.astype("i4")).astype("i4")
    check_node(
        "ConvInteger", [image, kernel], zeros[:1], expected=[product], opset=10, pads=[1] * 4
    )


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_quantisation(axis: int | None) -> None:
    x = np.linspace(-3, 3, 12, dtype=np.float32).reshape(3, 4)
    count = 1 if axis is None else x.shape[axis]
    scale = np.linspace(0.02, 0.05, count, dtype=np.float32)
    zero = np.arange(count).astype(np.uint8) + 100
    if axis is None:
        scale, zero = scale[0], zero[0]
    shape = [1, 1]
    if axis is not None:
        shape[axis] = -1
    s, z = np.reshape(scale, shape), np.reshape(zero, shape).astype("f4")
    q = np.clip(np.rint(x / s) + z, 0, 255).astype(np.uint8)
    more = {} if axis is None else {"axis": axis}
    check_node("QuantizeLinear", [x], [scale, zero], expected=[q], **more)
    real = ((q.astype("f4") - z) * s).astype(np.float32)
    check_node("DequantizeLinear", [q], [scale, zero], expected=[real], **more)


# Windows -----------------------------------------------------------------------------------------


@st.composite
def windows(draw: Any, rank: int) -> dict[str, Any]:
    """The attributes of windows that fit in 6 elements."""
    automatic = draw(st.sampled_from(["NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"]))
    found: dict[str, Any] = {
        "kernel_shape": [draw(st.integers(1, 3)) for _ in range(rank)],
        "strides": [draw(st.integers(1, 3)) for _ in range(rank)],
        "auto_pad": automatic,
    }
    if automatic == "NOTSET":
        found["pads"] = [draw(st.integers(0, k - 1)) for k in found["kernel_shape"] * 2]
    return found


@pytest.mark.parametrize("rank", [1, 2])
@few
@given(st.data())
def test_convolutions(rank: int, data: Any) -> None:
    attributes = data.draw(windows(rank))
    groups = data.draw(st.sampled_from([1, 2]))
    if attributes["auto_pad"] != "SAME_LOWER":
        attributes["dilations"] = [data.draw(st.integers(1, 2)) for _ in range(rank)]
    if attributes["auto_pad"] == "SAME_UPPER":
        attributes["dilations"] = [1] * rank
    x = array(data.draw, (1, 2, *(6,) * rank))
    w = array(data.draw, (2, 2 // groups, *attributes["kernel_shape"]))
    bias = [array(data.draw, (2,))] if data.draw(st.booleans()) else []
    check_node("Conv", [x, w], bias, group=groups, **attributes)


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@few
@given(st.data())
def test_pools(op: str, data: Any) -> None:
    """Against NumPy: ONNX's evaluator fails where pads differ before and after."""
    attributes = data.draw(windows(2))
    x = array(data.draw, (1, 2, 6, 5))
    if op == "MaxPool":
        expected = pooled(x, attributes, -np.inf).max((-2, -1))
    else:
        inside = data.draw(st.booleans())
        counted = pooled(np.ones_like(x), attributes, 0 if inside else 1).sum((-2, -1))
        expected = pooled(x, attributes, 0).sum((-2, -1)) / counted
        attributes["count_include_pad"] = int(not inside)
    check_node(op, [x], expected=[expected], **attributes)


def pooled(x: np.ndarray, attributes: dict[str, Any], border: float) -> np.ndarray:
    """The windows over the last two dimensions, with a border around the tensor."""
    kernel, strides = attributes["kernel_shape"], attributes["strides"]
    pads = attributes.get("pads", [0] * 4)
    if attributes["auto_pad"].startswith("SAME"):
        totals = [
            max(0, (-(-n // s) - 1) * s + k - n)
            for n, k, s in zip(x.shape[2:], kernel, strides, strict=True)
        ]
        halves = [t // 2 for t in totals], [t - t // 2 for t in totals]
        low, high = halves if attributes["auto_pad"] == "SAME_UPPER" else halves[::-1]
        pads = [*low, *high]
    around = [(0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])]
    whole = np.pad(x, around, constant_values=border)
    found = np.lib.stride_tricks.sliding_window_view(whole, kernel, (2, 3))
    return found[:, :, :: strides[0], :: strides[1]]


def test_pools_of_windows_that_reach_beyond() -> None:
    """With ceil_mode a last window counts if it begins inside; only what is there is averaged."""
    x = np.arange(10, dtype=np.float32).reshape(1, 1, 2, 5)
    average = {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}
    expected = np.array([[3, 5, 6.5]], np.float32)[None, None]
    check_node("AveragePool", [x], expected=[expected], opset=19, **average)
    check_node("MaxPool", [x], expected=[np.array([[[[6, 8, 9]]]], np.float32)], **average)
    large = {"kernel_shape": [320, 320], "strides": [320, 320], "ceil_mode": 1}
    check_node("AveragePool", [x], expected=[x.mean((2, 3), keepdims=True)], opset=19, **large)
    check_node("MaxPool", [x], expected=[x.max((2, 3), keepdims=True)], **large)
    one = {"kernel_shape": [3, 3], "pads": [0, 1, 1, 0], "strides": [2, 2], "ceil_mode": 1}
    around = np.pad(x, ((0, 0), (0, 0), (0, 1), (1, 0)))
    sums = [around[..., n : n + 3].sum() / 9 for n in (0, 2)]
    last = around[..., 4:].sum() / 6
    check_node(
        "AveragePool", [x], expected=[np.array([[[[*sums, last]]]], np.float32)], opset=19,
        count_include_pad=1, **one,
    )  # fmt: skip


def test_transposed_convolutions() -> None:
    random = np.random.default_rng(1)
    x = random.standard_normal((1, 2, 3, 3)).astype(np.float32)
    w = random.standard_normal((2, 3, 3, 3)).astype(np.float32)
    for attributes in (
        {}, {"strides": [2, 2]}, {"strides": [2, 2], "pads": [1, 1, 1, 1]},
        {"strides": [2, 3], "pads": [1, 0, 0, 2], "output_padding": [1, 0]},
        {"dilations": [2, 2]}, {"strides": [2, 2], "auto_pad": "SAME_UPPER"},
        {"strides": [3, 2], "output_shape": [10, 8]},
    ):  # fmt: skip
        check_node("ConvTranspose", [x, w], rtol=1e-4, **attributes)


def test_indices_of_a_pool_count_through_the_whole_tensor() -> None:
    x = np.random.default_rng(1).permutation(48).astype(np.float32).reshape(1, 3, 4, 4)
    check_node("MaxPool", [x], outputs=2, kernel_shape=[2, 2], strides=[2, 2])
    for op in ("GlobalAveragePool", "GlobalMaxPool"):
        check_node(op, [x])


# Resampling --------------------------------------------------------------------------------------

TRANSFORMS = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"]


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("transformation", TRANSFORMS)
@settings(max_examples=5)
@given(st.data())
def test_resize(mode: str, transformation: str, data: Any) -> None:
    x = array(data.draw, (1, 1, 3, 5))
    sizes = [1, 1, data.draw(st.integers(2, 7)), data.draw(st.integers(2, 8))]
    attributes: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": transformation}
    if mode == "nearest":
        legal = ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]
        attributes["nearest_mode"] = data.draw(st.sampled_from(legal))
    else:
        attributes["antialias"] = data.draw(st.integers(0, 1))
    check_node("Resize", [x], [None, None, ints(*sizes)], atol=1e-5, rtol=1e-4, **attributes)


def test_upsampling_of_old_models() -> None:
    x = np.arange(4, dtype=np.float32).reshape(1, 1, 2, 2)
    expected = [x.repeat(2, 2).repeat(3, 3)]
    check_node(
        "Upsample", [x], expected=expected, opset=7, mode="nearest", scales=[1.0, 1.0, 2.0, 3.0]
    )
    scales = np.array([1, 1, 2, 3], np.float32)
    check_node("Upsample", [x], [scales], expected=expected, opset=9)
    check_node("Resize", [x], [scales], expected=expected, opset=10)


# Normalisation -----------------------------------------------------------------------------------


def test_norms() -> None:
    random = np.random.default_rng(1)
    x = random.standard_normal((2, 4, 3, 3)).astype(np.float32)
    scale, bias, mean = (random.standard_normal(4).astype(np.float32) for _ in range(3))
    variance = random.uniform(0.5, 2, 4).astype(np.float32)
    known = [scale, bias, mean, variance]
    s, b, m, v = (one[:, None, None] for one in known)
    expected = (x - m) / np.sqrt(v + 1e-5) * s + b
    for opset in (7, 9, 14, 15):
        check_node("BatchNormalization", [x], known, expected=[expected], opset=opset, rtol=1e-4)
    check_node("InstanceNormalization", [x], [scale, bias], rtol=1e-4)
    squares = np.pad(x * x, ((0, 0), (1, 1), (0, 0), (0, 0)))
    sums = squares[:, :-2] + squares[:, 1:-1] + squares[:, 2:]
    expected = x / (2 + 0.5 / 3 * sums) ** 0.75
    check_node("LRN", [x], expected=[expected], size=3, alpha=0.5, bias=2.0, rtol=1e-4)
    for p in (1, 2):
        norm = np.linalg.norm(x, p, axis=1, keepdims=True)
        check_node("LpNormalization", [x], expected=[x / norm], p=p, axis=1)
    check_node("MeanVarianceNormalization", [x], rtol=1e-4)
    for axis in (-1, 1):
        shape = x.shape[axis:]
        weight = random.standard_normal(shape).astype(np.float32)
        check_node("LayerNormalization", [x], [weight, weight], axis=axis, rtol=1e-4)
    grouped = x.reshape(2, 2, -1)
    deviation = np.sqrt(grouped.var(2, keepdims=True) + 1e-5)
    normed = ((grouped - grouped.mean(2, keepdims=True)) / deviation).reshape(x.shape)
    by_channel = normed * scale[:, None, None] + bias[:, None, None]
    check_node(
        "GroupNormalization", [x], [scale, bias], expected=[by_channel], opset=21, num_groups=2,
        rtol=1e-4,
    )  # fmt: skip


# Recurrent layers --------------------------------------------------------------------------------


@pytest.mark.parametrize(("op", "gates"), [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
@pytest.mark.parametrize("direction", ["forward", "reverse"])
def test_recurrent_layers(op: str, gates: int, direction: str) -> None:
    random = np.random.default_rng(1)
    x = random.standard_normal((3, 2, 4)).astype(np.float32)
    w = random.standard_normal((1, gates * 5, 4)).astype(np.float32) / 2
    r = random.standard_normal((1, gates * 5, 5)).astype(np.float32) / 2
    b = random.standard_normal((1, 2 * gates * 5)).astype(np.float32)
    expected = stepped(op, x[::-1] if direction == "reverse" else x, w[0], r[0], b[0])
    if direction == "reverse":
        expected[0] = expected[0][::-1]
    check_node(
        op, [x], [w, r, b], expected=expected, opset=14, outputs=len(expected), hidden_size=5,
        direction=direction, rtol=1e-4,
    )  # fmt: skip


def stepped(op: str, x: Any, w: Any, r: Any, b: Any) -> list[np.ndarray]:
    """The layer by its definition: all hidden states, the last one, and an LSTM's cell."""
    sigmoid = lambda a: 1 / (1 + np.exp(-a))  # noqa: E731
    size = r.shape[1]
    h, c = np.zeros((2, size), np.float32), np.zeros((2, size), np.float32)
    bw, br = np.split(b, 2)
    rows = []
    for row in x:
        given, kept = row @ w.T + bw, h @ r.T + br
        if op == "RNN":
            h = np.tanh(given + kept)
        elif op == "GRU":
            z, s = (
                sigmoid(given[:, n * size :][:, :size] + kept[:, n * size :][:, :size])
                for n in (0, 1)
            )
            inner = (s * h) @ r[2 * size :].T + br[2 * size :]
            h = (1 - z) * np.tanh(given[:, 2 * size :] + inner) + z * h
        else:
            i, o, f, g = np.split(given + kept, 4, 1)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
        rows.append(h)
    whole = [np.stack(rows)[:, None], h[None]]
    return [*whole, c[None]] if op == "LSTM" else whole
