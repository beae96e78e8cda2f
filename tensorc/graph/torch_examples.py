"""The example inputs that a module is exported with, checked before torch traces it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np

from tensorc.errors import ArgumentError
from tensorc.graph.torch_tensors import check_dense

FAILURES = (
    ArithmeticError, AssertionError, AttributeError, LookupError, OSError, RuntimeError, TypeError,
    ValueError,
)  # fmt: skip
"""What a module's code raises over arguments that it was not made for."""


def checked_examples(
    module: Any, inputs: Any, keywords: Any
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The positional and the keyword arguments of a call of a module; None stands for no such.

    Raises:
        ArgumentError: they are of other kinds, or not those of the module's `forward`.
    """
    import torch
    from torch.utils import _pytree as pytree

    examples = checked_kinds(inputs, keywords)
    _check_call(module, *examples)
    for name, given in zip(("example_inputs", "example_keywords"), examples, strict=True):
        for leaf in pytree.tree_leaves(given):
            if isinstance(leaf, torch.Tensor):
                check_dense(leaf, name)
            elif isinstance(leaf, np.ndarray | np.generic):
                reason = f"{_described(leaf)} among them; pass torch tensors (torch.from_numpy)"
                raise ArgumentError(name, reason)
    return examples


def checked_kinds(inputs: Any, keywords: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments as such; None stands for no such.

    Raises:
        ArgumentError: they are of other kinds.
    """
    import torch

    inputs = () if inputs is None else (inputs,) if isinstance(inputs, torch.Tensor) else inputs
    if not isinstance(inputs, tuple | list):
        reason = "expected a tuple of the module's positional arguments"
        raise ArgumentError("example_inputs", f"{reason}, got {_described(inputs)}")
    keywords = {} if keywords is None else keywords
    if not isinstance(keywords, Mapping) or not all(isinstance(key, str) for key in keywords):
        reason = "expected the module's keyword arguments by name"
        raise ArgumentError("example_keywords", f"{reason}, got {_described(keywords)}")
    return tuple(inputs), dict(keywords)


def _check_call(module: Any, inputs: tuple[Any, ...], keywords: dict[str, Any]) -> None:
    try:
        signature = inspect.signature(module.forward)
    except (TypeError, ValueError):
        # It may be a function of C++; then tracing finds out.
        return
    try:
        signature.bind(*inputs, **keywords)
    except TypeError as error:
        names = ", ".join(map(str, signature.parameters.values()))
        reason = f"{type(module).__name__}.forward({names}) does not take them: {error}"
        raise ArgumentError("example_inputs", reason) from None


def _described(value: object) -> str:
    if isinstance(value, np.ndarray | np.generic):
        return f"a NumPy array of {value.dtype}"
    return f"{value!r:.80}"
