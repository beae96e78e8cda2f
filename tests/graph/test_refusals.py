"""What `compile` and a compiled network refuse: the error names the argument and says why."""

from __future__ import annotations

import copy
import io
import json
import pickle
import random
import weakref
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tensorc.errors import ArgumentError, LimitError, TensorcError, UnsupportedError
from tensorc.graph.compile import CompiledNetwork, compile
from tensorc.graph.torch_export import load

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore::UserWarning")]
X = torch.ones(4, 3)


# Inputs of a compiled network ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def relu() -> CompiledNetwork:
    return compile(nn.ReLU().eval(), (X,))


class NoMemory:
    def __dlpack__(self, **_: object) -> object:
        raise BufferError("exported twice")

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0


def rows(layout: torch.layout) -> torch.Tensor:
    return torch.nested.nested_tensor([torch.ones(3), torch.ones(2)], layout=layout)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: rows(torch.strided), "it is a nested tensor"),
        (lambda: rows(torch.jagged), "it is a nested tensor"),
        (lambda: X.to_sparse(), "its layout is torch.sparse_coo; pass its .to_dense()"),
        (lambda: X.to_sparse_csr(), "its layout is torch.sparse_csr; pass its .to_dense()"),
        (lambda: X.to("meta"), "it lies on meta; move it to the CPU first"),
        (lambda: torch.quantize_per_tensor(X, 0.1, 0, torch.quint8), "it is quantized (torch.quin"),
        (lambda: X.to(torch.float8_e4m3fn), "its elements (torch.float8_e4m3fn) cannot be read"),
        (
            lambda: X.to(torch.complex64).conj(),
            "compiled for input: f32[4, 3], got complex64[4, 3]",
        ),
        (lambda: nn.ReLU(), "compiled for input: f32[4, 3], got object[]"),
        (lambda: torch.float32, "compiled for input: f32[4, 3], got object[]"),
        (lambda: np.ma.masked_array(X.numpy(), mask=True), "it is a masked array"),
        (NoMemory, "compiled for input: f32[4, 3], got a NoMemory, which is no array: exported"),
    ],
    ids=range(12),
)
def test_what_is_no_dense_array_is_refused(relu: CompiledNetwork, make: Any, reason: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        relu(make())
    assert caught.value.argument == "input"
    assert caught.value.reason.startswith(reason)
    assert relu(X).equal(X)


def test_what_has_no_memory_is_refused(relu: CompiledNetwork) -> None:
    gone = torch.ones(4, 3)
    gone.untyped_storage().resize_(0)
    with pytest.raises(ArgumentError, match="`input`: it has no memory"):
        relu(gone)
    with pytest.raises(ArgumentError, match="cannot be read"):
        torch.vmap(relu)(torch.ones(2, 4, 3))


@pytest.mark.filterwarnings("ignore:.*deprecated:DeprecationWarning")
def test_transforms_of_torch_are_refused(relu: CompiledNetwork) -> None:
    with pytest.raises(ArgumentError, match="results have no memory in transforms of torch's"):
        torch.func.jvp(relu, (X,), (X,))


def test_a_network_is_no_data(relu: CompiledNetwork) -> None:
    for make in (copy.deepcopy, pickle.dumps):
        with pytest.raises(UnsupportedError, match="cannot be copied or pickled; compile it again"):
            make(relu)


def test_arrays_of_a_call_are_let_go(relu: CompiledNetwork) -> None:
    array = np.ones((4, 3), np.float32)
    last = weakref.ref(array)
    assert relu(array).sum() == 12
    del array
    assert last() is None


def test_results_that_are_too_large() -> None:
    class Wide(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.expand(1 << 24, 1 << 24) * 2

    network = compile(Wide().eval(), (torch.ones(1),), scheduler="none")
    for x in (torch.ones(1), np.ones(1, np.float32)):
        with pytest.raises(LimitError, match="1125899906842624 bytes of memory for results"):
            network(x)


def test_results_lie_in_memory_whatever_the_default_device_is(relu: CompiledNetwork) -> None:
    with torch.device("meta"):
        result = relu(X)
    assert result.is_cpu
    assert result.equal(X)


class Scaled(nn.Module):
    def forward(self, x: torch.Tensor, times: float | None) -> torch.Tensor:
        return x if times is None else x * times


@pytest.mark.parametrize(
    ("example", "given", "shown"),
    [
        (2.0, 3.0, "3.0"),
        (2.0, 2, "2"),
        (1, True, "True"),
        (1, 1.0, "1.0"),
        (None, 1, "1"),
        (2.0, X, "a Tensor"),
        (None, np.ones(3), "an ndarray"),
    ],
    ids=range(7),
)
def test_an_argument_that_is_no_tensor_is_that_of_the_export(
    example: Any, given: Any, shown: str
) -> None:
    network = load(Scaled().eval(), (X, example))
    assert len(network.flatten((X, example), {})) == 1
    with pytest.raises(ArgumentError) as caught:
        network.flatten((X, given), {})
    assert caught.value.argument == "times"
    assert caught.value.reason == f"the network was exported for {example!r}, got {shown}"


def test_an_argument_that_is_no_number_is_itself() -> None:
    network = load(Scaled().eval(), (X, float("nan")))
    assert len(network.flatten((X, float("nan")), {})) == 1


def test_a_network_without_inputs_gives_tensors() -> None:
    class Weight(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))

        def forward(self, times: int = 2) -> torch.Tensor:
            return self.weight * times

    result = compile(Weight().eval(), ())()
    assert isinstance(result, torch.Tensor)
    assert result.tolist() == [2.0] * 3
    times = compile(Weight().eval(), (4,))(4)
    assert isinstance(times, torch.Tensor)
    assert times.tolist() == [4.0] * 3


def test_examples_of_a_program_are_what_it_takes() -> None:
    program = torch.export.export(nn.ReLU().eval(), (X,))
    assert load(program, (X,)).graph.inputs == load(program, X).graph.inputs
    with pytest.raises(ArgumentError, match=r"`input`: compiled for input: f32.*, got float32"):
        load(program, (torch.ones(3, 3),))
    with pytest.raises(ArgumentError, match="exported for 1 positional tensors, got 2"):
        load(program, (X, X))


def test_a_weight_that_is_no_dense_tensor_is_named() -> None:
    class Sparse(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("table", torch.eye(3).to_sparse())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.sparse.mm(self.table, x)

    with pytest.raises(ArgumentError, match=r"`table`: its layout is torch.sparse_coo; pass its"):
        load(Sparse().eval(), (torch.ones(3, 2),))


# Examples -----------------------------------------------------------------------------------------

KIND = "expected a tuple of the module's positional arguments, got "
CALL = "Linear.forward(input: torch.Tensor) does not take them: "
RUN = "the module failed on the example inputs: "


@pytest.mark.parametrize(
    ("inputs", "keywords", "argument", "reason"),
    [
        (5, None, "example_inputs", KIND + "5"),
        ({}, None, "example_inputs", KIND + "{}"),
        ("x", None, "example_inputs", KIND + "'x'"),
        (X.numpy(), None, "example_inputs", KIND + "a NumPy array of float32"),
        ([], None, "example_inputs", CALL + "missing a required argument: 'input'"),
        ((X, X), None, "example_inputs", CALL + "too many positional arguments"),
        ((X,), {"input": X}, "example_inputs", CALL + "multiple values for argument 'input'"),
        ((X,), {"inpt": X}, "example_inputs", CALL + "got an unexpected keyword argument 'inpt'"),
        ((), 5, "example_keywords", "expected the module's keyword arguments by name, got 5"),
        ((), {5: X}, "example_keywords", "expected the module's keyword arguments by name, got"),
        ((X.numpy(),), None, "example_inputs", "a NumPy array of float32 among them; pass torch"),
        (([X.numpy()[0]],), None, "example_inputs", "a NumPy array of float32 among them; pass"),
        ((), {"input": X.numpy()}, "example_keywords", "a NumPy array of float32 among them;"),
        ((X.to_sparse(),), None, "example_inputs", "its layout is torch.sparse_coo"),
        ((None,), None, "example_inputs", RUN + "TypeError: linear(): argument 'input'"),
        ((object(),), None, "example_inputs", RUN + "ValueError: Unsupported input type"),
        ((torch.ones(4, 5),), None, "example_inputs", RUN + "RuntimeError: "),
    ],
    ids=range(17),
)
def test_examples_that_the_module_does_not_take(
    inputs: Any, keywords: Any, argument: str, reason: str
) -> None:
    with pytest.raises(ArgumentError) as caught:
        compile(nn.Linear(3, 2).eval(), inputs, example_keywords=keywords)
    assert caught.value.argument == argument
    assert caught.value.reason.startswith(reason)


def test_a_list_and_one_tensor_are_examples() -> None:
    layer = nn.Linear(3, 2).eval()
    for examples in ([X], X):
        np.testing.assert_allclose(
            compile(layer, examples)(X).numpy(), layer(X).detach().numpy(), rtol=1e-5, atol=1e-6
        )


@pytest.mark.parametrize(
    "error",
    [ValueError("mine"), KeyError("k"), ZeroDivisionError("z"), AssertionError("a"), OSError("o")],
)
def test_the_error_of_a_module_is_chained(error: Exception) -> None:
    class Broken(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise error

    with pytest.raises(ArgumentError) as caught:
        compile(Broken().eval(), (X,))
    assert caught.value.argument == "example_inputs"
    assert caught.value.reason == f"{RUN}{type(error).__name__}: {error}"
    assert isinstance(caught.value.__cause__, type(error))


# Files --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("archive") / "n.pt2"
    layers = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).eval()
    torch.export.save(torch.export.export(layers, (torch.ones(2, 3),)), path)
    return path.read_bytes()


def damaged(whole: bytes, rng: random.Random) -> Iterator[bytes]:
    """The archive with bytes changed or missing, and with members changed, cut or missing."""
    with zipfile.ZipFile(io.BytesIO(whole)) as file:
        members = {name: file.read(name) for name in file.namelist()}
    for _ in range(60):
        changed = bytearray(whole)
        for _ in range(rng.choice([1, 3, 30])):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        yield bytes(changed)
        yield whole[: rng.randrange(len(whole))]
    for name, data in members.items():
        for new in (None, b"", data[: len(data) // 2], b"{}", data[::-1]):
            kept = {k: v for k, v in members.items() if k != name}
            yield packed(kept if new is None else kept | {name: new})
    (model,) = (name for name in members if name.endswith("model.json"))
    for _ in range(100):
        tree = json.loads(members[model])
        change(tree, rng)
        yield packed(members | {model: json.dumps(tree).encode()})


def packed(members: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as file:
        for name, data in members.items():
            file.writestr(name, data)
    return made.getvalue()


def change(tree: Any, rng: random.Random) -> None:
    """Put something else, or nothing, at a place in a tree of JSON."""
    while True:
        keys = list(tree) if isinstance(tree, dict) else list(range(len(tree)))
        key = rng.choice(keys)
        if isinstance(tree[key], dict | list) and tree[key] and rng.random() < 0.9:
            tree = tree[key]
        elif rng.random() < 0.3:
            del tree[key]
            return
        else:
            tree[key] = rng.choice([None, -1, 10**20, "x", [], {}, True, 1.5, "input", [[1]]])
            return


def test_a_damaged_file_is_refused(archive: bytes, tmp_path: Path) -> None:
    path = tmp_path / "damaged.pt2"
    refused = 0
    for data in damaged(archive, random.Random(7)):
        path.write_bytes(data)
        try:
            load(path)
        except TensorcError:
            # Most are no whole file; a few read as another network, which may be unsupported.
            refused += 1
    assert refused > 150


@pytest.mark.parametrize("name", ["", "no/file.pt2", "a\0b.pt2", "x" * 5000, "."])
def test_no_file_is_refused(name: str) -> None:
    with pytest.raises(ArgumentError, match=r"there is no file|the path is empty") as caught:
        compile(name)
    assert caught.value.argument == "network"


@pytest.mark.filterwarnings("ignore:.*deprecated:DeprecationWarning")
def test_what_is_no_network_is_refused() -> None:
    legal = r"an onnx\.ModelProto or its bytes, or the path of a \.pt2 or \.onnx file"
    for thing, kind in ((42, "an int"), (abs, "a builtin_function_or_method")):
        with pytest.raises(ArgumentError, match=f"{legal}, got {kind}$"):
            load(thing)


@pytest.mark.filterwarnings("ignore:.*torch.jit.trace.* is deprecated:DeprecationWarning")
def test_a_script_module_is_refused() -> None:
    with pytest.raises(ArgumentError, match="a ScriptModule; pass the module that it was made"):
        compile(torch.jit.trace(nn.Linear(3, 2).eval(), (X,)), (X,))
