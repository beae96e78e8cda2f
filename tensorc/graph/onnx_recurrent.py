"""ONNX's recurrent layers over a sequence of known length, step by step.

Of each step, one product is over the input and one over the state, for all gates at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from tensorc.graph.elements import RefusedError
from tensorc.graph.emit import Emit
from tensorc.graph.graph import Value
from tensorc.graph.onnx_calls import Call, Results, maps, permuted

LONGEST = 128
"""The length up to which a sequence is unrolled."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One direction of a layer: weights with the input's size first, and activations by name."""

    emit: Emit
    size: int
    weight: Value
    recurrent: Value
    bias: Value | None
    recurrent_bias: Value | None
    peepholes: tuple[Value, ...]
    functions: tuple[str, ...]
    linear_before_reset: bool
    coupled: bool

    def activated(self, number: int, value: Value) -> Value:
        op = _ACTIVATIONS[self.functions[number]]
        return self.emit(op, self=value)

    def product(self, value: Value, matrix: Value, bias: Value | None) -> Value:
        if bias is None:
            return self.emit("mm", self=value, mat2=matrix)
        return self.emit("addmm", self=bias, mat1=value, mat2=matrix)

    def gates(self, value: Value, count: int) -> tuple[Value, ...]:
        """What belongs to each gate: equal parts of the last dimension."""
        return self.emit.all(
            "split_with_sizes", self=value, split_sizes=(self.size,) * count, dim=-1
        )

    def sum(self, a: Value, b: Value) -> Value:
        return self.emit("add", self=a, other=b)

    def mul(self, a: Value, b: Value) -> Value:
        return self.emit("mul", self=a, other=b)

    def mixed(self, share: Value, a: Value, b: Value) -> Value:
        """(1 - share) * a + share * b."""
        rest = self.emit("rsub", self=share, other=1.0)
        return self.sum(self.mul(rest, a), self.mul(share, b))


_ACTIVATIONS: Mapping[str, str] = MappingProxyType(
    {"Sigmoid": "sigmoid", "Tanh": "tanh", "Relu": "relu"}
)
# A step: from the cell, the input and the state (hidden, and for an LSTM the cell's) to the state.
State = tuple[Value, ...]
Step = Callable[[Cell, Value, State], State]


def _simple(cell: Cell, x: Value, state: State) -> State:
    given = cell.product(x, cell.weight, cell.bias)
    kept = cell.product(state[0], cell.recurrent, cell.recurrent_bias)
    return (cell.activated(0, cell.sum(given, kept)),)


def _gated(cell: Cell, x: Value, state: State) -> State:
    """z, r and h: update and reset gates, and the new part of the state."""
    (hidden,) = state
    given = cell.gates(cell.product(x, cell.weight, cell.bias), 3)
    kept = cell.gates(cell.product(hidden, cell.recurrent, cell.recurrent_bias), 3)
    update = cell.activated(0, cell.sum(given[0], kept[0]))
    reset = cell.activated(0, cell.sum(given[1], kept[1]))
    if cell.linear_before_reset:
        inner = cell.mul(reset, kept[2])
    else:
        own = cell.emit("slice", self=cell.recurrent, dim=1, start=2 * cell.size, end=3 * cell.size)
        bias = cell.recurrent_bias
        if bias is not None:
            bias = cell.emit("slice", self=bias, dim=0, start=2 * cell.size, end=3 * cell.size)
        inner = cell.product(cell.mul(reset, hidden), own, bias)
    new = cell.activated(1, cell.sum(given[2], inner))
    return (cell.mixed(update, new, hidden),)


def _long_short(cell: Cell, x: Value, state: State) -> State:
    """i, o, f and c: input, output and forget gates, and the new part of the cell's state."""
    hidden, memory = state
    total = cell.sum(
        cell.product(x, cell.weight, cell.bias),
        cell.product(hidden, cell.recurrent, cell.recurrent_bias),
    )
    given, out, forget, new = cell.gates(total, 4)
    if cell.peepholes:
        given = cell.sum(given, cell.mul(cell.peepholes[0], memory))
        forget = cell.sum(forget, cell.mul(cell.peepholes[2], memory))
    given, new = cell.activated(0, given), cell.activated(1, new)
    if cell.coupled:
        memory = cell.mixed(given, memory, new)
    else:
        forget = cell.activated(0, forget)
        memory = cell.sum(cell.mul(forget, memory), cell.mul(given, new))
    if cell.peepholes:
        out = cell.sum(out, cell.mul(cell.peepholes[1], memory))
    return cell.mul(cell.activated(0, out), cell.activated(2, memory)), memory


@maps("RNN", 7, 14, 22)
def _rnn(call: Call) -> Results:
    return _layer(call, _simple, 1, ("Tanh",))


@maps("GRU", 7, 14, 22)
def _gru(call: Call) -> Results:
    return _layer(call, _gated, 3, ("Sigmoid", "Tanh"))


@maps("LSTM", 7, 14, 22)
def _lstm(call: Call) -> Results:
    return _layer(call, _long_short, 4, ("Sigmoid", "Tanh", "Tanh"))


def _layer(call: Call, step: Step, gates: int, defaults: tuple[str, ...]) -> Results:
    emit, attributes = call.emit, call.attributes
    call.refuse_attribute("clip")
    ranks = [len(call[n].shape) for n in range(3)]
    if ranks != [3, 3, 3]:
        raise RefusedError(f"a sequence and weights of {ranks} dimensions")
    batch_first = bool(attributes.get("layout", 0))
    source = permuted(emit, call[0], (1, 0, 2)) if batch_first else call[0]
    length, batch, _ = source.shape
    _check_lengths(call, length, batch)
    direction = attributes["direction"]
    count = 2 if direction == "bidirectional" else 1
    if call[1].shape[0] != count:
        raise RefusedError(f"direction={direction!r} for weights of {list(call[1].shape)}")
    size = attributes.get("hidden_size", call[2].shape[-1])
    # The default of an RNN names the activations of both directions, whether there are or not.
    functions = tuple(attributes.get("activations", defaults * count))[: len(defaults) * count]
    unknown = [name for name in functions if name not in _ACTIVATIONS]
    if unknown or len(functions) != len(defaults) * count:
        raise RefusedError(f"activations {list(functions)}")
    steps, states = [], []
    for n in range(count):
        own = functions[n * len(defaults) : (n + 1) * len(defaults)]
        cell = _cell(call, n, size, gates, own)
        state = _initial(call, n, (batch, size), 2 if gates == 4 else 1, batch_first)
        backwards = direction == "reverse" or n == 1
        found = [state[0]] * length
        for t in reversed(range(length)) if backwards else range(length):
            state = step(cell, emit("select", self=source, dim=0, index=t), state)
            found[t] = state[0]
        steps.append(found)
        states.append(state)
    every = [_stacked(emit, [steps[n][t] for n in range(count)], 0) for t in range(length)]
    whole = _stacked(emit, every, 0)
    last = [_stacked(emit, parts, 0) for parts in zip(*states, strict=True)]
    if batch_first:
        whole = permuted(emit, whole, (2, 0, 1, 3))
        last = [permuted(emit, one, (1, 0, 2)) for one in last]
    return whole, *last


def _check_lengths(call: Call, length: int, batch: int) -> None:
    if not 0 < length <= LONGEST:
        raise RefusedError(f"a sequence of {length}; up to {LONGEST} steps are unrolled")
    if call.get(4) is not None:
        lengths = call.integers(4, "the length of its sequences")
        if lengths != (length,) * batch:
            raise RefusedError(f"sequences of lengths {list(lengths)} in one of {length}")


def _stacked(emit: Emit, values: Sequence[Value], dim: int) -> Value:
    columns = tuple(emit("unsqueeze", self=value, dim=dim) for value in values)
    return columns[0] if len(columns) == 1 else emit("cat", tensors=columns, dim=dim)


def _cell(call: Call, n: int, size: int, gates: int, functions: tuple[str, ...]) -> Cell:
    emit = call.emit
    weight, recurrent = (
        permuted(emit, emit("select", self=call[k], dim=0, index=n), (1, 0)) for k in (1, 2)
    )
    bias = recurrent_bias = None
    if call.get(3) is not None:
        own = emit("select", self=call[3], dim=0, index=n)
        bias, recurrent_bias = emit.all(
            "split_with_sizes", self=own, split_sizes=(gates * size,) * 2, dim=0
        )
    peepholes: tuple[Value, ...] = ()
    if gates == 4 and call.get(7) is not None:
        own = emit("select", self=call[7], dim=0, index=n)
        peepholes = emit.all("split_with_sizes", self=own, split_sizes=(size,) * 3, dim=0)
    return Cell(
        emit, size, weight, recurrent, bias, recurrent_bias, peepholes, functions,
        bool(call.attributes.get("linear_before_reset", 0)),
        bool(call.attributes.get("input_forget", 0)),
    )  # fmt: skip


def _initial(call: Call, n: int, shape: tuple[int, int], parts: int, batch_first: bool) -> State:
    """The state at the start, zeros where none is given."""
    found = []
    for position in range(5, 5 + parts):
        if call.get(position) is None:
            zeros = call.emit("full", size=shape, fill_value=0, dtype=call[0].dtype)
            found.append(zeros)
        else:
            dim = 1 if batch_first else 0
            found.append(call.emit("select", self=call[position], dim=dim, index=n))
    return tuple(found)
