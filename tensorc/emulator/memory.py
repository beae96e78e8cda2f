"""Loads, stores, atomics, copies and addresses.

Shared addresses are offsets in the block's shared memory, local ones in the thread's local memory;
all others are device addresses, which name a region (`layout.Region`). An access is checked in
place against the bounds, and where that fails the run-time function for it is called, which says
what was wrong. With detectors on it is called at every access and does the checking too.
"""

from __future__ import annotations

from collections.abc import Sequence

from tensorc.emulator.emitter import Emitter, Translation, llvm_type
from tensorc.emulator.floats import combined
from tensorc.emulator.layout import (
    LOCAL_REGION,
    REGION_SHIFT,
    SHARED_REGION,
    Context,
    Found,
    Region,
)
from tensorc.emulator.ptx import Address, Instruction, Integer, Name, Operand, bits_of

__all__ = ["DECLARATIONS", "TRANSLATIONS"]

_ACCESS = "(ptr, i64, i32, i32)"
_KINDS = ("read", "write", "atomic", "publish")
DECLARATIONS = {
    **{
        f"tc.{space}.{kind}": f'declare ptr @"tc.{space}.{kind}"{_ACCESS}\n'
        for space in ("shared", "global")
        for kind in _KINDS
    },
    "tc.report.lane": 'declare void @"tc.report.lane"(ptr, i64, i64, i64)\n',
    "tc.report.here": 'declare void @"tc.report.here"(ptr, i64, i64, i64)\n',
    "tc.copy.start": 'declare i32 @"tc.copy.start"(ptr, i64, i64, i32, i32, i32, i32)\n',
    "tc.copy.commit": 'declare void @"tc.copy.commit"(ptr)\n',
    "tc.copy.wait": 'declare void @"tc.copy.wait"(ptr, i64)\n',
}
_SPACES = ("global", "shared", "local", "const", "param")
# What two threads may do to one place at once (section 8.4 of the ISA: strong operations).
_STRONG = ("relaxed", "acquire", "release", "acq_rel", "mmio")
_OFFSET_MASK = (1 << REGION_SHIFT) - 1


def space_of(instruction: Instruction) -> str:
    """The state space of an access; "generic" where none is written."""
    for modifier in instruction.modifiers:
        base = modifier.split("::")[0]
        if base in _SPACES:
            return base
    return "generic"


def pointer(
    e: Emitter, instruction: Instruction, space: str, address: str, size: int, kind: str
) -> str:
    """The host pointer of an access of `size` bytes, once it is known to be a legal one."""
    if space == "local":
        return _local(e, instruction, address, size)
    runtime = "shared" if space == "shared" else "global"
    site = e.site(instruction, space, kind, size)
    function = e.runtime_function(f"tc.{runtime}.{kind}")
    call = f"call ptr {function}(ptr %context, i64 {address}, i32 {size}, i32 {site})"
    if e.checked:
        found = e.out.result(call)
        e.leave_if(e.out.result(f"icmp eq ptr {found}, null"))
        return found
    if space == "shared":
        base, limit = e.context_pointer(Context.SHARED), e.context(Context.SHARED_BYTES)
        offset = address
    else:
        base, limit, offset = _region(e, address, kind)
    e.leave_through(_outside(e, offset, size, limit), call)
    return e.out.pure(f"getelementptr i8, ptr {base}, i64 {offset}")


def _region(e: Emitter, address: str, kind: str) -> tuple[str, str, str]:
    """The base, the size and the offset that a device address names."""
    pure = e.out.pure
    number = pure(f"lshr i64 {address}, {REGION_SHIFT}")
    known = pure(f"icmp ult i64 {number}, {e.context(Context.REGION_COUNT)}")
    number = pure(f"select i1 {known}, i64 {number}, i64 0")
    entry = pure(
        f"getelementptr [{int(Region.WORDS)} x i64], ptr {e.context_pointer(Context.REGIONS)}, "
        f"i64 {number}"
    )
    word = Region.BYTES if kind == "read" else Region.WRITABLE
    limit = pure(f"getelementptr i64, ptr {entry}, i64 {int(word)}")
    base = e.out.result(f"load ptr, ptr {entry}")
    offset = pure(f"and i64 {address}, {_OFFSET_MASK}")
    return base, e.out.result(f"load i64, ptr {limit}"), offset


def _outside(e: Emitter, offset: str, size: int, limit: str) -> str:
    """Whether `size` bytes at an offset are not aligned to their size or end past the limit."""
    pure = e.out.pure
    # A huge offset plus the size may wrap; the offset itself is then not below the limit.
    last = pure(f"add i64 {offset}, {size}")
    over = pure(f"icmp ugt i64 {last}, {limit}")
    beyond = pure(f"icmp uge i64 {offset}, {limit}")
    wrong = pure(f"or i1 {over}, {beyond}")
    if size == 1:
        return wrong
    low = pure(f"and i64 {offset}, {size - 1}")
    crooked = pure(f"icmp ne i64 {low}, 0")
    return pure(f"or i1 {wrong}, {crooked}")


def _local(e: Emitter, instruction: Instruction, address: str, size: int) -> str:
    offset = e.context(Context.LOCAL_OFFSET)
    site = e.site(instruction, "local", "", size)
    report = (
        f"call void {e.runtime_function('tc.report.here')}(ptr %context, "
        f"i64 {int(Found.OUT_OF_BOUNDS)}, i64 {site}, i64 {address})"
    )
    e.leave_through(_outside(e, address, size, str(e.symbols.local)), report)
    base = e.entry_value(f"getelementptr i8, ptr %frame, i64 {offset}")
    return e.out.pure(f"getelementptr i8, ptr {base}, i64 {address}")


def _element_type(instruction: Instruction) -> tuple[str, int]:
    """The type of an element and how many there are."""
    count = next((int(part[1:]) for part in instruction.modifiers if part in ("v2", "v4", "v8")), 1)
    return instruction.types[-1], count


def _elements(e: Emitter, i: Instruction, operand: Operand, count: int) -> Sequence[Operand]:
    """The registers of an access, as many as its width says."""
    found = e.elements(operand)
    if len(found) != count:
        raise e.refuse(i, f"it moves {count} of its type, and its vector has {len(found)}")
    return found


def _kind(instruction: Instruction, plain: str, strong: str) -> str:
    return strong if any(instruction.has(word) for word in _STRONG) else plain


# --- loads and stores -------------------------------------------------------------------------


def load(e: Emitter, i: Instruction) -> None:
    type_name, count = _element_type(i)
    space = space_of(i)
    if space == "param":
        _load_parameter(e, i, type_name, count)
        return
    size = bits_of(type_name) // 8
    kind = _kind(i, "read", "atomic")
    at = pointer(e, i, space, e.address(i.operands[1]), size * count, kind)
    _loaded(e, i, at, type_name, count)


def _loaded(e: Emitter, i: Instruction, at: str, type_name: str, count: int) -> None:
    kind = llvm_type(type_name)
    for index, element in enumerate(_elements(e, i, i.operands[0], count)):
        place = at if index == 0 else e.out.pure(f"getelementptr {kind}, ptr {at}, i64 {index}")
        e.write(element, e.out.result(f"load {kind}, ptr {place}, align 1"), type_name)


def _load_parameter(e: Emitter, i: Instruction, type_name: str, count: int) -> None:
    address = i.operands[1]
    if not isinstance(address, Address):
        raise e.refuse(i, "a parameter is loaded from an address")
    size = bits_of(type_name) // 8 * count
    if isinstance(address.base, Name) and address.base.name in e.symbols.offsets:
        # The result of a call is a variable of the caller.
        at = pointer(e, i, "local", e.address(address), size, "read")
        _loaded(e, i, at, type_name, count)
        return
    match address.base:
        case Name(name=name):
            known = {p.name: p.offset for p in e.kernel.parameters}
            offset = str(known[name] + address.offset)
        case _:
            offset = e.address(address)
            site = e.site(i, "param", "read", size)
            report = (
                f"call void {e.runtime_function('tc.report.here')}(ptr %context, "
                f"i64 {int(Found.OUT_OF_BOUNDS)}, i64 {site}, i64 {offset})"
            )
            e.leave_through(_outside(e, offset, size, str(e.kernel.parameter_bytes)), report)
    base = e.context_pointer(Context.PARAMETERS)
    _loaded(e, i, e.out.pure(f"getelementptr i8, ptr {base}, i64 {offset}"), type_name, count)


def store(e: Emitter, i: Instruction) -> None:
    type_name, count = _element_type(i)
    space = space_of(i)
    if space == "param":
        space = "local"  # an argument of a call is a variable of the caller
    size = bits_of(type_name) // 8
    values = [e.read(element, type_name) for element in _elements(e, i, i.operands[1], count)]
    kind = _kind(i, "write", "publish")
    at = pointer(e, i, space, e.address(i.operands[0]), size * count, kind)
    for index, value in enumerate(values):
        place = at
        if index:
            place = e.out.pure(f"getelementptr {llvm_type(type_name)}, ptr {at}, i64 {index}")
        e.out.effect(f"store {llvm_type(type_name)} {value}, ptr {place}, align 1")


# --- atomics ----------------------------------------------------------------------------------

_EXCHANGED = ("exch", "cas", "inc", "dec", "and", "or", "xor", "add", "min", "max")


def atomic(e: Emitter, i: Instruction) -> None:
    """`atom d, [a], b[, c]` and `red [a], b`. One thread runs at a time, so this needs no lock."""
    operation = next((part for part in i.modifiers if part in _EXCHANGED), None)
    if operation is None or _element_type(i)[1] != 1:
        raise e.refuse(i, "no such atomic operation", _EXCHANGED)
    type_name = i.types[-1]
    address, *operands = i.operands[1:] if i.opcode == "atom" else i.operands
    values = [e.read(operand, type_name) for operand in operands]
    kind = llvm_type(type_name)
    size = bits_of(type_name) // 8
    at = pointer(e, i, space_of(i), e.address(address), size, "atomic")
    old = e.out.result(f"load {kind}, ptr {at}, align 1")
    new = _updated(e, i, operation, type_name, old, values)
    e.out.effect(f"store {kind} {new}, ptr {at}, align 1")
    if i.opcode == "atom":
        e.write(i.operands[0], old, type_name)


def _updated(
    e: Emitter, i: Instruction, operation: str, type_name: str, old: str, values: list[str]
) -> str:
    pure, kind, value = e.out.pure, llvm_type(type_name), values[0]
    match operation:
        case "exch":
            return value
        case "cas":
            same = pure(f"icmp eq {kind} {old}, {value}")
            return pure(f"select i1 {same}, {kind} {values[1]}, {kind} {old}")
        case "inc":
            over = pure(f"icmp uge {kind} {old}, {value}")
            return pure(f"select i1 {over}, {kind} 0, {kind} {pure(f'add {kind} {old}, 1')}")
        case "dec":
            zero = pure(f"icmp eq {kind} {old}, 0")
            over = pure(f"icmp ugt {kind} {old}, {value}")
            restart = pure(f"or i1 {zero}, {over}")
            less = pure(f"sub {kind} {old}, 1")
            return pure(f"select i1 {restart}, {kind} {value}, {kind} {less}")
        case _:
            return combined(e, i, operation, type_name, old, value)


# --- cp.async ---------------------------------------------------------------------------------


def copy(e: Emitter, i: Instruction) -> None:
    """cp.async: performed when it is waited for, which is as late as may be."""
    if i.modifiers[:1] != ("async",) or i.has("bulk") or i.has("mbarrier"):
        raise e.refuse(i, "of cp the form cp.async is emulated, without mbarrier and bulk")
    if i.has("commit_group"):
        e.out.effect(f"call void {e.runtime_function('tc.copy.commit')}(ptr %context)")
    elif i.has("wait_all"):
        e.out.effect(f"call void {e.runtime_function('tc.copy.commit')}(ptr %context)")
        _wait(e, "0")
    elif i.has("wait_group"):
        _wait(e, e.read(i.operands[0], "u64"))
    else:
        _start(e, i)


def _wait(e: Emitter, groups: str) -> None:
    e.out.effect(f"call void {e.runtime_function('tc.copy.wait')}(ptr %context, i64 {groups})")


def _start(e: Emitter, i: Instruction) -> None:
    target, origin, wide, *more = i.operands
    if not isinstance(wide, Integer) or wide.value not in (4, 8, 16):
        raise e.refuse(i, "cp.async copies 4, 8 or 16 bytes")
    size = str(wide.value)
    if more:
        size = e.read(more[0], "u32")
        if llvm_type(e.kernel.registers.get(getattr(more[0], "name", ""), "b32")) == "i1":
            # A predicate says whether the source is ignored.
            size = e.out.pure(f"select i1 {e.read(more[0], 'pred')}, i32 0, i32 {wide.value}")
    read = e.site(i, "global", "read", wide.value)
    written = e.site(i, "shared", "write", wide.value)
    function = e.runtime_function("tc.copy.start")
    status = e.out.result(
        f"call i32 {function}(ptr %context, i64 {e.address(target)}, i64 {e.address(origin)}, "
        f"i32 {wide.value}, i32 {size}, i32 {read}, i32 {written})"
    )
    e.leave_if(e.out.result(f"icmp ne i32 {status}, 0"))


# --- addresses --------------------------------------------------------------------------------

_WINDOWS = {"shared": SHARED_REGION, "local": LOCAL_REGION}


def convert_address(e: Emitter, i: Instruction) -> None:
    """cvta: shared and local memory are windows of the generic address space."""
    space, type_name = space_of(i), i.types[-1]
    value = e.read(i.operands[1], type_name)
    if space in _WINDOWS:
        window = _WINDOWS[space] << REGION_SHIFT
        value = e.out.pure(f"{'sub' if i.has('to') else 'add'} i64 {value}, {window}")
    e.write(i.operands[0], value, type_name)


def is_space(e: Emitter, i: Instruction) -> None:
    """isspacep: whether a generic address lies in a window; what lies in none is global."""
    number = e.out.pure(f"lshr i64 {e.read(i.operands[1], 'u64')}, {REGION_SHIFT}")
    space = space_of(i)
    if space in _WINDOWS:
        found = e.out.pure(f"icmp eq i64 {number}, {_WINDOWS[space]}")
    else:
        found = e.out.pure(f"icmp ugt i64 {number}, {LOCAL_REGION}")
    e.write(i.operands[0], found, "pred")


def nothing(e: Emitter, i: Instruction) -> None:
    """A hint, or an order of memory between threads that run one at a time."""


def call(e: Emitter, i: Instruction) -> None:
    """Functions of the module are inlined (`inline`); of others, two may be called."""
    names = [operand.name for operand in i.operands if isinstance(operand, Name)]
    if "__assertfail" in names:
        site = e.site(i)
        e.out.effect(
            f"call void {e.runtime_function('tc.report.here')}(ptr %context, "
            f"i64 {int(Found.TRAP)}, i64 {site}, i64 0)"
        )
        e.leave_if("true")
    elif "vprintf" not in names:
        reason = "a call of a function without a body, or of one that calls itself"
        raise e.refuse(i, reason, ("vprintf", "__assertfail"))


TRANSLATIONS: dict[str, Translation] = {
    "ld": load,
    "ldu": load,
    "st": store,
    "atom": atomic,
    "red": atomic,
    "cp": copy,
    "cvta": convert_address,
    "isspacep": is_space,
    "call": call,
    **dict.fromkeys(
        ("membar", "fence", "prefetch", "prefetchu", "discard", "applypriority", "nanosleep",
         "pmevent", "griddepcontrol"),
        nothing,
    ),
}  # fmt: skip
