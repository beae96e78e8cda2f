"""ONNX models that are refused: one typed error that names every place, and says why."""

from __future__ import annotations

import builtins
import contextlib
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper, parser

import tensorc as tc
from tensorc.errors import ArgumentError, TensorcError
from tensorc.graph.network import load
from tensorc.graph.unsupported import UnsupportedNetworkError
from tests.graph.onnx_models import model_of, one_node

X = np.ones((2, 3), np.float32)


def refused(model: Any, *examples: Any) -> list[str]:
    """The problems of a model, one a line."""
    with pytest.raises(UnsupportedNetworkError) as caught:
        load(model, examples or None)
    error = caught.value
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.problems) == (str(error), error.problems)
    return [str(problem) for problem in error.problems]


def parsed(body: str, head: str = 'ir_version: 8, opset_import: ["" : 17]') -> Any:
    return parser.parse_model(f"<{head}> {body}")


# The model as a whole ----------------------------------------------------------------------------


def relu(**changes: Any) -> Any:
    model = one_node("Relu", [X])[0]
    for name, value in changes.items():
        setattr(model, name, value)
    return model


def test_an_unknown_version_of_the_format() -> None:
    assert refused(relu(ir_version=99)) == [
        "IR version 99: versions 1 to 14 are known (once, in the network itself)"
    ]


def test_an_unknown_opset_of_the_model_and_of_a_function() -> None:
    model = relu()
    model.opset_import[0].version = 99
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 77))
    function = helper.make_function(
        "mine", "F", ["a"], ["b"], [helper.make_node("Relu", ["a"], ["b"])],
        [helper.make_opsetid("", 98)],
    )  # fmt: skip
    model.functions.append(function)
    assert refused(model) == [
        "opset 99 of the domain ai.onnx: opsets 1 to 28 are known (once, in the network itself)",
        "opset 77 of the domain ai.onnx.ml: opsets 1 to 5 are known (once, in the network itself)",
        "opset 98 of the domain ai.onnx: opsets 1 to 28 are known (once, in F)",
    ]


def test_the_newest_opset_is_one_that_the_package_knows() -> None:
    from tensorc.graph.onnx_source import LATEST_IR, LATEST_OPSETS

    assert LATEST_OPSETS[""] <= onnx.defs.onnx_opset_version()
    assert LATEST_IR <= onnx.IR_VERSION


def test_what_is_no_model(tmp_path: Path) -> None:
    text = tmp_path / "text.onnx"
    text.write_text("this is no model, and long enough to be none")
    whole = tmp_path / "whole.onnx"
    onnx.save(one_node("Add", [X], [np.ones((2, 3), np.float32)])[0], whole)
    cut = tmp_path / "cut.onnx"
    cut.write_bytes(whole.read_bytes()[:-9])
    empty = tmp_path / "empty.onnx"
    empty.write_bytes(b"")
    for source in (text, cut, empty, b"", b"\xff" * 40, str(empty)):
        with pytest.raises(ArgumentError, match="is not a whole ONNX model") as caught:
            load(source)
        assert caught.value.argument == "network"
    for path in ("missing.onnx", "a\0b.onnx", "x" * 5000 + ".onnx", str(tmp_path) + "/.onnx"):
        with pytest.raises(ArgumentError, match="there is no file"):
            load(path)


@settings(max_examples=60)
@given(st.data())
def test_damaged_models_give_typed_errors(data: Any) -> None:
    """A model with some bytes changed, or cut off, is one or is refused."""
    weight = np.arange(6, dtype=np.float32).reshape(3, 2)
    node = helper.make_node("Gemm", ["x", "w"], ["y"], alpha=0.5)
    contents = bytearray(model_of([node], {"x": X}, ["y"], {"w": weight}).SerializeToString())
    for _ in range(data.draw(st.integers(1, 3))):
        contents[data.draw(st.integers(0, len(contents) - 1))] = data.draw(st.integers(0, 255))
    del contents[data.draw(st.integers(len(contents) // 2, len(contents))) :]
    with contextlib.suppress(TensorcError):
        load(bytes(contents))


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = builtins.__import__

    def without(name: str, *more: Any) -> Any:
        if name == "onnx":
            raise ImportError(name)
        return plain(name, *more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ArgumentError) as caught:
        load("network.onnx")
    assert str(caught.value) == (
        'argument `network`: ONNX models need the package onnx: pip install "tensorc[onnx]"'
    )


def test_a_damaged_tensor_is_named() -> None:
    model = one_node("Add", [X], [np.ones(3, np.float32)])[0]
    model.graph.initializer[0].raw_data = b"123"
    with pytest.raises(ArgumentError) as caught:
        load(model)
    assert caught.value.reason == "tensor `c0`: it has 3 bytes of data, its shape needs 12"


def tensor(dims: list[int], **data: Any) -> Any:
    return onnx.TensorProto(name="c0", data_type=1, dims=dims, **data)


@pytest.mark.parametrize(
    ("held", "reason"),
    [
        (tensor([2**32, 2**32], raw_data=b""), "which is over 2^63 - 1 bytes"),
        (tensor([2**32, 2**32], float_data=[1.0]), "which is over 2^63 - 1 bytes"),
        (tensor([0, 2**32, 2**32], raw_data=b""), "which is over 2^63 - 1 bytes"),
        (tensor([-1, -1], raw_data=b"1234"), "its shape is [-1, -1]"),
        (tensor([-1], float_data=[1.0]), "its shape is [-1]"),
        (tensor([2, 3], float_data=[1.0] * 5), "damaged: cannot reshape array of size 5"),
    ],
    ids=range(6),
)
def test_a_tensor_that_cannot_be(held: Any, reason: str) -> None:
    model = one_node("Add", [X], [np.ones(3, np.float32)])[0]
    model.graph.initializer[0].CopyFrom(held)
    with pytest.raises(ArgumentError) as caught:
        load(model)
    assert reason in str(caught.value)
    assert "tensor `c0`" in str(caught.value)


def test_an_input_or_a_result_that_cannot_be() -> None:
    over = "over 2^63 - 1 bytes (once, in "
    head = "g (float[4294967296,4294967296] x) => (y)"
    (problem,) = refused(parsed(f"{head} {{ y = Relu (x) }}"))
    assert problem == f"input `x`: its shape is [4294967296, 4294967296], which is {over}x)"
    head = "g (float[1099511627776] x) => (y)"
    body = "c = Constant <value_ints = [1099511627776, 1]> () y = Expand (x, c)"
    (problem,) = refused(parsed(f"{head} {{ {body} }}"))
    assert problem == f"Expand: [1099511627776, 1099511627776] of f32 is {over}y)"
    body = "y = MaxPool <kernel_shape = [4611686018427387904], pads = [0, 9223372036854775807]> (x)"
    (problem,) = refused(parsed(f"g (float[1,1,4] x) => (y) {{ {body} }}"))
    assert problem.startswith("MaxPool: ")


def test_a_shape_of_negative_extents() -> None:
    head, body = "g (float[10] x) => (y)", "c = Constant <value_ints = [-5, -2]> ()"
    (problem,) = refused(parsed(f"{head} {{ {body} y = Reshape (x, c) }}"))
    assert problem == "Reshape: shape [-5, -2] for 10 elements (once, in y)"


# Operators ---------------------------------------------------------------------------------------


def test_everything_that_is_unsupported_is_listed_at_once() -> None:
    model = parsed(
        """
    g (float[2,3] x, seq(float[2]) s) => (y) {
      [first] n = NonZero (x)
      [second] m = NonZero (x)
      u = Unique (x)
      r = RandomNormalLike (x)
      other = com.example.Thing (n)
      a = Det (undefined)
      y = Add (x, r)
    }""",
        'ir_version: 8, opset_import: ["" : 17, "com.example" : 3]',
    )
    assert refused(model) == [
        "input `s`: it is a sequence, not a tensor (once, in s)",
        "NonZero: no such operator (version 13) (2 times, in first, second)",
        "Unique: no such operator (version 11) (once, in u)",
        "RandomNormalLike: its results are random (once, in r)",
        "com.example.Thing: no such operator (opset 3) (once, in other)",
        "value `undefined`: nothing computes it (once, in a)",
        "Det: no such operator (version 11) (once, in a)",
    ]


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "reason"),
    [
        ("Relu", 1, {"slope": 2.0}, "an attribute `slope`, which it has not"),
        ("Elu", 1, {"alpha": 2}, "its attribute `alpha` is not of type float"),
        ("Cast", 1, {}, "its attribute `to` is missing"),
        ("Cast", 1, {"to": 8}, "to string"),
        ("Add", 1, {}, "1 inputs, expected 2"),
        ("Transpose", 1, {"perm": [0, 0]}, "order [0, 0] of 2 dimensions"),
        ("Softmax", 1, {"axis": 2}, "axis 2 of a tensor of 2 dimensions"),
        ("Concat", 2, {"axis": 5}, "axis 5 of a tensor of 2 dimensions"),
        ("MatMul", 2, {}, "a product of shapes [2, 3] and [2, 3]"),
        ("BitwiseAnd", 2, {}, "input 0 of type tensor(float)"),
        ("Conv", 2, {}, "shapes [2, 3] and [2, 3]"),
    ],
)
def test_operators_that_are_used_wrongly(
    op: str, inputs: int, attributes: dict[str, Any], reason: str
) -> None:
    model = one_node(op, [X] * inputs, opset=21, **attributes)[0]
    (problem,) = refused(model)
    assert problem.startswith(f"{op}: {reason}"), problem
    assert problem.endswith("(once, in here)")


def test_an_operator_of_a_later_opset() -> None:
    (problem,) = refused(one_node("Gelu", [X], opset=19)[0])
    assert problem == "Gelu: no such operator (opset 19) (once, in here)"
    (problem,) = refused(one_node("Upsample", [X], [np.ones(2, np.float32)], opset=10)[0])
    assert problem == "Upsample: opset 10 has given it up (once, in here)"


def test_dtypes_that_we_lack() -> None:
    x = np.ones(2, np.uint64)
    assert refused(one_node("Add", [x, x])[0]) == ["a value of type uint64 (2 times, in x0, x1)"]
    assert refused(one_node("Cast", [X], to=13)[0]) == ["Cast: to uint64 (once, in here)"]


def test_operands_of_two_dtypes() -> None:
    (problem,) = refused(one_node("Add", [X, X.astype(np.float64)])[0])
    assert problem == (
        "Add: inputs of types tensor(float) and tensor(double), which should be the same"
        " (once, in here)"
    )


def test_an_output_that_is_not_what_the_model_declares() -> None:
    model = one_node("Relu", [X])[0]
    for shape, number, reason in (
        ([3, 2], 1, "the model declares shape [3, 2], computed is [2, 3]"),
        (["n", 2], 1, "the model declares shape [None, 2], computed is [2, 3]"),
        ([2, 3], 7, "the model declares int64, computed is f32"),
    ):
        model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y0", number, shape))
        assert refused(model) == [f"output `y0`: {reason} (once, in y0)"]


def test_lists_of_the_wrong_length_are_named() -> None:
    image, weight = np.ones((1, 2, 4, 4), np.float32), np.ones((2, 1, 3, 3), np.float32)
    for attributes, reason in (
        ({"strides": [1]}, "strides=[1] for windows over 2 dimensions"),
        ({"strides": [1, 0]}, "strides=[1, 0] for windows over 2 dimensions"),
        ({"pads": [1, 1]}, "pads=[1, 1] for windows over 2 dimensions"),
        ({"output_padding": [-1, 0]}, "output_padding=[-1, 0] for windows over 2 dimensions"),
        ({"output_shape": [4]}, "output_shape=[4] over 2 dimensions"),
        ({"group": 0}, "group=0"),
    ):
        (problem,) = refused(one_node("ConvTranspose", [image, weight], **attributes)[0])
        assert problem == f"ConvTranspose: {reason} (once, in here)"
    (problem,) = refused(one_node("Conv", [image, weight], group=0)[0])
    assert problem == "Conv: group=0 (once, in here)"


NUMBERS = st.sampled_from([-(2**63), -3, -1, 0, 1, 2, 3, 7, 2**31, 2**63 - 1])
LISTS = st.lists(NUMBERS, max_size=5)
# Operators, operands that they take, and attributes that are numbers or lists of these.
NODES: list[tuple[str, list[tuple[int, ...]], dict[str, Any]]] = [
    ("Conv", [(1, 2, 4, 4), (2, 1, 3, 3)], {"strides": LISTS, "pads": LISTS, "group": NUMBERS}),
    ("ConvTranspose", [(1, 2, 4, 4), (2, 1, 3, 3)], {"dilations": LISTS, "output_shape": LISTS}),
    ("MaxPool", [(1, 2, 4, 4)], {"kernel_shape": LISTS, "pads": LISTS, "ceil_mode": NUMBERS}),
    ("LpPool", [(1, 2, 4)], {"kernel_shape": LISTS, "strides": LISTS, "p": NUMBERS}),
    ("GRU", [(3, 1, 2), (1, 6, 2), (1, 6, 2)], {"hidden_size": NUMBERS, "layout": NUMBERS}),
    ("EyeLike", [(2, 3)], {"k": NUMBERS, "dtype": NUMBERS}),
    ("DepthToSpace", [(1, 4, 2, 2)], {"blocksize": NUMBERS}),
    ("SpaceToDepth", [(1, 4, 2, 2)], {"blocksize": NUMBERS}),
    ("LRN", [(1, 4, 2, 2)], {"size": NUMBERS}),
    ("Softmax", [(2, 3)], {"axis": NUMBERS}),
    ("ReduceMax", [(2, 3)], {"keepdims": NUMBERS}),
    ("Transpose", [(2, 3)], {"perm": LISTS}),
    ("Concat", [(2, 3), (2, 1)], {"axis": NUMBERS}),
    ("Gemm", [(2, 3), (3, 2), (2,)], {"transA": NUMBERS, "transB": NUMBERS}),
    ("LayerNormalization", [(2, 3), (3,)], {"axis": NUMBERS, "stash_type": NUMBERS}),
    ("GroupNormalization", [(1, 4, 2), (4,), (4,)], {"num_groups": NUMBERS}),
]


@settings(max_examples=150)
@given(st.data())
def test_operands_and_attributes_that_do_not_fit_give_typed_errors(data: Any) -> None:
    op, shapes, choices = data.draw(st.sampled_from(NODES))
    position = data.draw(st.integers(0, len(shapes) - 1))
    changed = tuple(data.draw(st.lists(st.integers(0, 4), max_size=5)))
    if data.draw(st.booleans()):
        shapes = [changed if n == position else one for n, one in enumerate(shapes)]
    attributes = {name: data.draw(st.none() | values) for name, values in choices.items()}
    given_ones = {name: one for name, one in attributes.items() if one not in (None, [])}
    inputs = [np.ones(shape, np.float32) for shape in shapes]
    with contextlib.suppress(TensorcError):
        load(one_node(op, inputs, opset=data.draw(st.sampled_from([11, 21])), **given_ones)[0])


def test_a_function_that_calls_itself() -> None:
    node = helper.make_node("F", ["a"], ["b"], domain="mine")
    function = helper.make_function(
        "mine", "F", ["a"], ["b"], [node], [helper.make_opsetid("mine", 1)]
    )
    call = helper.make_node("F", ["x"], ["y"], domain="mine", name="outer")
    imports = [helper.make_opsetid("mine", 1)]
    model = model_of([call], {"x": X}, ["y"], imports=imports, functions=[function])
    assert refused(model)[0] == "mine.F: a function that calls itself (once, in outer/b)"


def test_an_operator_that_gives_fewer_results_than_its_node_has() -> None:
    model = parsed("""
    g (float[2] x) => (y, z) {
      which = Constant <value_int = 1> ()
      truth = Cast <to = 9> (which)
      y, z = If (truth) <
        then_branch = yes () => (a) { a = Neg (x) }, else_branch = no () => (b) { b = Abs (x) }>
    }""")
    assert refused(model) == [
        "output `z`: what computes it gives no such (once, in the network itself)"
    ]


def test_a_loop_whose_numbers_are_lists() -> None:
    body = """<body = step (int64 i, bool on, float now) => (on, next) { next = Add (now, now) }>"""
    model = parsed(f"g (float x) => (y) {{ [loop] y = Loop (count, , x) {body} }}")
    model.graph.initializer.append(numpy_helper.from_array(np.array([1, 2]), "count"))
    assert refused(model) == [
        "Loop: how often the loop runs is given by 2 elements (once, in loop)"
    ]


# What depends on data ----------------------------------------------------------------------------

BRANCH = """
g (float[2] x, bool condition, int64[n] shape) => (y, z) {
  [choice] y = If (condition) <
    then_branch = yes () => (t) { t = Neg (x) },
    else_branch = no () => (e) { e = Mul (x, x) }
  >
  [turn] z = Reshape (x, shape)
}"""


def test_branches_and_shapes_that_depend_on_data() -> None:
    model = parsed(BRANCH)
    model.graph.input[2].type.tensor_type.shape.dim[0].dim_value = 1
    assert refused(model) == [
        "If: the branch that is taken depends on data (`condition`) (once, in choice)",
        "Reshape: `shape` depends on data (`shape`) (once, in turn)",
    ]
    network = load(model, (np.ones(2, np.float32), np.array(True), np.array([2])))
    assert sorted(network.fixed) == ["condition", "shape"]


def test_a_loop_that_depends_on_data() -> None:
    model = parsed("""
    g (float x, bool go) => (y) {
      [again] y = Loop (, go, x) <
        body = step (int64 i, bool going, float now) => (on, next) {
          limit = Constant <value_float = 9.0> ()
          next = Add (now, now)
          on = Less (next, limit)
        }
      >
    }""")
    model.graph.initializer.append(numpy_helper.from_array(np.array(True), "go"))
    assert refused(model) == [
        "Loop: how often the loop runs depends on data (`x`) (once, in again)"
    ]


def test_a_large_input_is_never_fixed() -> None:
    x = np.ones((4, 4), np.float32)
    node = [
        helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
        helper.make_node("Cast", ["s"], ["n"], to=7),
        helper.make_node("Unsqueeze", ["n", "a"], ["shape"]),
        helper.make_node("Expand", ["x", "shape"], ["y"], name="wide"),
    ]
    model = model_of(node, {"x": x}, ["y"], {"a": np.array([0])})
    assert refused(model, x) == ["Expand: its shape depends on data (`x`) (once, in wide)"]


# Inputs ------------------------------------------------------------------------------------------

OPEN = """
g (float[batch, 3, height] x, float[batch, 2, ?] other) => (y) {
  y = Identity (x)
}"""


def test_every_symbolic_dimension_is_named() -> None:
    more = "pass example_inputs of the shapes to compile for (once, in"
    assert refused(parsed(OPEN)) == [
        f"dimension 0 of input `x`: it is symbolic (batch); {more} x)",
        f"dimension 2 of input `x`: it is symbolic (height); {more} x)",
        f"dimension 0 of input `other`: it is symbolic (batch); {more} other)",
        f"dimension 2 of input `other`: it is not given; {more} other)",
    ]
    assert refused(parsed(OPEN), np.ones((4, 3, 2), np.float32)) == [
        f"dimension 2 of input `other`: it is not given; {more} other)"
    ]


@pytest.mark.parametrize(
    ("examples", "keywords", "argument", "reason"),
    [
        ((X, X, X), None, "example_inputs", "3 of them, the network takes `x`, `other`"),
        (5, None, "example_inputs", "expected the network's inputs in order, as a tuple of array"),
        ((), {"y": X}, "example_keywords", "no input 'y'; there are `x`, `other`"),
        ((X,), {"x": X}, "example_keywords", "'x' is among the example inputs, too"),
        ((), [X], "example_keywords", "expected the network's inputs by name, got [array"),
        (([1.0],), None, "x", "expected an array, got a list"),
        ((X,), None, "x", "the network takes [batch, 3, height], got [2, 3]"),
        ((np.ones((1, 3, 1), "i4"),), None, "x", "the network takes float, got int32"),
        ((np.ones((1, 2, 1), "f4"),), None, "x", "the network takes [batch, 3, height], got [1, 2"),
        (
            (np.ones((1, 3, 1), "f4"), np.ones((4, 2, 1), "f4")), None, "other",
            "batch is 1 in the example of `x`, here 4",
        ),
    ],
    ids=range(10),
)  # fmt: skip
def test_examples_that_do_not_fit(examples: Any, keywords: Any, argument: str, reason: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        load(parsed(OPEN), examples, keywords)
    assert caught.value.argument == argument
    assert caught.value.reason.startswith(reason)


def test_calls_that_are_not_what_was_compiled_for() -> None:
    model = parsed("g (float[2,3] x, float[3] b) => (y) { y = Add (x, b) }")
    network = tc.compile(model, scheduler="none")
    b = np.ones(3, np.float32)
    for arguments, keywords, message in (
        ((X,), {}, "argument `inputs`: missing `b` of `x`, `b`"),
        ((X, b, b), {}, "argument `inputs`: expected 2 (`x`, `b`), got 3"),
        ((X,), {"c": b}, "argument `inputs`: there is no input 'c'; there are `x`, `b`"),
        ((X, b), {"b": b}, "argument `inputs`: input `b` is given twice"),
        ((X.T, b), {}, "argument `x`: compiled for x: f32[2, 3], got float32[3, 2]"),
        ((X, b.astype("f8")), {}, "argument `b`: compiled for b: f32[3], got float64[3]"),
        ((X, 3.0), {}, "argument `b`: compiled for b: f32[3], got a float"),
    ):
        with pytest.raises(ArgumentError) as caught:
            network(*arguments, **keywords)
        assert str(caught.value) == message
