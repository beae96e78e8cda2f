"""The network of a command: one of the known ones, a `.pt2` file or a `.onnx` file."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tensorc.dtype import DType
from tensorc.errors import ArgumentError
from tensorc.graph.graph import Array, Value
from tensorc.graph.network import Network, load
from tensorc.graph.networks import NAMES, network
from tensorc.graph.reports import difference, worst
from tensorc.graph.unsupported import Problems

SUFFIXES = (".pt2", ".onnx")


@dataclass(frozen=True, slots=True)
class Subject:
    """A network that is imported, and arguments to call it with.

    Attributes:
        name: as the user gave it.
        network: as the compiler takes it.
        arguments, keywords: of a call; random.
        torch: the same network in torch, if it came from there.
        source: what others than torch are made of: a module or program of torch's, or the path of
            an ONNX model.
        import_seconds: how long the import took.
    """

    name: str
    network: Network
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]
    torch: Callable[..., Any] | None
    source: Any
    import_seconds: float


def subject(
    name: str, seed: int = 0, sizes: Mapping[str, int] | None = None, **options: Any
) -> Subject:
    """The network of a name or path; options are those of `graph.networks.network`.

    `sizes` are the symbolic dimensions of an ONNX model.

    Raises:
        ArgumentError: there is no such network, option or size; a file is damaged, or a package
            missing.
        UnsupportedNetworkError: it uses what we do not support.
    """
    suffix = Path(name).suffix.lower()
    if suffix in SUFFIXES and options:
        raise ArgumentError("options", f"a file has none, got {', '.join(options)}")
    if suffix == ".onnx":
        return _onnx_model(name, seed, sizes or {})
    if sizes and suffix == ".pt2":
        reason = (
            f"export {name} with fixed shapes; these are for .onnx files, got {', '.join(sizes)}"
        )
        raise ArgumentError("size", reason)
    if sizes:
        reason = f"{name} has no symbolic dimensions, as an .onnx file may; got {', '.join(sizes)}"
        raise ArgumentError("size", reason)
    if suffix == ".pt2":
        return _torch_program(name, seed)
    if name not in NAMES:
        legal = f"{', '.join(NAMES)}, a .pt2 file, a .onnx file"
        raise ArgumentError("network", f"there is no {name!r}; legal here: {legal}")
    module, inputs = network(name, seed, **options)
    start = time.perf_counter()
    imported = load(module, inputs)
    seconds = time.perf_counter() - start
    return Subject(name, imported, inputs, {}, module, module, seconds)


def _onnx_model(name: str, seed: int, sizes: Mapping[str, int]) -> Subject:
    random = np.random.default_rng(seed)
    examples = None
    if sizes or _symbols(name):
        examples = tuple(_array(value, random) for value in _sized(name, sizes))
    start = time.perf_counter()
    imported: Any = load(name, examples)
    seconds = time.perf_counter() - start
    if examples is None:
        examples = tuple(_array(value, random) for value in imported.graph.inputs)
    return Subject(name, imported, examples, {}, None, name, seconds)


def _symbols(name: str) -> dict[str, None]:
    """The symbolic dimensions of a model's inputs, in order."""
    from tensorc.graph.onnx_examples import dimensions
    from tensorc.graph.onnx_source import read

    found = dimensions(read(name).model)
    return dict.fromkeys(d for shape in found.values() for d in shape if isinstance(d, str))


def _sized(name: str, sizes: Mapping[str, int]) -> list[Value]:
    """The inputs of a model with these sizes. Raises ArgumentError: one is missing or unknown."""
    from tensorc.graph.onnx_examples import bound_inputs, input_infos
    from tensorc.graph.onnx_source import read

    symbols = _symbols(name)
    known = ", ".join(symbols) or "none"
    for size in sizes:
        if size not in symbols:
            raise ArgumentError("size", f"there is no size {size!r}; the sizes are {known}")
    for symbol in symbols:
        if symbol not in sizes:
            reason = f"{symbol} is symbolic: give --size {symbol}=... (the sizes are {known})"
            raise ArgumentError("size", reason)
    source, problems = read(name), Problems()
    values = bound_inputs(input_infos(source.model), {}, problems, sizes)
    problems.refuse(source.name)
    return [value for value in values.values() if value is not None]


def _torch_program(name: str, seed: int) -> Subject:
    start = time.perf_counter()
    imported = load(name)
    seconds = time.perf_counter() - start
    program = _program(name)
    examples: Any = program.example_inputs or ((), {})
    positional, named = _shuffled(examples, np.random.default_rng(seed))
    return Subject(name, imported, positional, named, program.module(), program, seconds)


def _program(path: str) -> Any:
    """The program of a file as it was saved: what was imported may have been taken apart."""
    import torch

    with warnings.catch_warnings():
        # Torch uses what it deprecates.
        warnings.simplefilter("ignore", FutureWarning)
        return torch.export.load(path)


def _array(value: Value, random: np.random.Generator) -> Array:
    """Random data for an input; small numbers for integers, since they may be indices."""
    from tensorc.graph.onnx_tensors import numpy_dtype

    kind = numpy_dtype(value.dtype)
    if value.dtype.is_float:
        return random.standard_normal(value.shape).astype(kind)
    return random.integers(0, 2, value.shape).astype(kind)


def _shuffled(examples: Any, random: np.random.Generator) -> Any:
    """Example inputs with other random data for floats; the rest, often indices, as it is."""
    import torch
    from torch.utils import _pytree as pytree

    generator = torch.Generator().manual_seed(int(random.integers(1 << 31)))

    def changed(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or not leaf.is_floating_point():
            return leaf
        return torch.randn(leaf.shape, generator=generator).to(leaf.dtype)

    return pytree.tree_map(changed, examples)


def results_of(result: Any) -> list[Array]:
    """The tensors or arrays of a result, as arrays of NumPy's, in the order of the result."""
    if isinstance(result, np.ndarray):
        return [result]
    if isinstance(result, Sequence) and all(isinstance(one, np.ndarray) for one in result):
        return list(result)
    import torch
    from torch.utils import _pytree as pytree

    leaves = pytree.tree_leaves(result)
    kept = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor | np.ndarray)]
    return [np.asarray(_plain(leaf)) for leaf in kept]


def _plain(leaf: Any) -> Any:
    import torch

    if not isinstance(leaf, torch.Tensor):
        return leaf
    leaf = leaf.detach()
    return (leaf.float() if leaf.dtype is torch.bfloat16 else leaf).numpy()


def relative_error(ours: Any, theirs: Any) -> float:
    """The greatest relative norm of a difference of results, `|a - b| / |b|`, as `compare` has it;
    infinite where their shapes differ."""
    pairs = results_of(ours), results_of(theirs)
    if [a.shape for a in pairs[0]] != [b.shape for b in pairs[1]]:
        return float("inf")
    # Arrays of bf16 come as floats: none is in storage form.
    return worst(difference(a, (b, DType.F64))[0] for a, b in zip(*pairs, strict=True))
