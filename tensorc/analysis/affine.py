"""From the IR to integer sets and back (isl, through islpy).

An instance of statement number n with loop vector x is the isl tuple Sn[x]. What isl cannot say is
over-approximated and flagged: a non-affine index may touch every element of its dimension, a
non-affine guard may hold, a non-affine bound leaves its side of the loop open.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache

import islpy as isl

from tensorc.analysis.effects import Access, Statement, index_scalars, sizes, statements
from tensorc.dtype import DType
from tensorc.ir.nodes import Binary, Buffer, Cast, Const, Expr, Func, Unary, Var
from tensorc.ir.types import dtype_of

OPERATION_LIMIT = 2_000_000
"""isl operations allowed to one query; about a second."""


class NotAffineError(ValueError):
    """Carries the subterm that isl cannot express. Never leaves the analysis layer."""

    def __init__(self, term: Expr):
        self.term = term


class TooComplexError(RuntimeError):
    """A query went past its operation limit. Never leaves the analysis layer."""


_GIVEN_UP = (
    "maximal number of operations",
    # A minimum over a union of sets with quotients, in isl_domain_factor_templ.c.
    "affine expression involves some of the domain dimensions",
)


@contextmanager
def operation_limit(limit: int = OPERATION_LIMIT) -> Iterator[None]:
    """Bound the isl operations of the block; raises TooComplexError past the limit.

    An inner block counts towards the outer one. What isl itself fails at is too complex as well.
    """
    context = isl.DEFAULT_CONTEXT
    if context.get_max_operations():
        yield
        return
    context.reset_operations()
    context.set_max_operations(limit)
    try:
        yield
    except isl.Error as error:
        if not any(reason in str(error) for reason in _GIVEN_UP):
            raise
        raise TooComplexError from error
    finally:
        context.set_max_operations(0)
        context.reset_operations()


_ARITHMETIC = {"add": "+", "sub": "-"}
_COMPARISON = {"eq": "=", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def _literal(expr: Expr) -> int | None:
    return int(expr.value) if isinstance(expr, Const) and not expr.dtype.is_float else None


def term(expr: Expr, names: Mapping[str, str]) -> str:
    """An index expression in isl's syntax; raises NotAffineError. `names` maps variables.

    Arithmetic on data wraps in its width, which isl's does not: -u8(1) is 255.
    """
    if isinstance(expr, Unary | Binary) and dtype_of(expr) is not DType.INDEX:
        raise NotAffineError(expr)
    match expr:
        case Const() if not expr.dtype.is_float:
            return str(int(expr.value))
        case Var(name=name) if name in names:
            return names[name]
        case Unary(op="neg", a=a):
            return f"(-{term(a, names)})"
        case Binary(op=("add" | "sub") as op, a=a, b=b):
            return f"({term(a, names)} {_ARITHMETIC[op]} {term(b, names)})"
        case Binary(op=("min" | "max") as op, a=a, b=b):
            return f"{op}({term(a, names)}, {term(b, names)})"
        case Binary(op=op, a=a, b=b):
            return _scaled(expr, op, a, b, names)
    raise NotAffineError(expr)


def _scaled(whole: Expr, op: str, a: Expr, b: Expr, names: Mapping[str, str]) -> str:
    """Products with, and quotients and remainders by, a literal."""
    if op == "mul" and _literal(a) is not None:
        a, b = b, a
    number = _literal(b)
    if number is None or (op != "mul" and number <= 0):
        raise NotAffineError(whole)
    match op:
        case "mul":
            return f"({number}*{term(a, names)})"
        case "floordiv":
            return f"floor({term(a, names)}/{number})"
        case "floormod":
            return f"({term(a, names)} mod {number})"
    raise NotAffineError(whole)


def condition(expr: Expr, names: Mapping[str, str]) -> str:
    """A condition in isl's syntax; raises NotAffineError."""
    match expr:
        case Const(value=value):
            return "true" if value else "false"
        case Unary(op="not", a=a):
            return f"(not {condition(a, names)})"
        case Binary(op=("and" | "or") as op, a=a, b=b):
            return f"({condition(a, names)} {op} {condition(b, names)})"
        case Binary(op=op, a=a, b=b) if op in _COMPARISON and not isinstance(a, Cast):
            return f"({term(a, names)} {_COMPARISON[op]} {term(b, names)})"
    raise NotAffineError(expr)


@dataclass(frozen=True, slots=True)
class Domain:
    """The instances of one statement: `exact` is False when the set is only an upper bound."""

    set: isl.Set
    time: isl.Map
    exact: bool
    names: Mapping[str, str] = field(compare=False)


class Model:
    """The integer sets of one function: domains, times and access relations of its statements."""

    def __init__(self, func: Func):
        self.func = func
        self.statements = statements(func)
        self.number = {s.name: n for n, s in enumerate(self.statements)}
        self.symbols = {name: f"p{n}" for n, name in enumerate(sizes(func) + index_scalars(func))}
        self.prefix = f"[{', '.join(self.symbols.values())}] -> " if self.symbols else ""
        positive = [f"{self.symbols[name]} >= 0" for name in sizes(func)]
        self.context = " and ".join(positive) or "true"
        self.depth = max((len(s.time) for s in self.statements), default=0)
        self._domains: dict[str, Domain] = {}
        self._accesses: dict[tuple[str, int], tuple[isl.Map, bool]] = {}

    def names(self, stmt: Statement) -> dict[str, str]:
        """isl's names for the variables that a statement sees."""
        return self.symbols | {name: f"x{n}" for n, name in enumerate(stmt.loop_names)}

    def tuple_of(self, stmt: Statement) -> str:
        dims = ", ".join(f"x{n}" for n in range(len(stmt.loops)))
        return f"S{self.number[stmt.name]}[{dims}]"

    def domain(self, stmt: Statement) -> Domain:
        if stmt.name not in self._domains:
            self._domains[stmt.name] = self._make_domain(stmt)
        return self._domains[stmt.name]

    def _make_domain(self, stmt: Statement) -> Domain:
        names = self.names(stmt)
        parts, exact = [self.context], True
        for loop in stmt.loops:
            here = names[loop.var.name]
            for low, high in ((loop.begin, None), (None, loop.end)):
                try:
                    parts.append(
                        f"{term(low, names)} <= {here}"
                        if low is not None
                        else f"{here} < {term(high, names)}"  # type: ignore[arg-type]
                    )
                except NotAffineError:
                    exact = False
        for guard in stmt.conditions:
            try:
                parts.append(condition(guard, names))
            except NotAffineError:
                exact = False
        where = " and ".join(parts)
        instance = self.tuple_of(stmt)
        time = [names[t] if isinstance(t, str) else str(t) for t in stmt.time]
        time += ["0"] * (self.depth - len(time))
        domain = isl.Set(f"{self.prefix}{{ {instance} : {where} }}")
        order = isl.Map(f"{self.prefix}{{ {instance} -> [{', '.join(time)}] }}")
        return Domain(domain, order.intersect_domain(domain), exact, names)

    def access(self, stmt: Statement, position: int) -> tuple[isl.Map, bool]:
        """{ instance -> element } of the statement's access number `position`, and its exactness.

        An element of an allocated buffer starts with the values of the loops around its Alloc:
        every iteration has its own.
        """
        key = (stmt.name, position)
        if key not in self._accesses:
            self._accesses[key] = self._make_access(stmt, stmt.accesses[position])
        return self._accesses[key]

    def place(self, stmt: Statement, position: int) -> tuple[isl.Map, bool]:
        """Like `access`, whether or not the conditions of the access hold."""
        return self._make_access(stmt, replace(stmt.accesses[position], conditions=()))

    def _make_access(self, stmt: Statement, access: Access) -> tuple[isl.Map, bool]:
        domain = self.domain(stmt)
        names, exact, parts = domain.names, domain.exact, []
        target = [f"x{n}" for n in range(stmt.scope_depth(access.buffer.name))]
        for n, (expr, extent) in enumerate(zip(access.indices, access.buffer.shape, strict=True)):
            try:
                target.append(term(expr, names))
            except NotAffineError:
                exact = False
                target.append(f"e{n}")
                parts.append(f"0 <= e{n}")
                try:
                    parts.append(f"e{n} < {term(extent, names)}")
                except NotAffineError:
                    continue
        for guard in access.conditions:
            try:
                parts.append(condition(guard, names))
            except NotAffineError:
                exact = False
        where = " and ".join(parts) or "true"
        element = f"{self.buffer_name(access.buffer)}[{', '.join(target)}]"
        text = f"{self.prefix}{{ {self.tuple_of(stmt)} -> {element} : {where} }}"
        return isl.Map(text).intersect_domain(domain.set), exact

    @staticmethod
    def buffer_name(buffer: Buffer) -> str:
        return "B" + buffer.name.encode().hex()

    def bounds(self, stmt: Statement, access: Access) -> isl.Set:
        """The elements of the buffer that exist, in the space of the access relation."""
        depth = stmt.scope_depth(access.buffer.name)
        dims = [f"x{n}" for n in range(depth)] + [f"e{n}" for n in range(len(access.indices))]
        parts = ["true"]
        for n, extent in enumerate(access.buffer.shape):
            parts.append(f"0 <= e{n} < {term(extent, self.symbols)}")
        name = self.buffer_name(access.buffer)
        return isl.Set(f"{self.prefix}{{ {name}[{', '.join(dims)}] : {' and '.join(parts)} }}")


@lru_cache(maxsize=256)
def model(func: Func) -> Model:
    """The integer sets of a function, memoised."""
    return Model(func)


def questions() -> int:
    """How often the exact sets of a function have been asked for so far."""
    seen = model.cache_info()
    return seen.hits + seen.misses
