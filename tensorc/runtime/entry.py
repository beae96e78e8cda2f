"""The one entry check: Python source made for each signature, run before anything is dereferenced.

The source takes the arguments of a call, refuses whatever the kernel does not expect, and calls the
kernel with addresses, scalars and sizes. It is tight because it costs time at every call: a plain
NumPy array goes through a path of its own, everything else through `array.view`.
"""

from __future__ import annotations

import ctypes
import hashlib
import linecache
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import NoReturn

import numpy as np

from tensorc.dtype import DType
from tensorc.errors import ArgumentError
from tensorc.ir.arith import TRUE
from tensorc.ir.nodes import Buffer, Const, Var
from tensorc.ir.print import print_expr
from tensorc.runtime.abi import (
    DIVISIONS,
    Signature,
    alignment_of,
    described,
    extents,
    python_of,
    scalar,
    shape_text,
    symbols,
    writes,
)
from tensorc.runtime.array import (
    View,
    compact_strides,
    is_compact,
    numpy_dtype,
    strides_match,
    view,
)

Call = Callable[..., None]
Outside = Callable[[Mapping[str, int]], str]
# Beyond this many steps of numpy.shares_memory two interleaved arrays count as overlapping.
OVERLAP_WORK = 100_000
_FLOAT_LIMIT = {DType.F32: 3.4028234663852886e38, DType.F64: math.inf}


@dataclass(frozen=True, slots=True)
class Entry:
    """The check of one signature: its `source`, and `bind`, which makes the callable.

    `bind(function, failure, before, workspaces)` takes the C function, what turns a positive result
    into an error, what must be done before a call (or None), and where a kernel with scratch gets
    its workspaces: take(shared bytes, bytes of a worker) lends an object whose `arguments` are its
    address and the workers that it is for, give_back takes it again.
    """

    source: str
    bind: Callable[..., Call]


def make_entry(
    signature: Signature, parallel: bool = False, outside: Outside = lambda values: ""
) -> Entry:
    """Write and compile the entry check of a signature, of a kernel with parallel loops or not.

    `outside` tells in words which access leaves its array for sizes that are not legal.
    """
    source = "\n".join(_source(signature, parallel)) + "\n"
    scope: dict[str, object] = {
        **DIVISIONS,
        "ndarray": np.ndarray,
        "address_of": ctypes.addressof,
        "first_byte": ctypes.c_char.from_buffer,
        "view": view,
        "compact_strides": compact_strides,
        "is_compact": is_compact,
        "strides_match": strides_match,
        "span": span,
        "scalar": scalar,
        "refuse": Refusal(signature, outside),
        **{f"param{k}": param.value for k, param in enumerate(signature.params)},
        **{dtype.name: dtype for dtype in DType},
        **{
            f"NUMPY_{d.name}": numpy_dtype(d, "")
            for d in DType
            if d.is_data and d is not DType.BF16
        },
    }
    # Known to linecache, the generated lines show in tracebacks and in the debugger. Equal sources
    # share a name, so that ten thousand kernels of one signature leave one entry behind.
    file = f"<tensorc entry {hashlib.sha256(source.encode()).hexdigest()[:12]}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    exec(compile(source, file, "exec"), scope)
    bind: Callable[..., Call] = scope["bind"]  # type: ignore[assignment]
    return Entry(source, bind)


def _source(signature: Signature, parallel: bool) -> Iterator[str]:
    names = {name: f"size{k}" for k, name in enumerate(signature.sizes)}
    yield "def bind(function, failure, before, workspaces):"
    yield "    def call(*arguments):"
    yield f"        # {signature}"
    for line in (
        *_count_lines(signature),
        *_argument_lines(signature, names),
        *_size_lines(signature, names),
        *_legal_lines(signature, names),
        *_overlap_lines(signature),
        *_call_lines(signature, names, parallel),
    ):
        yield f"        {line}"
    yield "    return call"


def _count_lines(signature: Signature) -> Iterator[str]:
    number = len(signature.params)
    yield f"if len(arguments) != {number}:"
    yield "    refuse.count(arguments)"
    if number:
        yield f"{', '.join(f'a{k}' for k in range(number))}, = arguments"


def _argument_lines(signature: Signature, names: Mapping[str, str]) -> Iterator[str]:
    """What can be said of each argument alone; binds the sizes that stand alone as a dimension."""
    bound: set[str] = set()
    for k, param in enumerate(signature.params):
        yield f"# {described(param)}"
        if isinstance(param.value, Var):
            yield from _scalar_lines(k, param.value)
            continue
        yield from _array_lines(k, param.value, writes(param))
        new: dict[str, int] = {}
        for dimension, extent in enumerate(param.value.shape):
            if isinstance(extent, Var) and extent.name not in bound:
                new.setdefault(extent.name, dimension)
        if new:
            yield f"if len(s{k}) != {len(param.value.shape)}:"
            yield f"    refuse.rank({k}, s{k})"
        for name, dimension in new.items():
            yield f"{names[name]} = s{k}[{dimension}]"
        bound |= new.keys()


def _scalar_lines(k: int, value: Var) -> Iterator[str]:
    dtype = value.dtype
    if dtype in _FLOAT_LIMIT:
        limit = _FLOAT_LIMIT[dtype]
        test = f"type(a{k}) is float" + (f" and abs(a{k}) <= {limit!r}" if limit < math.inf else "")
    elif dtype.is_integer or dtype is DType.INDEX:
        test = f"type(a{k}) is int and {dtype.min} <= a{k} <= {dtype.max}"
    else:
        yield f"x{k} = scalar(param{k}, a{k})"
        return
    yield f"x{k} = a{k} if {test} else scalar(param{k}, a{k})"


def _array_lines(k: int, buffer: Buffer, written: bool) -> Iterator[str]:
    dtype = buffer.dtype
    margin = ""
    if buffer.strides is None and dtype is not DType.BF16:
        # `carray` is: compact, writable and aligned to the element.
        yield (
            f"if type(a{k}) is ndarray and a{k}.dtype is NUMPY_{dtype.name}"
            f" and a{k}.flags.carray and a{k}.size:"
        )
        yield f"    v{k} = None; s{k} = a{k}.shape; p{k} = address_of(first_byte(a{k}))"
        yield "else:"
        margin = "    "
    yield f"{margin}v{k} = view(a{k}, {buffer.name!r}); s{k} = v{k}.shape; p{k} = v{k}.address"
    yield f"{margin}if v{k}.dtype is not {dtype.name}:"
    yield f"{margin}    refuse.dtype({k}, v{k})"
    if written:
        yield f"{margin}if v{k}.locked:"
        yield f"{margin}    refuse.locked({k}, v{k})"


def _size_lines(signature: Signature, names: Mapping[str, str]) -> Iterator[str]:
    """Shapes, strides and alignment, now that every size is known."""
    yield "# shapes, strides, alignment"
    bindings = ", ".join(f"{name!r}: {local}" for name, local in names.items())
    for k, buffer in signature.buffers:
        dimensions = [python_of(extent, names) for extent in buffer.shape]
        shape = "(" + "".join(f"{d}, " for d in dimensions).rstrip() + ")"
        yield f"if s{k} != {shape}:"
        yield f"    refuse.shape({k}, s{k}, {{{bindings}}})"
        width = buffer.dtype.bytes
        if buffer.strides is None:
            yield f"if v{k} is not None and not is_compact(s{k}, v{k}.strides, {width}):"
        else:
            needed = tuple(stride * width for stride in buffer.strides)
            got = f"v{k}.strides or compact_strides(s{k}, {width})"
            yield f"if not strides_match(s{k}, {got}, {needed}):"
        yield f"    refuse.strides({k}, v{k})"
        yield f"n{k} = {_bytes(k, buffer)}"
        if alignment_of(buffer) > 1:
            yield f"if p{k} & {alignment_of(buffer) - 1} and n{k}:"
            yield f"    refuse.alignment({k}, p{k})"


def _legal_lines(signature: Signature, names: Mapping[str, str]) -> Iterator[str]:
    """The condition under which no access leaves its array."""
    if signature.legal == TRUE:
        return
    scalars = {p.name: f"x{k}" for k, p in enumerate(signature.params) if isinstance(p.value, Var)}
    local = {**names, **scalars}
    read = dict.fromkeys(symbols(signature.legal))
    values = ", ".join(f"{name!r}: {local[name]}" for name in read)
    everything = ", ".join(f"{name!r}: {here}" for name, here in local.items())
    yield f"if not {python_of(signature.legal, local)}:"
    yield f"    refuse.outside({{{values}}}, {{{everything}}})"


def _bytes(k: int, buffer: Buffer) -> str:
    """The bytes from the first element to the end of the last, as source."""
    if buffer.strides is not None:
        return f"span(s{k}, {buffer.strides}) * {buffer.dtype.bytes}"
    known = math.prod(int(e.value) for e in buffer.shape if isinstance(e, Const))
    unknown = [f"s{k}[{d}]" for d, e in enumerate(buffer.shape) if not isinstance(e, Const)]
    return " * ".join([str(known * buffer.dtype.bytes), *unknown])


def _overlap_lines(signature: Signature) -> Iterator[str]:
    for (j, _), (k, _) in combinations(signature.buffers, 2):
        if writes(signature.params[j]) or writes(signature.params[k]):
            yield f"if p{j} < p{k} + n{k} and p{k} < p{j} + n{j}:"
            yield f"    refuse.overlap({j}, p{j}, s{j}, {k}, p{k}, s{k})"


def _call_lines(signature: Signature, names: Mapping[str, str], parallel: bool) -> Iterator[str]:
    own = [
        f"p{k}" if isinstance(param.value, Buffer) else f"x{k}"
        for k, param in enumerate(signature.params)
    ]
    values = [*own, *names.values()]
    if signature.scratch:
        shared = python_of(signature.shared_bytes, names)
        worker = python_of(signature.worker_bytes, names)
        yield f"workspace = workspaces.take({shared}, {worker})"
        yield "try:"
        yield f"    code = function({', '.join([*values, '*workspace.arguments'])})"
        yield "finally:"
        yield "    workspaces.give_back(workspace)"
    else:
        if parallel:
            yield "before()"
        yield f"code = function({', '.join(values)})"
    yield "if code:"
    yield "    raise failure(code)"


def span(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """The elements from the first to the last one of a strided array, both included."""
    if 0 in shape:
        return 0
    return 1 + sum((extent - 1) * s for extent, s in zip(shape, strides, strict=True))


class Refusal:
    """Says what is wrong with an argument: what was got, and what is needed."""

    def __init__(self, signature: Signature, outside: Outside = lambda values: ""):
        self._signature, self._outside = signature, outside

    def _buffer(self, position: int) -> Buffer:
        value = self._signature.params[position].value
        assert isinstance(value, Buffer)
        return value

    def count(self, arguments: tuple[object, ...]) -> NoReturn:
        names = [param.name for param in self._signature.params]
        got, number = len(arguments), len(names)
        needed = f"{self._signature.name} takes {number} ({', '.join(names)}), got {got}"
        if got < number:
            raise ArgumentError(names[got], f"missing; {needed}")
        raise ArgumentError(f"#{number + 1}", f"one argument too many; {needed}")

    def dtype(self, position: int, got: View) -> NoReturn:
        buffer = self._buffer(position)
        reason = f"its dtype is {got.dtype_name}, needed {buffer.dtype}"
        if buffer.dtype is DType.BF16 and got.dtype_name in ("uint16", "int16", "void16"):
            reason += " (bits could be either; pass a torch.bfloat16 or ml_dtypes.bfloat16 array)"
        raise ArgumentError(buffer.name, reason)

    def locked(self, position: int, got: View) -> NoReturn:
        buffer = self._buffer(position)
        raise ArgumentError(buffer.name, f"it is {got.locked}, needed one that may be written")

    def rank(self, position: int, shape: tuple[int, ...]) -> NoReturn:
        buffer = self._buffer(position)
        raise ArgumentError(
            buffer.name,
            f"its shape is {shape}, of rank {len(shape)}; needed {_shape_text(buffer)}, "
            f"of rank {len(buffer.shape)}",
        )

    def shape(self, position: int, got: tuple[int, ...], sizes: Mapping[str, int]) -> NoReturn:
        buffer = self._buffer(position)
        if len(got) != len(buffer.shape):
            self.rank(position, got)
        reason = f"its shape is {got}, needed {extents(buffer, sizes)}"
        symbolic = [name for extent in buffer.shape for name in symbols(extent)]
        if symbolic:
            reason += f" = {_shape_text(buffer)}, where "
            reason += " and ".join(
                f"{name} = {sizes[name]} ({self._origin(name)})" for name in dict.fromkeys(symbolic)
            )
        raise ArgumentError(buffer.name, reason)

    def outside(self, read: Mapping[str, int], values: Mapping[str, int]) -> NoReturn:
        """Refuse sizes for which an access would leave its array."""
        sizes = self._signature.sizes
        given = [
            f"{name} = {value}" + (f" ({self._origin(name)})" if name in sizes else "")
            for name, value in read.items()
        ]
        where = self._outside(values) or "an access would leave its array"
        legal = print_expr(self._signature.legal)
        raise ArgumentError(next(iter(read)), f"{' and '.join(given)}: {where}; legal: {legal}")

    def _origin(self, size: str) -> str:
        for _, buffer in self._signature.buffers:
            for dimension, extent in enumerate(buffer.shape):
                if isinstance(extent, Var) and extent.name == size:
                    return f"dimension {dimension} of `{buffer.name}`"
        raise AssertionError(f"size {size} stands alone nowhere")

    def strides(self, position: int, got: View) -> NoReturn:
        buffer = self._buffer(position)
        assert got.strides is not None or buffer.strides is not None
        width = buffer.dtype.bytes
        have = got.strides or compact_strides(got.shape, width)
        if buffer.strides is None:
            needed = "compact row-major " + str(compact_strides(got.shape, width))
            hint = "pass a compact copy such as numpy.ascontiguousarray(x) or x.contiguous()"
        else:
            needed = str(tuple(stride * width for stride in buffer.strides))
            hint = "the program declares these strides"
        raise ArgumentError(buffer.name, f"its strides are {have} bytes, needed {needed}; {hint}")

    def alignment(self, position: int, address: int) -> NoReturn:
        buffer = self._buffer(position)
        needed = alignment_of(buffer)
        reason = f"it starts at {address:#x}, {address % needed} bytes past a multiple of {needed}"
        raise ArgumentError(buffer.name, f"{reason}; needed an address aligned to {needed} bytes")

    def overlap(
        self,
        j: int, start_j: int, shape_j: tuple[int, ...],
        k: int, start_k: int, shape_k: tuple[int, ...],
    ) -> None:  # fmt: skip
        """Refuse if two arrays, whose spans of memory meet, have an element in common."""
        first, second = self._buffer(j), self._buffer(k)
        if 0 in shape_j or 0 in shape_k:
            return
        if (first.strides or second.strides) and not _share(
            first, start_j, shape_j, second, start_k, shape_k
        ):
            return
        # Whichever is written is to blame; the user passed both.
        guilty, other = (first, second) if writes(self._signature.params[j]) else (second, first)
        raise ArgumentError(
            guilty.name,
            f"it is written and overlaps `{other.name}` in memory; needed memory of its own",
        )


def _share(
    first: Buffer, first_start: int, first_shape: tuple[int, ...],
    second: Buffer, second_start: int, second_shape: tuple[int, ...],
) -> bool:  # fmt: skip
    """Whether two strided arrays have a byte in common; nothing of either is read."""
    a = np.asarray(_Place(first, first_start, first_shape))
    b = np.asarray(_Place(second, second_start, second_shape))
    try:
        return np.shares_memory(a, b, max_work=OVERLAP_WORK)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


class _Place:
    """An array's address, shape and strides, in the form that NumPy reads."""

    def __init__(self, buffer: Buffer, start: int, shape: tuple[int, ...]):
        width = buffer.dtype.bytes
        strides = buffer.strides and tuple(stride * width for stride in buffer.strides)
        self.__array_interface__ = {
            "version": 3,
            "data": (start, True),
            "shape": shape,
            "strides": strides,
            "typestr": f"|V{width}",
        }


def _shape_text(buffer: Buffer) -> str:
    return f"({shape_text(buffer)}{',' if len(buffer.shape) == 1 else ''})"
