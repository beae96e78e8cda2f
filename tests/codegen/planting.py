"""What finds a planted fault of lowering: the stages, and the machine code, beside the interpreter.

A case is a program as lowering gets it, an empty line, and words: a target, "checks" or "strict"
for the options of the same names, and `name=value` for the sizes and scalars of its one run.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tensorc.codegen.pipeline import CHECKED, STAGES, Options, lower
from tensorc.errors import InterpreterError, TensorcError, VerifyError
from tensorc.ir.interp import Result, run
from tensorc.ir.nodes import Buffer, Func
from tensorc.ir.parse import parse
from tensorc.ir.places import sizes_of
from tensorc.ir.verify import verify
from tensorc.target import Target
from tensorc.testing.arrays import make_inputs
from tensorc.testing.confirm import INTERNAL
from tensorc.testing.differential import compare
from tensorc.testing.draw import Seeded
from tests.codegen.guard import Guarded, guarded_copy
from tests.codegen.running import Compiled, compiled, flat_arguments

SIZES = (5, 0, 1, 3, 17)
INPUTS = 3
SECONDS = 20
"""After so long, machine code is taken not to end."""


@dataclass(frozen=True, slots=True)
class Case:
    """A program, how it is compiled, and the sizes and scalars that are not left to chance."""

    func: Func
    target: Target
    options: Options
    values: Mapping[str, int]

    @classmethod
    def read(cls, text: str) -> Case:
        program, _, words = text.partition("\n\n")
        given = words.split()
        target = next((word for word in given if word.startswith("cpu")), "cpu")
        options = Options(checks="checks" in given, strict_float="strict" in given)
        values = dict(word.split("=") for word in given if "=" in word)
        return cls(
            parse(program),
            Target.parse(target),
            options,
            {name: int(value) for name, value in values.items()},
        )

    def stages(self) -> Iterator[tuple[str, Func]]:
        """Each stage, made when it is asked for."""
        chosen = CHECKED if self.options.checks else STAGES
        current = self.func
        for name, stage in chosen.items():
            current = stage(current, self.options)
            yield name, current
        yield from lower(self.func, self.target, self.options).stages[len(chosen) :]

    def arguments(self) -> Iterator[dict[str, Any]]:
        names = sizes_of(self.func)
        for size in SIZES if set(names) - set(self.values) else (0,):
            sizes = {name: self.values.get(name, size + n) for n, name in enumerate(names)}
            for seed in range(INPUTS):
                made = make_inputs(Seeded(seed), self.func, sizes, special=seed > 1)
                scalars = {p.name for p in self.func.params if not isinstance(p.value, Buffer)}
                yield made | {n: v for n, v in self.values.items() if n in scalars}

    def expected(self, arguments: Mapping[str, Any]) -> Result | InterpreterError:
        """What the program means; bounds where the order of reductions is free."""
        try:
            return run(self.func, arguments, bounds=not self.options.strict_float)
        except InterpreterError as error:
            return error


def wrong_stage(case: Case) -> str | None:
    """The first stage that is ill-formed, or means something else than the program."""
    runs = [(a, case.expected(a)) for a in case.arguments()]
    try:
        for name, stage in case.stages():
            verify(stage, lowered=True)
            for arguments, expected in runs:
                if isinstance(expected, InterpreterError):
                    continue
                found = run(stage, flat_arguments(case.func, stage, arguments))
                shaped = {n: a.reshape(expected.outputs[n].shape) for n, a in found.outputs.items()}
                holds = {n: a.reshape(expected.outputs[n].shape) for n, a in found.defined.items()}
                difference = compare(expected, shaped, case.func, holds)
                if difference is not None:
                    return f"{name}: {difference}"
    except VerifyError as error:
        return f"ill-formed: {error}"
    except InterpreterError as error:
        return f"bad access: {error}"
    except TensorcError as error:
        return f"does not lower: {error}"
    except INTERNAL as error:
        return f"internal error: {error!r}"
    return None


def wrong_code(case: Case) -> str | None:
    """How machine code differs from the program, told by a child that may crash."""
    try:
        code = compiled(case.func, target=case.target, options=case.options, opt="none")
    except TensorcError as error:
        return f"does not compile: {error}"
    except INTERNAL as error:
        return f"internal error: {error!r}"
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        os.close(reading)
        faulthandler.disable()
        signal.alarm(SECONDS)
        try:
            os.write(writing, (_differs(case, code) or "").encode())
            os._exit(0)
        finally:
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as pipe:
        message = pipe.read()
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        return f"ended by {signal.Signals(os.WTERMSIG(status)).name}"
    return message or ("ended by an error" if status else None)


def _differs(case: Case, code: Compiled) -> str | None:
    for arguments in case.arguments():
        memories: dict[str, Guarded] = {}
        placed: dict[str, Any] = dict(arguments)
        for param in case.func.params:
            if isinstance(param.value, Buffer):
                given, strides = arguments[param.name], param.value.strides
                memories[param.name], placed[param.name] = guarded_copy(given, strides)
        result, expected = code(placed), case.expected(arguments)
        if (result != 0) != isinstance(expected, InterpreterError):
            return f"returned {result}"
        if isinstance(expected, InterpreterError):
            continue
        overrun = [name for name, memory in memories.items() if not memory.intact()]
        if overrun:
            return f"wrote before {overrun[0]}"
        difference = compare(expected, placed, case.func)
        if difference is not None:
            return str(difference)
    return None
