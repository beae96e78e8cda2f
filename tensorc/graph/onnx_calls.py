"""How operators of ONNX are written in those of the graph IR: a table of functions.

A function takes a `Call`, makes nodes with `call.emit`, and gives a value for each result. It is
entered with the versions of the operator that it knows, which are those opsets in which ONNX
changed it; another version is refused. It raises `RefusedError` for what it does not cover.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar

from tensorc.dtype import DType
from tensorc.graph.elements import Number, RefusedError
from tensorc.graph.emit import Emit
from tensorc.graph.graph import Array, Value

# An array is a result that is known.
Result: TypeAlias = Value | Array | None
Results: TypeAlias = Value | Array | tuple[Result, ...]
Build: TypeAlias = Callable[["Call"], Results]
B = TypeVar("B", bound=Build)


class DependsOnDataError(RefusedError):
    """A number that has to be known when a network is compiled is computed from its inputs."""

    def __init__(self, what: str, value: Value):
        self.value = value
        super().__init__(f"{what} depends on data")


@dataclass(frozen=True, slots=True)
class Call:
    """One node of an ONNX model.

    An input that is left out is None. `attributes` has the defaults of the operator's version,
    where it gives them. `wanted` says of each result whether something may read it. `arrays` holds
    the values that are known.
    """

    op: str
    version: int
    inputs: tuple[Value | None, ...]
    attributes: Mapping[str, Any]
    wanted: tuple[bool, ...]
    emit: Emit
    arrays: Mapping[Value, Array]
    constant: Callable[[Array], Value]

    def __getitem__(self, position: int) -> Value:
        """An input that has to be there. Raises RefusedError when it is not."""
        value = self.get(position)
        if value is None:
            raise RefusedError(f"input {position} is missing")
        return value

    def get(self, position: int) -> Value | None:
        """An input, None when it is left out."""
        return self.inputs[position] if position < len(self.inputs) else None

    def asks(self, result: int) -> bool:
        """Whether something may read a result."""
        return result < len(self.wanted) and self.wanted[result]

    # Known inputs ---------------------------------------------------------------------------------

    def known(self, position: int, what: str) -> Array:
        """What an input holds, which has to be known; `what` names it in errors.

        Raises:
            DependsOnDataError: it is computed from the network's inputs.
        """
        value = self[position]
        if value not in self.arrays:
            raise DependsOnDataError(what, value)
        return self.arrays[value]

    def integers(self, position: int, what: str) -> tuple[int, ...]:
        """The integers that an input holds, which has to be known."""
        return tuple(int(one) for one in self.known(position, what).ravel())

    def number(self, position: int, what: str) -> Number:
        """The only element of an input, which has to be known."""
        array = self.known(position, what)
        if array.size != 1:
            raise RefusedError(f"{what} has {array.size} elements, expected one")
        return scalar(array)

    def operand(self, position: int, rank: int) -> Value | Number:
        """An input of a pointwise operator, whose other has `rank`: as a number if it is one."""
        value = self[position]
        array = self.arrays.get(value)
        if array is not None and array.size == 1 and array.ndim <= rank:
            return scalar(array)
        return value

    # Arguments by the versions of an operator --------------------------------------------------

    def named(self, name: str, position: int) -> tuple[int, ...] | None:
        """Integers that older versions take as an attribute and newer ones as an input."""
        given = self.attributes.get(name)
        if given is not None:
            return (given,) if isinstance(given, int) else tuple(given)
        return None if self.get(position) is None else self.integers(position, f"`{name}`")

    def axis(self, rank: int, name: str = "axis") -> int:
        """A dimension that an attribute names, counted from the front."""
        return dimension(self.attributes[name], rank)

    def refuse_attribute(self, name: str, *legal: Any) -> None:
        """Raises RefusedError unless the attribute is left out or one of some values."""
        value = self.attributes.get(name)
        if value is not None and value not in legal:
            raise RefusedError(f"{name}={value!r}")

    def same_dtype(self, *values: Value | None) -> DType:
        """The one dtype of some values. Raises RefusedError when they differ."""
        dtypes = dict.fromkeys(value.dtype for value in values if value is not None)
        if len(dtypes) != 1:
            raise RefusedError(f"operands of dtypes {', '.join(map(str, dtypes))}")
        return next(iter(dtypes))


def dimension(axis: int, rank: int) -> int:
    """A dimension counted from either end, as one counted from the front."""
    if not -rank <= axis < rank:
        raise RefusedError(f"axis {axis} of a tensor of {rank} dimensions")
    return axis % rank


def scalar(array: Array) -> Number:
    """The only element of an array as a Python number."""
    item = array.reshape(()).item() if array.dtype.kind in "biuf" else float(array.reshape(()))
    assert isinstance(item, bool | int | float)
    return item


def reshaped(emit: Emit, value: Value, shape: tuple[int, ...]) -> Value:
    """A view of a value in another shape."""
    return value if value.shape == shape else emit("view", self=value, size=shape)


def cast(emit: Emit, value: Value, dtype: DType) -> Value:
    """A value converted; itself where it has the dtype."""
    return value if value.dtype is dtype else emit("_to_copy", self=value, dtype=dtype)


def expanded(emit: Emit, value: Value, shape: tuple[int, ...]) -> Value:
    """A value broadcast to a shape."""
    return value if value.shape == shape else emit("expand", self=value, size=shape)


def permuted(emit: Emit, value: Value, order: tuple[int, ...]) -> Value:
    """A value with its dimensions in another order."""
    if order == tuple(range(len(order))):
        return value
    return emit("permute", self=value, dims=order)


# The table --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Entry:
    """How an operator is built, and the versions of it that this is right for."""

    build: Build
    versions: frozenset[int]


_TABLE: dict[tuple[str, str], Entry] = {}
_FAMILIES = (
    "pointwise", "activations", "shapes", "indexing", "linear", "pooling", "reductions", "norms",
    "resize", "sampling", "quantised", "recurrent", "einsum",
)  # fmt: skip


def maps(name: str, *versions: int, domain: str = "") -> Callable[[B], B]:
    """Enters a function for the given versions of an operator."""

    def enter(build: B) -> B:
        _TABLE[domain, name] = Entry(build, frozenset(versions))
        return build

    return enter


@cache
def table() -> Mapping[tuple[str, str], Entry]:
    """All operators of ONNX that are known, by domain and name."""
    for family in _FAMILIES:
        import_module(f"tensorc.graph.onnx_{family}")
    return MappingProxyType(_TABLE)


def find(domain: str, op: str, version: int) -> Build | None:
    """The function for one version of an operator, None when there is none."""
    entry = table().get((domain, op))
    return entry.build if entry is not None and version in entry.versions else None
