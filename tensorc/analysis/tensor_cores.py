"""Products of small matrices that the warps of a CUDA device compute in one instruction.

A warp computes D = A * B + C, of 16 rows, 8 columns and a depth that depends on the element type
(PTX ISA, section "Matrix multiply-accumulate operation using mma instruction"). Its 32 threads are
8 groups of 4, and each has four elements of D: rows g and g + 8 of columns 2 t and 2 t + 1, for the
t-th thread of group g. In a nest, that is

    for g in parallel(8, bind="threadIdx.y"):
        for t in parallel(4, bind="threadIdx.x"):
            for r in range(2):
                for c in range(2):
                    for k in range(16):
                        C[r * 8 + g, t * 2 + c] += f32(A[r * 8 + g, k]) * f32(B[k, t * 2 + c])

Theorem. Such a nest is the instruction when the three loops run 2, 2 and `depth` times; when the
left operand reads nothing of t and c, so that it is one matrix for all columns, and the right one
nothing of g and r; and when the four elements of a thread are different ones in its registers. How
the indices are made of the loops does not matter: each operand is a matrix whose element at (row,
depth) or (depth, column) is what the index names there. All 32 threads come, since their loops are
the whole of both axes of the block. The threads of a warp read operands for each other, which asks
for no more barriers than the nest does: there, too, an element of the left operand is read by 4
threads and one of the right operand by 8, so whatever it depends on passes between threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, permutations
from math import prod
from typing import TypeAlias

from tensorc.analysis.violation import Violation, malformed
from tensorc.dtype import DType
from tensorc.ir import arith
from tensorc.ir.grid import THREADS, Kernel, axis_of, extent_of, is_thread, loops_of
from tensorc.ir.linear import linear
from tensorc.ir.nodes import Binary, Cast, Expr, For, Func, If, Load, Reduce, Stmt, Store
from tensorc.ir.walk import Path, at, enclosing, substitute, variables, written
from tensorc.target import Target

NOTE = "tensorize"
"""The note of a nest that is computed by an instruction: its name."""
GROUPS, PLACES = 8, 4
"""Along y and along x of a block: the groups of a warp, and the threads of a group."""
MOST_TILES = 256
"""An instruction is written out so many times at most."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """An instruction of tensor cores.

    Attributes:
        depth: the columns of the left, and the rows of the right operand.
        operand, result: the types of the operands' elements, and of the sums.
        architecture: the number of the first one that has it.
        exact: whether the elements of the operands are multiplied as they are.
    """

    depth: int
    operand: DType
    result: DType
    architecture: int
    exact: bool = True

    @property
    def packed(self) -> int:
        """The elements of an operand in one register."""
        return 32 // self.operand.bits


INSTRUCTIONS: Mapping[str, Instruction] = {
    "mma_m16n8k16_f16": Instruction(16, DType.F16, DType.F32, 80),
    "mma_m16n8k16_bf16": Instruction(16, DType.BF16, DType.F32, 80),
    "mma_m16n8k8_f16": Instruction(8, DType.F16, DType.F32, 75),
    "mma_m16n8k8_bf16": Instruction(8, DType.BF16, DType.F32, 80),
    "mma_m16n8k8_tf32": Instruction(8, DType.F32, DType.F32, 80, exact=False),
    "mma_m16n8k32_i8": Instruction(32, DType.I8, DType.I32, 80),
    "mma_m16n8k16_i8": Instruction(16, DType.I8, DType.I32, 80),
    "mma_m16n8k32_u8": Instruction(32, DType.U8, DType.I32, 80),
    "mma_m16n8k16_u8": Instruction(16, DType.U8, DType.I32, 80),
}
"""By name, as a user names them. tf32 reads f32 with 10 bits of mantissa."""


@dataclass(frozen=True, slots=True)
class Product:
    """A nest that is an instruction: `tiles` are the loops around the three of the instruction, and
    `groups` and `places` those bound to the threads of a warp. `leaf` stores or reduces."""

    instruction: Instruction
    tiles: tuple[For, ...]
    rows: For
    columns: For
    depth: For
    groups: For
    places: For
    leaf: Store | Reduce
    left: Load
    right: Load

    @property
    def element(self) -> Load:
        """The element that the leaf adds to."""
        leaf = self.leaf
        buffer = leaf.buffers[0] if isinstance(leaf, Reduce) else leaf.buffer
        return Load(buffer, leaf.indices)


def instruction_of(loop: For) -> str | None:
    """The name of the instruction that computes a nest, None for any other loop."""
    found = dict(loop.annotations).get(NOTE)
    return found if isinstance(found, str) and found in INSTRUCTIONS else None


def product_of(func: Func, path: Path, name: str) -> Product | str:
    """The nest at a path as an instruction, or the reason why it is none."""
    instruction = INSTRUCTIONS[name]
    around = [node for _, node in enclosing(func, path)]
    threads = {axis_of(node): node for node in around if isinstance(node, For) and is_thread(node)}
    places, groups = threads.get(THREADS[0]), threads.get(THREADS[1])
    if places is None or groups is None:
        return "it is not inside of loops bound to threadIdx.x and threadIdx.y, a warp's"
    if (extent_of(places), extent_of(groups)) != (PLACES, GROUPS):
        return "the loops around it bound to threadIdx.x and .y do not run 4 and 8 times"
    own = {places.var.name, groups.var.name}
    if any(arith.constant(x.begin) != 0 for x in (places, groups)):
        return "the loops bound to threadIdx.x and .y do not begin at 0"
    for node in around:
        decides: tuple[Expr, ...] = (node.condition,) if isinstance(node, If) else ()
        decides = (node.begin, node.end) if isinstance(node, For) else decides
        if any(variables(expr) & own for expr in decides):
            return "whether all threads of a warp come to it depends on them"
    found = at(func, path)
    assert isinstance(found, For)
    return _nest(found, instruction, groups, places)


def _nest(loop: For, instruction: Instruction, groups: For, places: For) -> Product | str:
    loops: list[For] = []
    inner: Stmt = loop
    while isinstance(inner, For):
        if inner.kind not in ("serial", "unroll") or axis_of(inner) is not None:
            return f"`{inner.var.name}` in it is no serial loop"
        loops.append(inner)
        inner = inner.body
    if len(loops) < 3 or any(extent_of(x) is None for x in loops):
        return "it is no nest of three loops or more of constant extents"
    if any(arith.constant(x.begin) != 0 for x in loops):
        return "its loops do not begin at 0"
    *tiles, a, b, c = loops
    if prod(extent_of(x) or 0 for x in tiles) > MOST_TILES:
        return f"it holds more than {MOST_TILES} products"
    operands = _operands(inner, instruction)
    if isinstance(operands, str):
        return operands
    assert isinstance(inner, Store | Reduce)
    for rows, columns, depth in permutations((a, b, c)):
        for left, right in permutations(operands):
            product = Product(instruction, tuple(tiles), rows, columns, depth, groups, places,
                              inner, left, right)  # fmt: skip
            if _fits(product):
                return product
    return (
        f"its innermost loops are not 2 rows, 2 columns and {instruction.depth} products, with an"
        " operand that reads no column, one that reads no row, and four elements of each thread"
    )


Operands: TypeAlias = tuple[Load, Load]


def multiplied(leaf: Stmt, instruction: Instruction) -> Operands | str:
    """The two elements that a statement multiplies and sums as an instruction does, wherever they
    lie, or the reason why it does not."""
    match leaf:
        case Reduce(op="sum", buffers=(buffer,), values=(value,)):
            pass
        case Store(buffer=buffer, indices=indices, value=Binary(op="add", a=own, b=value)) if (
            own == Load(buffer, indices)
        ):
            pass
        case _:
            return "its innermost statement is no sum into one buffer"
    if buffer.dtype is not instruction.result:
        return f"it does not sum in registers of {instruction.result}"
    if not isinstance(value, Binary) or value.op != "mul":
        return "it does not sum products"
    left, right = (_operand(x, instruction) for x in (value.a, value.b))
    if left is None or right is None:
        return f"it does not multiply two elements of {instruction.operand}, as {buffer.dtype}"
    return left, right


def _operands(leaf: Stmt, instruction: Instruction) -> Operands | str:
    """The two loads that the innermost statement multiplies, from where an instruction may."""
    found = multiplied(leaf, instruction)
    if isinstance(found, str):
        return found
    assert isinstance(leaf, Store | Reduce)
    if any(buffer.scope != "register" for buffer in written(leaf)):
        return f"it does not sum in registers of {instruction.result}"
    if any(x.buffer.scope not in ("shared", "global") for x in found):
        return "an operand lies in registers, and threads of a warp read what others hold"
    return found


def _operand(expr: Expr, instruction: Instruction) -> Load | None:
    if instruction.operand is not instruction.result:
        if not isinstance(expr, Cast) or expr.dtype is not instruction.result:
            return None
        expr = expr.a
    if not isinstance(expr, Load) or expr.buffer.dtype is not instruction.operand:
        return None
    return expr


def _fits(p: Product) -> bool:
    """Whether rows, columns and operands are what they are called."""
    if (extent_of(p.rows), extent_of(p.columns), extent_of(p.depth)) != (2, 2, p.instruction.depth):
        return False
    if _names(p.left) & {p.columns.var.name, p.places.var.name}:
        return False
    if _names(p.right) & {p.rows.var.name, p.groups.var.name}:
        return False
    if p.depth.var.name in _names(p.element):
        return False
    return all(_differ(a, b) for a, b in combinations(_elements(p), 2))


def _names(load: Load) -> frozenset[str]:
    return frozenset().union(*(variables(index) for index in load.indices))


def _elements(p: Product) -> Iterator[tuple[Expr, ...]]:
    """The indices of the four elements that a thread has."""
    for row in range(2):
        for column in range(2):
            here = {p.rows.var.name: arith.index(row), p.columns.var.name: arith.index(column)}
            yield tuple(substitute(index, here) for index in p.element.indices)


def _differ(a: tuple[Expr, ...], b: tuple[Expr, ...]) -> bool:
    """Whether two places are surely different, whatever the loops around."""
    apart = (linear(x).plus(linear(y), -1) for x, y in zip(a, b, strict=True))
    return any(not form.terms and form.constant for form in apart)


# What the rules of bound nests ask ----------------------------------------------------------------


def number_of(target: Target) -> int:
    """The number of a device's architecture, 90 of sm_90a."""
    return int("".join(filter(str.isdigit, target.cpu)))


def instructions_for(leaf: Stmt, target: Target) -> tuple[str, ...]:
    """The instructions of a device that compute what a statement sums, exactly as it does, the
    smallest first."""
    if target.kind != "cuda":
        return ()
    found = [
        (instruction.depth, name)
        for name, instruction in INSTRUCTIONS.items()
        if instruction.exact
        and number_of(target) >= instruction.architecture
        and not isinstance(multiplied(leaf, instruction), str)
    ]
    return tuple(name for _, name in sorted(found))


def tensorized(func: Func, kernel: Kernel, target: Target) -> Iterator[Violation]:
    """STR007, STR009, TGT001: the nests that instructions compute are such nests."""
    for path, loop in loops_of(func, kernel.path):
        name = instruction_of(loop)
        if name is None:
            continue
        message = f"cannot compute `{loop.var.name}` by {name}"
        if number_of(target) < INSTRUCTIONS[name].architecture:
            reason = f"{target.cpu} has no such instruction"
            advice = f"it is there from sm_{INSTRUCTIONS[name].architecture} on"
            yield malformed("TGT001", f"{message}: {reason}", path, advice=advice)
        found = product_of(func, path, name)
        if isinstance(found, str):
            yield malformed("STR007", f"{message}: {found}", path)
        elif kernel.block()[:2] != (PLACES, GROUPS):
            shape = " x ".join(map(str, kernel.block()))
            reason = f"a block has {shape} threads, and a warp's are 4 x 8 of them"
            yield malformed("STR009", f"{message}: {reason}", path)
