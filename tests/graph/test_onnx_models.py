"""Whole ONNX models: files, known values, branches, functions, examples, comparisons."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, parser

import tensorc as tc
from tensorc.errors import ArgumentError
from tensorc.graph.backend import interpreted
from tensorc.graph.onnx_network import load
from tensorc.graph.unsupported import UnsupportedNetworkError
from tests.graph.onnx_models import check, ints, model_of, ours, theirs


def parsed(body: str, head: str = 'ir_version: 8, opset_import: ["" : 17]') -> Any:
    return parser.parse_model(f"<{head}> {body}")


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def with_weights(model: Any, *weights: np.ndarray) -> Any:
    """The model with its last inputs as initializers."""
    inputs = list(model.graph.input)[len(model.graph.input) - len(weights) :]
    for value, weight in zip(inputs, weights, strict=True):
        model.graph.initializer.append(numpy_helper.from_array(weight, value.name))
        model.graph.input.remove(value)
    return model


def layers(seed: int = 0) -> Any:
    """Two linear layers."""
    model = parsed("""
    two (float[2,3] x, float[3,4] w1, float[4,2] w2) => (float[2,2] y) {
      first = MatMul (x, w1)
      active = Relu (first)
      second = MatMul (active, w2)
      y = Sigmoid (second)
    }""")
    return with_weights(model, random(3, 4, seed=seed), random(4, 2, seed=seed + 1))


# Calls -------------------------------------------------------------------------------------------


def test_a_model_is_compiled_and_called_by_order_and_by_name() -> None:
    model = parsed("""
    g (float[2,3] x, float[2,3] other) => (float[2,3] total, float[3] sums) {
      total = Add (x, other)
      axes = Constant <value_ints: ints = [0]> ()
      sums = ReduceMean <axes = [0], keepdims = 0> (total)
    }""")
    network = tc.compile(model, scheduler="none")
    x, other = random(2, 3), random(2, 3, seed=1)
    expected = theirs(model, {"x": x, "other": other})
    for found in (network(x, other), network(x, other=other), network(other=other, x=x)):
        assert isinstance(found, tuple)
        for mine, wanted in zip(found, expected, strict=True):
            np.testing.assert_allclose(mine, wanted, rtol=1e-6)
    alone = tc.compile(layers(), backend=interpreted)
    assert isinstance(alone(x), np.ndarray)


def test_a_model_runs_without_torch() -> None:
    script = f"""
import sys
import numpy as np
import tensorc as tc
network = tc.compile({layers().SerializeToString()!r}, scheduler="none")
assert network(np.ones((2, 3), np.float32)).shape == (2, 2)
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_halves_are_arrays_of_their_dtype() -> None:
    import ml_dtypes

    x = np.array([1.5, -2], ml_dtypes.bfloat16)
    model = model_of([helper.make_node("Neg", ["x"], ["y"])], {"x": x}, ["y"])
    found = tc.compile(model, backend=interpreted)(x)
    assert found.dtype == x.dtype
    assert found.tolist() == [-1.5, 2]


def test_outputs_may_be_inputs_constants_and_the_same_twice() -> None:
    model = parsed("""
    g (float[2] x, float[2] w) => (float[2] x, float[2] w, float[2] y, float[2] z) {
      y = Neg (x)
      z = Identity (y)
    }""")
    model = with_weights(model, np.array([3, 4], np.float32))
    x = np.array([1, 2], np.float32)
    found = tc.compile(model, backend=interpreted)(x)
    assert [one.tolist() for one in found] == [[1, 2], [3, 4], [-1, -2], [-1, -2]]


def test_an_input_with_a_default_is_no_input() -> None:
    model = layers()
    weight = model.graph.initializer[0]
    declared = helper.make_tensor_value_info(weight.name, 1, list(weight.dims))
    model.graph.input.append(declared)
    assert load(model).names == ("x",)


# Files -------------------------------------------------------------------------------------------


def saved(path: Path, **external: Any) -> Path:
    onnx.save(layers(), path, save_as_external_data=bool(external), **external)
    return path


def test_files_bytes_and_models_are_the_same_network(tmp_path: Path) -> None:
    path = saved(tmp_path / "two.onnx")
    x = random(2, 3)
    expected = theirs(layers(), {"x": x})[0]
    for source in (path, str(path), path.read_bytes(), onnx.load(path)):
        np.testing.assert_allclose(ours(load(source), {"x": x})[0], expected, rtol=1e-6)


def test_weights_beside_the_model_are_read_in_place(tmp_path: Path) -> None:
    path = saved(tmp_path / "two.onnx", location="two.data", size_threshold=0)
    network = load(path)
    x = random(2, 3)
    np.testing.assert_allclose(ours(network, {"x": x})[0], theirs(layers(), {"x": x})[0], rtol=1e-6)
    assert all(isinstance(_owner(array), np.memmap) for array in network.graph.constants.values())
    comparison = tc.compile(path, scheduler="none").compare(path, x)
    assert comparison.first_off is None


def _owner(array: Any) -> Any:
    while not isinstance(array, np.memmap) and isinstance(array.base, np.ndarray):
        array = array.base
    return array


def test_weights_beside_the_model_that_are_not_there(tmp_path: Path) -> None:
    path = saved(tmp_path / "two.onnx", location="two.data", size_threshold=0)
    data = tmp_path / "two.data"
    whole = data.read_bytes()
    data.write_bytes(whole[:-1])
    with pytest.raises(ArgumentError, match=f"`w2`: .*two.data ends at byte {len(whole) - 1}, be"):
        load(path)
    data.unlink()
    with pytest.raises(ArgumentError, match="external data of tensor `w1`: there is no file"):
        load(path)
    model = onnx.load(path, load_external_data=False)
    with pytest.raises(ArgumentError, match="beside the model's file; pass its path"):
        load(model)
    for location in ("../two.data", "/etc/passwd", "a\0b", ""):
        model.graph.initializer[0].external_data[0].value = location
        path.write_bytes(model.SerializeToString())
        with pytest.raises(ArgumentError, match="is not below the model's folder"):
            load(path)


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("offset", "\u00b2", "its offset and length are '\u00b2' and '48'"),
        ("length", "-1", "its offset and length are '0' and '-1'"),
        ("length", "9" * 60, "its offset and length are '0' and '99999"),
        ("length", "8", "8 bytes are given, its shape needs 48"),
        ("location", "x" * 5000, "cannot be read: "),
        ("location", "loop", "cannot be read: |is not below the model's folder"),
    ],
)
def test_damaged_places_of_weights_beside_the_model(
    tmp_path: Path, key: str, value: str, reason: str
) -> None:
    path = saved(tmp_path / "two.onnx", location="two.data", size_threshold=0)
    (tmp_path / "loop").symlink_to("loop")
    model = onnx.load(path, load_external_data=False)
    entries = {one.key: one for one in model.graph.initializer[0].external_data}
    entries[key].value = value
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ArgumentError, match=f"external data of tensor `w1`: .*({reason})"):
        load(path)


def test_weights_beside_the_model_of_a_type_that_we_lack(tmp_path: Path) -> None:
    weights = np.arange(6, dtype=np.uint64).reshape(2, 3)
    node = onnx.helper.make_node("Add", ["x", "w"], ["y"])
    model = model_of([node], {"x": weights}, ["y"], {"w": weights})
    path = tmp_path / "add.onnx"
    onnx.save(model, path, save_as_external_data=True, location="w", size_threshold=0)
    with pytest.raises(UnsupportedNetworkError, match="a value of type uint64"):
        load(path)


# Known values ------------------------------------------------------------------------------------


def test_shapes_are_worked_out() -> None:
    """The idiom of older exporters: a reshape by parts of a shape."""
    model = parsed("""
    g (float[2,3,4] x) => (float[2,12] y, int64[3] shape) {
      shape = Shape (x)
      zero = Constant <value = int64 {0}> ()
      batch = Gather <axis = 0> (shape, zero)
      axes = Constant <value = int64[1] {0}> ()
      first = Unsqueeze (batch, axes)
      rest = Constant <value = int64[1] {-1}> ()
      wanted = Concat <axis = 0> (first, rest)
      y = Reshape (x, wanted)
    }""")
    network = check(model, {"x": random(2, 3, 4)})
    assert [node.op for node in network.graph.nodes] == ["view"]


def test_large_known_values_are_left_to_the_graph() -> None:
    zero = np.zeros(1, np.float32)
    nodes = [
        helper.make_node("ConstantOfShape", ["s"], ["z"], value=numpy_helper.from_array(zero)),
        helper.make_node("Add", ["x", "z"], ["y"]),
    ]
    model = model_of(nodes, {"x": random(300)}, ["y"], {"s": ints(300, 300)})
    network = load(model)
    assert [node.op for node in network.graph.nodes] == ["full", "add"]
    assert not network.graph.constants


@pytest.mark.parametrize("taken", [True, False])
def test_a_branch_of_a_known_condition(taken: bool) -> None:
    body = """
    g (float[2] x, bool condition) => (y) {
      y = If (condition) <
        then_branch = yes () => (t) { t = Neg (x) },
        else_branch = no () => (e) { e = Mul (x, x) }
      >
    }"""
    model = with_weights(parsed(body), np.array(taken))
    check(model, {"x": np.array([2, 3], np.float32)})


LOOP = """
g (float[2] x, int64 trips, bool go) => (last, all) {
  last, all = Loop (trips, go, x) <
    body = step (int64 i, bool going, float[2] now) => (on, next, row) {
      on = Identity (going)
      number = Cast <to = 1> (i)
      next = Add (now, number)
      row = Mul (now, x)
    }
  >
}"""


def test_a_loop_of_known_length_is_unrolled() -> None:
    model = with_weights(parsed(LOOP), np.array(3), np.array(True))
    x = np.array([2, 3], np.float32)
    rows = np.stack([x * x, x * x, (x + 1) * x])
    check(model, {"x": x}, expected=[x + 3, rows])


def test_a_scan_is_unrolled() -> None:
    model = parsed("""
    g (float[2] start, float[3,2] rows) => (last, sums) {
      last, sums = Scan <num_scan_inputs = 1, body = step (float[2] a, float[2] b) => (c, d) {
        c = Add (a, b)
        d = Identity (c)
      }> (start, rows)
    }""")
    rows = np.arange(6, dtype=np.float32).reshape(3, 2)
    expected = [rows.sum(0), np.cumsum(rows, 0)]
    check(model, {"start": np.zeros(2, np.float32), "rows": rows}, expected=expected)


def test_functions_of_the_model_are_taken_apart() -> None:
    model = parser.parse_model("""
    <ir_version: 8, opset_import: ["" : 17, "mine" : 1]>
    g (float[2] x) => (y) {
      a = mine.Scaled <alpha = 3.0> (x)
      y = mine.Scaled (a)
    }
    <domain: "mine", opset_import: ["" : 17]>
    Scaled <alpha: float = 2.0> (value) => (result) {
      factor = Constant <value_float: float = @alpha> ()
      result = Mul (value, factor)
    }""")
    x = np.array([1, 2], np.float32)
    network = check(model, {"x": x}, expected=[x * 6])
    assert sorted(network.origins.values()) == ["a", "y"]


def test_functions_of_onnx_are_taken_apart() -> None:
    x, target = random(3, 5), np.array([0, 4, 2], np.int64)
    node = helper.make_node("SoftmaxCrossEntropyLoss", ["x", "t"], ["y"], reduction="mean")
    model = model_of([node], {"x": x, "t": target}, ["y"], opset=13)
    shifted = x - x.max(1, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    expected = -logs[np.arange(3), target].mean()
    check(model, {"x": x, "t": target}, expected=[np.asarray(expected, np.float32)])


# Examples ----------------------------------------------------------------------------------------

OPEN = """
g (float[batch, width] x, float[batch, 2] other) => (float[batch, total] y) {
  y = Concat <axis = 1> (x, other)
}"""


def test_examples_decide_symbolic_dimensions() -> None:
    x, other = random(4, 3), random(4, 2)
    for network in (
        load(parsed(OPEN), (x,)),
        load(parsed(OPEN), x),
        load(parsed(OPEN), (None, other), {"x": x}),
    ):
        assert [str(value) for value in network.graph.inputs] == [
            "x: f32[4, 3]",
            "other: f32[4, 2]",
        ]
        found = ours(network, {"x": x, "other": other})[0]
        np.testing.assert_array_equal(found, np.concatenate([x, other], 1))


def test_an_input_that_decides_a_shape_is_fixed_to_its_example() -> None:
    model = parsed("""
    g (float[2,6] x, int64[n] shape) => (y) {
      y = Reshape (x, shape)
    }""")
    x = random(2, 6)
    network = load(model, (x, ints(3, 4)))
    assert network.fixed["shape"].tolist() == [3, 4]
    assert ours(network, {"x": x, "shape": ints(3, 4)})[0].shape == (3, 4)
    with pytest.raises(ArgumentError) as caught:
        network.flatten((x, ints(4, 3)), {})
    assert caught.value.argument == "shape"
    assert caught.value.reason == (
        "shapes depend on it: the network was compiled for [3, 4], got [4, 3]"
    )


# Comparisons -------------------------------------------------------------------------------------


def test_compare_names_the_first_layer_that_is_off() -> None:
    right, wrong = layers(), layers()
    weight = numpy_helper.to_array(wrong.graph.initializer[1]).copy()
    weight += 1
    wrong.graph.initializer[1].CopyFrom(numpy_helper.from_array(weight, "w2"))
    x = np.abs(random(2, 3))
    network = tc.compile(wrong, scheduler="none")
    assert network.compare(wrong, x).first_off is None
    comparison = network.compare(right, x)
    assert comparison.first_off is not None
    assert comparison.first_off.value in ("second", "y")
    assert comparison.layers[0].value in ("first", "active")
    assert comparison.layers[0].error < 1e-6


def test_compare_takes_sessions_models_and_functions(tmp_path: Path) -> None:
    model, x = layers(), random(2, 3)
    network = tc.compile(model, scheduler="none")

    class Session:
        """Called like onnxruntime.InferenceSession."""

        def get_inputs(self) -> list[Any]:
            return []

        def run(self, names: None, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
            return theirs(model, feeds)

    path = saved(tmp_path / "two.onnx")
    for reference in (model, str(path), Session(), lambda x: theirs(model, {"x": x})[0]):
        assert network.compare(reference, x).error < 1e-6
    with pytest.raises(ArgumentError, match="expected a session of ONNX Runtime, a model, or a"):
        network.compare(3, x)


# Networks ----------------------------------------------------------------------------------------


def test_a_small_residual_network() -> None:
    names = ["w1", "scale", "bias", "mean", "variance", "w2", "head", "offset"]
    shapes = [(4, 3, 3, 3), (4,), (4,), (4,), (4,), (4, 4, 3, 3), (4, 5), (5,)]
    weights = [random(*shape, seed=n) for n, shape in enumerate(shapes)]
    weights[4] = np.abs(weights[4]) + 0.5
    listed = ", ".join(f"float{list(s)} {n}" for s, n in zip(shapes, names, strict=True))
    model = parsed(
        f"""
    g (float[1,3,9,9] x, {listed}) => (float[1,5] y) {{
      stem = Conv <strides = [2, 2], auto_pad = "SAME_UPPER"> (x, w1)
      normed = BatchNormalization (stem, scale, bias, mean, variance)
      active = Relu (normed)
      pooled = MaxPool <kernel_shape = [3, 3], strides = [1, 1], pads = [1, 1, 1, 1]> (active)
      second = Conv <pads = [1, 1, 1, 1]> (pooled, w2)
      added = Add (second, pooled)
      limited = HardSwish (added)
      mean = GlobalAveragePool (limited)
      flat = Flatten (mean)
      logits = Gemm (flat, head, offset)
      y = Softmax (logits)
    }}""".replace("mean = Global", "averaged = Global").replace(
            "Flatten (mean)", "Flatten (averaged)"
        )
    )
    model = with_weights(model, *weights)
    x = random(1, 3, 9, 9, seed=9)
    network = tc.compile(model, scheduler="none")
    np.testing.assert_allclose(network(x), theirs(model, {"x": x})[0], rtol=1e-4, atol=1e-5)
    assert network.compare(model, x).first_off is None


def test_a_small_transformer() -> None:
    """Attention in the words of an old exporter: shapes taken apart and put together again."""
    model = parsed(
        """
    g (int64[1,5] tokens, float[7,8] table, float[8] gain, float[8] shift, float[8,24] qkv,
       float[8,8] out) => (float[1,5,7] y) {
      x = Gather <axis = 0> (table, tokens)
      n = LayerNormalization <axis = -1> (x, gain, shift)
      all = MatMul (n, qkv)
      q, k, v = Split <axis = 2, num_outputs = 3> (all)
      shape = Shape <start = 0, end = 2> (x)
      heads = Constant <value = int64[2] {2, 4}> ()
      apart = Concat <axis = 0> (shape, heads)
      q4 = Reshape (q, apart)
      k4 = Reshape (k, apart)
      v4 = Reshape (v, apart)
      qt = Transpose <perm = [0, 2, 1, 3]> (q4)
      kt = Transpose <perm = [0, 2, 3, 1]> (k4)
      vt = Transpose <perm = [0, 2, 1, 3]> (v4)
      scores = MatMul (qt, kt)
      half = Constant <value_float = 0.5> ()
      scaled = Mul (scores, half)
      square = Constant <value = int64[2] {5, 5}> ()
      ones = ConstantOfShape <value = int64[1] {1}> (square)
      lower = Trilu <upper = 0> (ones)
      mask = Cast <to = 9> (lower)
      least = Constant <value_float = -1e9> ()
      masked = Where (mask, scaled, least)
      share = Softmax <axis = -1> (masked)
      mixed = MatMul (share, vt)
      back = Transpose <perm = [0, 2, 1, 3]> (mixed)
      joined = Constant <value = int64[3] {0, 0, -1}> ()
      flat = Reshape (back, joined)
      added0 = MatMul (flat, out)
      added = Add (added0, x)
      g1 = Gelu (added)
      turned = Transpose <perm = [1, 0]> (table)
      y = MatMul (g1, turned)
    }""",
        'ir_version: 9, opset_import: ["" : 20]',
    )
    weights = [random(*s, seed=n) for n, s in enumerate([(7, 8), (8,), (8,), (8, 24), (8, 8)])]
    model = with_weights(model, *weights)
    tokens = np.array([[0, 6, 3, 3, 1]])
    network = tc.compile(model, scheduler="none")
    np.testing.assert_allclose(
        network(tokens), theirs(model, {"tokens": tokens})[0], rtol=2e-4, atol=1e-5
    )


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
def test_what_torch_exports(tmp_path: Path) -> None:
    """Needs onnxscript, in which torch's exporter is written."""
    pytest.importorskip("onnxscript")
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.norm = nn.Embedding(11, 16), nn.LayerNorm(16)
            self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
            self.head = nn.Linear(16, 11)

        def forward(self, tokens: Any) -> Any:
            x = self.embed(tokens)
            y = self.norm(x)
            return self.head(x + self.attention(y, y, y, need_weights=False)[0])

    torch.manual_seed(0)
    module, tokens = Block().eval(), torch.tensor([[1, 2, 3, 10]])
    path = tmp_path / "block.onnx"
    torch.onnx.export(module, (tokens,), path, dynamo=True, verbose=False)
    expected = module(tokens).detach().numpy()
    network = tc.compile(path, scheduler="none")
    np.testing.assert_allclose(network(tokens), expected, rtol=1e-4, atol=1e-5)
