"""What a command works on: functions out of Python files or texts, and traces."""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import linecache
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

from tensorc.errors import ArgumentError, ParseError, ScheduleError, TensorcError
from tensorc.ir.nodes import Func, Span
from tensorc.ir.parse import parse
from tensorc.schedule.schedule import Schedule
from tensorc.schedule.trace import Trace

STANDARD_INPUT = ("-", "/dev/stdin")
_PACKAGE = str(Path(__file__).parents[1])


class ScriptError(TensorcError):
    """A program's file failed while it ran; the message shows its own lines."""


def load_function(source: str) -> Func | Schedule:
    """The function of `FILE.py:NAME`, or of a file (`-`: standard input) that holds its text.

    NAME is a `Func`, a `Schedule`, or a function without arguments that returns one. Raises
    ArgumentError that says what is there instead, and ScriptError.
    """
    if source in STANDARD_INPUT:
        return parse(_text("source", source), "<stdin>")
    path, name = source, ""
    # Not `Path.exists`, which raises for a name that is too long.
    if not os.path.exists(source) and ":" in source:
        path, _, name = source.rpartition(":")
    text = _text("source", path)
    if Path(path).suffix != ".py":
        if name:
            raise ArgumentError("source", f"{path} is no .py file, so it has no {name!r}")
        return parse(text, path)
    running = _Running(Path(path))
    found = _members(running)
    usable = _usable(found)
    if not name:
        plain = [n for n in usable if isinstance(found[n], Func | Schedule)]
        if len(plain) != 1:
            reason = f"name one: {path}:NAME, e.g. {', '.join(usable) or 'none'}"
            raise ArgumentError("source", reason)
        name = plain[0]
    if name not in found:
        raise ArgumentError(
            "source", f"{path} has no {name!r}; it has {', '.join(usable) or 'none'}"
        )
    return _made(name, found[name], running)


def _made(name: str, value: object, running: _Running) -> Func | Schedule:
    """A member that is a function or a schedule, or that makes one."""
    if callable(value) and not isinstance(value, Func | Schedule):
        if not _without_arguments(value):
            reason = f"{name} takes arguments; needed a Func, a Schedule or what makes one of none"
            raise ArgumentError("source", reason)
        with running:
            value = value()
    if not isinstance(value, Func | Schedule):
        raise ArgumentError(
            "source", f"{name} gives {type(value).__name__}, not a Func or Schedule"
        )
    return value


def _members(running: _Running) -> Mapping[str, object]:
    file = running.file
    # A program may be called like a library that is loaded already.
    name = file.stem if file.stem not in sys.modules else f"{file.stem}_program"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ArgumentError("source", f"{file} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    linecache.checkcache(str(file))
    with running:
        spec.loader.exec_module(module)
    return vars(module)


def _usable(found: Mapping[str, object]) -> list[str]:
    """The members that can be named: functions, schedules, and what may make one."""
    own = found["__name__"]
    return sorted(
        name
        for name, value in found.items()
        if isinstance(value, Func | Schedule)
        or (
            inspect.isfunction(value)
            and value.__module__ == own
            and not name.startswith("_")
            and _without_arguments(value)
        )
    )


def _without_arguments(made: Callable[..., object]) -> bool:
    try:
        inspect.signature(made).bind()
    except (TypeError, ValueError):
        return False
    return True


class _Running:
    """While a program's file runs: its folder is where imports begin, what it prints goes to
    stderr, and an error of its own becomes a ScriptError that shows its lines."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._folder = str(file.absolute().parent)

    def __enter__(self) -> None:
        sys.path.insert(0, self._folder)
        self._printed = contextlib.redirect_stdout(sys.stderr)
        self._printed.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._printed.__exit__(kind, error, trace)
        with contextlib.suppress(ValueError):
            sys.path.remove(self._folder)
        # These two name the user's lines themselves.
        told = isinstance(error, ScheduleError | ParseError)
        if isinstance(error, Exception | SystemExit) and not told:
            raise ScriptError(_failure(self.file, error)) from error


def _failure(file: Path, error: Exception | SystemExit) -> str:
    """What went wrong, where in the user's lines; neither ours nor the import machinery's."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((_PACKAGE, "<frozen importlib"))
    ]
    lines = [*traceback.format_list(frames), *traceback.format_exception_only(error)]
    return f"{file} failed:\n{''.join(lines)}".rstrip()


def load_trace(path: str, schedule: Schedule | None = None) -> Trace:
    """The trace of a file (`-`: standard input), JSON or Python.

    `schedule` is what it is for, at its start. Raises ParseError, ArgumentError.
    """
    text = _text("trace", path)
    name = "<stdin>" if path in STANDARD_INPUT else path
    python = {".py": True, ".json": False}.get(Path(path).suffix)
    if python is None:
        python = not text.lstrip().startswith(("{", "["))
    return Trace.from_python(text, name, schedule) if python else Trace.from_json(text, name)


def _text(what: str, path: str) -> str:
    file = Path(path)
    piped = path in STANDARD_INPUT
    if not piped and (not os.path.exists(path) or os.path.isdir(path)):
        raise ArgumentError(what, f"there is no file {path!r}")
    try:
        return sys.stdin.read() if piped else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError(what, f"{path} cannot be read: {error}") from error


def prepared(source: str, trace: str | None, target: str) -> tuple[Schedule, Trace]:
    """A schedule at its start, and the trace to apply to it.

    It is that of the trace file; without one that of the schedule that the source gave, that of the
    best record of `config.database`, or the rule-based scheduler's.

    Raises:
        RecordsError: `config.database` cannot be read.
    """
    from tensorc.search.database import database
    from tensorc.space.default import default_sentence

    if source in STANDARD_INPUT and trace in STANDARD_INPUT:
        raise ArgumentError("trace", "standard input holds the program already")
    found = load_function(source)
    if isinstance(found, Schedule):
        strict = found.state.strict_float
        start = Schedule(found.source, found.target, strict_float=strict)
        return start, found.trace if trace is None else load_trace(trace, start)
    start = Schedule(found, target)
    if trace is not None:
        return start, load_trace(trace, start)
    known = database()
    recorded = None if known is None else known.schedule(found, start.target)
    if recorded is not None:
        return start, recorded.trace
    rules = default_sentence(found, start.target).steps
    return start, Trace(rules, tuple(Span("<rules>", n) for n in range(1, len(rules) + 1)))
