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
        InterpreterError,
        LimitError,
        ParseError,
        ScheduleError,
        TargetError,
        TensorcError,
        UnsupportedError,
        VerifyError,
    )

__version__ = "0.1.0"

# Where each public name lives. A module's own name stands for the module itself.
_MODULE_OF = {
    "config": "tensorc.config",
    "DType": "tensorc.dtype",
    "ArgumentError": "tensorc.errors",
    "CompileError": "tensorc.errors",
    "InterpreterError": "tensorc.errors",
    "LimitError": "tensorc.errors",
    "ParseError": "tensorc.errors",
    "ScheduleError": "tensorc.errors",
    "TargetError": "tensorc.errors",
    "TensorcError": "tensorc.errors",
    "UnsupportedError": "tensorc.errors",
    "VerifyError": "tensorc.errors",
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
