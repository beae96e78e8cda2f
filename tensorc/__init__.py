"""tensorc, a tensor compiler: loop nests, checked schedules, machine code.

Every public name is an attribute of this package and is imported when it is first used, so that
`import tensorc` costs a few milliseconds and pulls in none of the libraries behind it.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tensorc import config as config
    from tensorc.dtype import DType as DType
    from tensorc.errors import (
        ArgumentError as ArgumentError,
        CompileError as CompileError,
        ExpressionError as ExpressionError,
        InterpreterError as InterpreterError,
        LimitError as LimitError,
        ParseError as ParseError,
        ScheduleError as ScheduleError,
        TargetError as TargetError,
        TensorcError as TensorcError,
        UnsupportedError as UnsupportedError,
        VerifyError as VerifyError,
    )
    from tensorc.graph.compile import CompiledNetwork as CompiledNetwork, compile as compile
    from tensorc.ir.build import (
        abs as abs,
        all as all,
        any as any,
        argmax as argmax,
        argmin as argmin,
        cast as cast,
        ceil as ceil,
        compute as compute,
        const as const,
        cos as cos,
        erf as erf,
        exp as exp,
        floor as floor,
        floordiv as floordiv,
        floormod as floormod,
        func_of as func_of,
        isnan as isnan,
        log as log,
        logical_and as logical_and,
        logical_not as logical_not,
        logical_or as logical_or,
        logsumexp as logsumexp,
        max as max,
        maximum as maximum,
        min as min,
        minimum as minimum,
        placeholder as placeholder,
        pow as pow,
        prod as prod,
        reduce as reduce,
        reduce_axis as reduce_axis,
        round as round,
        rsqrt as rsqrt,
        scalar as scalar,
        select as select,
        sigmoid as sigmoid,
        sin as sin,
        sqrt as sqrt,
        sum as sum,
        tanh as tanh,
        trunc as trunc,
        truncdiv as truncdiv,
        truncmod as truncmod,
        var as var,
        welford as welford,
    )
    from tensorc.ir.frontend import (
        Buffer as Buffer,
        bf16 as bf16,
        bool as bool,
        f16 as f16,
        f32 as f32,
        f64 as f64,
        func as func,
        i8 as i8,
        i16 as i16,
        i32 as i32,
        i64 as i64,
        index as index,
        u8 as u8,
        u32 as u32,
    )
    from tensorc.ir.nodes import Func as Func
    from tensorc.ir.parse import parse as parse
    from tensorc.runtime.module import (
        Module as Module,
        RuntimeCheckError as RuntimeCheckError,
        build as build,
    )
    from tensorc.schedule.schedule import Schedule as Schedule
    from tensorc.schedule.trace import Trace as Trace
    from tensorc.search.tune import Tuned as Tuned, tune as tune
    from tensorc.space.default import default_schedule as default_schedule
    from tensorc.space.space import Space as Space
    from tensorc.target import Target as Target

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
    "tensorc.search.tune": ("Tuned", "tune"),
    "tensorc.space.default": ("default_schedule",),
    "tensorc.space.space": ("Space",),
    "tensorc.target": ("Target",),
}
# A module's own name stands for the module itself.
_MODULE_OF = {"config": "tensorc.config"} | {
    name: module for module, names in _NAMES_OF.items() for name in names
}


if not TYPE_CHECKING:
    # A type checker that saw this function would take any name for a public one.

    def __getattr__(name: str) -> object:
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        path = _MODULE_OF[name]
        module = import_module(path)
        value = module if path == f"{__name__}.{name}" else getattr(module, name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({"__version__", *_MODULE_OF})
