"""What a command works on: functions out of Python files or texts, and traces."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from tensorc.errors import ArgumentError
from tensorc.ir.nodes import Func, Span
from tensorc.ir.parse import parse
from tensorc.schedule.schedule import Schedule
from tensorc.schedule.trace import Trace


def load_function(source: str) -> Func | Schedule:
    """The function of `FILE.py:NAME`, or of a file that holds its text.

    NAME is a `Func`, a `Schedule`, or a function without arguments that returns one. Raises
    ArgumentError that says what is there instead.
    """
    path, _, name = source.partition(":")
    file = Path(path)
    if not file.is_file():
        raise ArgumentError("source", f"there is no file {path!r}")
    if file.suffix != ".py":
        return parse(file.read_text(), str(file))
    found = _members(file)
    usable = sorted(n for n, v in found.items() if isinstance(v, Func | Schedule))
    if not name:
        if len(usable) == 1:
            return found[usable[0]]  # type: ignore[return-value]
        raise ArgumentError("source", f"name one: {path}:NAME, e.g. {', '.join(usable) or 'none'}")
    if name not in found:
        raise ArgumentError("source", f"{path} has no {name!r}; it has {', '.join(usable)}")
    value = found[name]
    made = value() if callable(value) else value
    if not isinstance(made, Func | Schedule):
        raise ArgumentError("source", f"{name} gives {type(made).__name__}, not a Func or Schedule")
    return made


def _members(file: Path) -> dict[str, object]:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise ArgumentError("source", f"{file} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    return dict(vars(module))


def load_trace(path: str) -> Trace:
    """The trace of a file, JSON or Python by its suffix. Raises ParseError, ArgumentError."""
    file = Path(path)
    if not file.is_file():
        raise ArgumentError("trace", f"there is no file {path!r}")
    text = file.read_text()
    read = Trace.from_python if file.suffix == ".py" else Trace.from_json
    return read(text, str(file))


def prepared(source: str, trace: str | None, target: str) -> tuple[Schedule, Trace]:
    """A schedule at its start, and the trace to apply to it.

    It is that of the trace file; without one that of the schedule that the source gave, or the
    rule-based scheduler's.
    """
    from tensorc.space.default import default_sentence

    found = load_function(source)
    if isinstance(found, Schedule):
        steps = found.trace if trace is None else load_trace(trace)
        return Schedule(found.source, found.target), steps
    start = Schedule(found, target)
    if trace is not None:
        return start, load_trace(trace)
    rules = default_sentence(found, start.target).steps
    return start, Trace(rules, tuple(Span("<rules>", n) for n in range(1, len(rules) + 1)))
