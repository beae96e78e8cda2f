"""The generated entry check against an oracle that looks at every byte of every element."""

from __future__ import annotations

import itertools
import math
import pickle
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from tensorc.dtype import DType
from tensorc.errors import ArgumentError
from tensorc.ir.arith import add, index, var
from tensorc.ir.nodes import Const, Var
from tensorc.runtime.abi import Signature
from tensorc.runtime.array import empty
from tensorc.runtime.entry import make_entry
from tests.runtime.signatures import Calls, buffer

torch = pytest.importorskip("torch")

NUMPY = {DType.U8: np.uint8, DType.I32: np.int32, DType.F32: np.float32, DType.F64: np.float64}
ARENA = 4096


@dataclass(frozen=True)
class Placed:
    """An array in the arena: byte offset and byte strides, and through which library it is seen."""

    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: DType
    locked: bool
    library: str

    def bytes(self):
        width = self.dtype.bytes
        for point in itertools.product(*map(range, self.shape)):
            first = self.offset + sum(p * s for p, s in zip(point, self.strides, strict=True))
            yield from range(first, first + width)

    def inside(self):
        found = list(self.bytes())
        return min([self.offset, *found]) >= 0 and max([self.offset, *found]) < ARENA

    def made(self, arena):
        array = np.ndarray(self.shape, NUMPY[self.dtype], arena, self.offset, self.strides)
        array.flags.writeable = not self.locked
        return WRAP[self.library](array)


class Interface:
    def __init__(self, array):
        self.array, self.__array_interface__ = array, array.__array_interface__


class DLPack:
    def __init__(self, array):
        self.array = array
        self.__dlpack_device__ = array.__dlpack_device__

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **keywords):
        return self.array.__dlpack__(**keywords)


def as_torch(array):
    """The array as torch sees it, when torch can (it knows no negative or odd strides)."""
    strides_fit = all(s >= 0 and s % array.itemsize == 0 for s in array.strides)
    return torch.from_numpy(array) if array.flags.writeable and strides_fit else array


WRAP = {
    "numpy": lambda array: array,
    "torch": as_torch,
    "interface": Interface,
    "dlpack": lambda a: DLPack(a) if all(s % a.itemsize == 0 for s in a.strides) else a,
    "memoryview": memoryview,
}


def compact(shape, width):
    return tuple(width * math.prod(shape[d + 1 :]) for d in range(len(shape)))


def fits(param, placed, sizes, address):
    """Whether one array is what the parameter asks for, given all sizes."""
    wanted = param.value
    shape = tuple(value_of(extent, sizes) for extent in wanted.shape)
    width = wanted.dtype.bytes
    strides = compact(shape, width)
    if wanted.strides is not None:
        strides = tuple(s * width for s in wanted.strides)
    if (placed.dtype, placed.shape) != (wanted.dtype, shape):
        return False
    steps = zip(shape, placed.strides, strides, strict=True)
    if 0 not in shape and any(a != b for extent, a, b in steps if extent > 1):
        return False
    if 0 not in shape and (address + placed.offset) % max(wanted.alignment or 1, width):
        return False
    return param.mode in ("in", "const") or not placed.locked


def value_of(extent, sizes):
    if isinstance(extent, Const):
        return int(extent.value)
    if isinstance(extent, Var):
        return sizes[extent.name]
    return value_of(extent.a, sizes) + value_of(extent.b, sizes)


def accepted(signature, arrays, address):
    """The oracle: the sizes under which the call is right, or None."""
    for values in itertools.product(range(9), repeat=len(signature.sizes)):
        sizes = dict(zip(signature.sizes, values, strict=True))
        if all(fits(p, a, sizes, address) for p, a in zip(signature.params, arrays, strict=True)):
            break
    else:
        return None
    for (p, a), (q, b) in itertools.combinations(zip(signature.params, arrays, strict=True), 2):
        written = {"out", "inout"} & {p.mode, q.mode}
        if written and set(a.bytes()) & set(b.bytes()):
            return None
    return sizes


@st.composite
def signatures(draw):
    params = [buffer("head", "N", "M", dtype=draw(st.sampled_from(list(NUMPY))))]
    for name in draw(st.sampled_from([(), ("B",), ("B", "C")])):
        extents = st.sampled_from(["N", "M", 0, 1, 2, 3, 4, add(var("N"), index(1))])
        shape = draw(st.lists(extents, max_size=3))
        strides = None
        if shape and draw(st.integers(0, 3)) == 0:
            strides = tuple(draw(st.sampled_from([1, 2, 4, 5, 20])) for _ in shape)
        params.append(
            buffer(
                name,
                *shape,
                dtype=draw(st.sampled_from(list(NUMPY))),
                mode=draw(st.sampled_from(["in", "const", "out", "inout"])),
                strides=strides,
                alignment=draw(st.sampled_from([None, None, 16, 64])),
            )
        )
    return Signature("f", tuple(params))


@st.composite
def calls(draw):
    """A signature, and arrays that fit it but for up to two changes, placed in one arena."""
    signature = draw(signatures())
    sizes = {name: draw(st.integers(0, 4)) for name in signature.sizes}
    arrays = []
    for position, param in enumerate(signature.params):
        wanted = param.value
        width = wanted.dtype.bytes
        shape = tuple(value_of(extent, sizes) for extent in wanted.shape)
        strides = compact(shape, width)
        if wanted.strides is not None:
            strides = tuple(s * width for s in wanted.strides)
        library = draw(st.sampled_from(sorted(WRAP)))
        arrays.append(Placed(position * 1280, shape, strides, wanted.dtype, False, library))
    for _ in range(draw(st.integers(0, 2))):
        which = draw(st.integers(0, len(arrays) - 1))
        arrays[which] = draw(changed(arrays[which], arrays))
    return signature, [a for a in arrays if a.inside()], arrays


@st.composite
def changed(draw, array, others):
    rank = len(array.shape)
    kind = draw(st.sampled_from(
        ["offset", "near", "dtype", "lock", "shape", "strides", "transpose", "rank", "torch"]
    ))  # fmt: skip
    if kind == "offset":
        return replace(array, offset=array.offset + draw(st.integers(-70, 70)))
    if kind == "near":
        other = draw(st.sampled_from(others))
        return replace(array, offset=other.offset + draw(st.sampled_from([0, 4, 8, 16, 64, 320])))
    if kind == "dtype":
        return replace(array, dtype=draw(st.sampled_from(list(NUMPY))))
    if kind == "lock":
        return replace(array, locked=True)
    if kind == "rank":
        width = array.dtype.bytes
        return replace(array, shape=(1, *array.shape), strides=(width, *array.strides))
    if kind == "transpose":
        return replace(array, shape=array.shape[::-1], strides=array.strides[::-1])
    if rank and kind == "shape":
        d = draw(st.integers(0, rank - 1))
        shape = (*array.shape[:d], draw(st.integers(0, 5)), *array.shape[d + 1 :])
        return replace(array, shape=shape)
    if rank and kind == "strides":
        d = draw(st.integers(0, rank - 1))
        new = draw(st.sampled_from([-8, -4, 0, 1, 4, 8, 16, 24]))
        return replace(array, strides=(*array.strides[:d], new, *array.strides[d + 1 :]))
    return replace(array, library="torch")


@given(calls())
def test_the_check_accepts_exactly_what_the_oracle_accepts(case):
    signature, inside, arrays = case
    if len(inside) < len(arrays):
        event("left the arena")
        return
    arena = empty((ARENA,), DType.U8, 4096, "arena")
    address = arena.ctypes.data
    sizes = accepted(signature, arrays, address)
    event("accepted" if sizes is not None else "refused")
    kernel = Calls()
    call = make_entry(signature).bind(kernel, RuntimeError, None, None)
    given_arrays = [array.made(arena) for array in arrays]
    if sizes is None:
        with pytest.raises(ArgumentError) as caught:
            call(*given_arrays)
        assert caught.value.argument in {param.name for param in signature.params}
        assert kernel == []
        return
    call(*given_arrays)
    (got,) = kernel
    for position, placed in enumerate(arrays):
        if 0 not in placed.shape:
            assert got[position] == address + placed.offset
    assert got[len(arrays) :] == tuple(sizes[name] for name in signature.sizes)


# Whatever comes -------------------------------------------------------------------------------

ODD = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(max_size=80),
    st.lists(st.integers(), max_size=3), st.dictionaries(st.text(), st.integers(), max_size=2),
    st.builds(bytearray, st.binary(max_size=80)),
    st.builds(np.float32, st.floats(width=32)),
    st.builds(
        np.zeros,
        st.lists(st.integers(0, 3), max_size=4).map(tuple),
        st.sampled_from(["f4", ">f4", "f8", "c8", "O", "S3", "M8[s]", "V2", "u8", "f2", "?",
                         [("a", "i4"), ("b", "f8")]]),
    ),
    st.builds(torch.zeros, st.lists(st.integers(0, 3), max_size=4)),
)  # fmt: skip


@given(signatures(), st.lists(ODD, max_size=4))
def test_whatever_comes_is_accepted_or_refused_by_name(signature, arguments):
    kernel = Calls()
    call = make_entry(signature).bind(kernel, RuntimeError, None, None)
    refusal = None
    try:
        call(*arguments)
    except ArgumentError as caught:
        refusal = caught
    assert len(kernel) == (refusal is None)
    if refusal is not None:
        names = [param.name for param in signature.params]
        assert refusal.argument in {*names, f"#{len(names) + 1}"}
        assert pickle.loads(pickle.dumps(refusal)).reason == refusal.reason
