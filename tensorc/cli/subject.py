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


def subject(name: str, seed: int = 0, **options: Any) -> Subject:
    """The network of a name or path; options are those of `graph.networks.network`.

    Raises:
        ArgumentError: there is no such network or option; a file is damaged, or a package missing.
        UnsupportedNetworkError: it uses what we do not support.
    """
    if Path(name).suffix in SUFFIXES:
        if options:
            raise ArgumentError("options", f"a file has none, got {', '.join(options)}")
        return _from_file(name, seed)
    if name not in NAMES:
        legal = f"{', '.join(NAMES)}, a .pt2 file, a .onnx file"
        raise ArgumentError("network", f"there is no {name!r}; legal here: {legal}")
    module, inputs = network(name, seed, **options)
    start = time.perf_counter()
    imported = load(module, inputs)
    seconds = time.perf_counter() - start
    return Subject(name, imported, inputs, {}, module, module, seconds)


def _from_file(name: str, seed: int) -> Subject:
    start = time.perf_counter()
    imported: Any = load(name)
    seconds = time.perf_counter() - start
    random = np.random.default_rng(seed)
    if Path(name).suffix == ".onnx":
        arrays = tuple(_array(value, random) for value in imported.graph.inputs)
        return Subject(name, imported, arrays, {}, None, name, seconds)
    program = _program(name)
    arguments, keywords = program.example_inputs or ((), {})
    positional, named = _shuffled((arguments, keywords), random)
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
    from tensorc.ir.interp.arrays import STORAGE

    if value.dtype is DType.BF16:
        raise ArgumentError(value.name, "NumPy has no bfloat16, so no random data can be made")
    kind = STORAGE[value.dtype]
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
    """The greatest relative norm of a difference of results, `|a - b| / |b|`; infinite where their
    shapes differ."""
    pairs = results_of(ours), results_of(theirs)
    if [a.shape for a in pairs[0]] != [b.shape for b in pairs[1]]:
        return float("inf")
    return max((_difference(a, b) for a, b in zip(*pairs, strict=True)), default=0.0)


def _difference(a: Array, b: Array) -> float:
    delta = np.linalg.norm((a.astype(np.float64) - b.astype(np.float64)).ravel())
    scale = np.linalg.norm(b.astype(np.float64).ravel())
    return float(delta / scale if scale else delta)
