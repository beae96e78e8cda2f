"""tensorc, a tensor compiler: loop nests, checked schedules, machine code.

Every public name is an attribute of this package and is imported when it is first used, so that
`import tensorc` costs a few milliseconds and pulls in none of the libraries behind it.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tensorc import config
    from tensorc.dtype import DType
    from tensorc.errors import (
        ArgumentError,
        CompileError,
        ExpressionError,
        InterpreterError,
        LimitError,
        ParseError,
        ScheduleError,
        TargetError,
        TensorcError,
        UnsupportedError,
        VerifyError,
    )
    from tensorc.graph.compile import CompiledNetwork, compile
    from tensorc.ir.build import (
        abs,
        all,
        any,
        argmax,
        argmin,
        cast,
        ceil,
        compute,
        const,
        cos,
        erf,
        exp,
        floor,
        floordiv,
        floormod,
        func_of,
        isnan,
        log,
        logical_and,
        logical_not,
        logical_or,
        logsumexp,
        max,
        maximum,
        min,
        minimum,
        placeholder,
        pow,
        prod,
        reduce,
        reduce_axis,
        round,
        rsqrt,
        scalar,
        select,
        sigmoid,
        sin,
        sqrt,
        sum,
        tanh,
        trunc,
        truncdiv,
        truncmod,
        var,
        welford,
    )
    from tensorc.ir.frontend import (
        Buffer,
        bf16,
        bool,
        f16,
        f32,
        f64,
        func,
        i8,
        i16,
        i32,
        i64,
        index,
        u8,
        u32,
    )
    from tensorc.ir.nodes import Func
    from tensorc.ir.parse import parse
    from tensorc.runtime.module import Module, RuntimeCheckError, build
    from tensorc.schedule.schedule import Schedule
    from tensorc.schedule.trace import Trace
    from tensorc.space.default import default_schedule
    from tensorc.target import Target

__version__ = "0.1.0"

# Where the public names live.
_NAMES_OF = {
    "tensorc.dtype": ("DType",),
    "tensorc.errors": (
        "ArgumentError",
        "CompileError",
        "ExpressionError",
        "InterpreterError",
        "LimitError",
        "ParseError",
        "ScheduleError",
        "TargetError",
        "TensorcError",
        "UnsupportedError",
        "VerifyError",
    ),
    "tensorc.graph.compile": ("CompiledNetwork", "compile"),
    "tensorc.ir.build": (
        "abs",
        "all",
        "any",
        "argmax",
        "argmin",
        "cast",
        "ceil",
        "compute",
        "const",
        "cos",
        "erf",
        "exp",
        "floor",
        "floordiv",
        "floormod",
        "func_of",
        "isnan",
        "log",
        "logical_and",
        "logical_not",
        "logical_or",
        "logsumexp",
        "max",
        "maximum",
        "min",
        "minimum",
        "placeholder",
        "pow",
        "prod",
        "reduce",
        "reduce_axis",
        "round",
        "rsqrt",
        "scalar",
        "select",
        "sigmoid",
        "sin",
        "sqrt",
        "sum",
        "tanh",
        "trunc",
        "truncdiv",
        "truncmod",
        "var",
        "welford",
    ),
    "tensorc.ir.frontend": (
        "Buffer",
        "bf16",
        "bool",
        "f16",
        "f32",
        "f64",
        "func",
        "i16",
        "i32",
        "i64",
        "i8",
        "index",
        "u32",
        "u8",
    ),
    "tensorc.ir.nodes": ("Func",),
    "tensorc.ir.parse": ("parse",),
    "tensorc.runtime.module": ("Module", "RuntimeCheckError", "build"),
    "tensorc.schedule.schedule": ("Schedule",),
    "tensorc.schedule.trace": ("Trace",),
    "tensorc.space.default": ("default_schedule",),
    "tensorc.target": ("Target",),
}
# A module's own name stands for the module itself.
_MODULE_OF = {"config": "tensorc.config"} | {
    name: module for module, names in _NAMES_OF.items() for name in names
}


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    path = _MODULE_OF[name]
    module = import_module(path)
    value = module if path == f"{__name__}.{name}" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF})
