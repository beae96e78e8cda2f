"""The docstring of every primitive is its specification: its rewrite is executed here."""

from __future__ import annotations

import inspect
import re
import textwrap

import pytest

from tensorc.analysis.violation import CODES
from tensorc.ir.parse import parse
from tensorc.schedule.schedule import Schedule
from tensorc.schedule.step import REGISTRY, Step
from tests.schedule.checking import CUDA, TARGET, body, check, schedule

EXTENT = 64


def parts(primitive: type[Step]) -> tuple[str, str, str]:
    """The program before, the call, and the program after."""
    text = inspect.getdoc(primitive)
    assert text is not None
    lines = text[text.index("rewrite:\n") :].splitlines()[1:]
    inside = lines[: lines.index("")]
    (call,) = [n for n, line in enumerate(inside) if re.match(r"  \S", line)]
    before, after = inside[:call], inside[call + 1 :]
    return (
        textwrap.dedent("\n".join(before)),
        inside[call].strip(),
        textwrap.dedent("\n".join(after)),
    )


def declared(text: str) -> str:
    """A function around statements; its parameters are the capital letters that are no alloc."""
    own = set(re.findall(r"^\s*([\w.]+) = alloc", text, re.MULTILINE))
    found: dict[str, int] = {}
    for name, indices in re.findall(r"\b([A-Z])\[([^\[\]]*)\]", text):
        if name not in own:
            found.setdefault(name, 0 if indices == "()" else indices.count(",") + 1)
    parameters = [
        f'{name}: Buffer["f32"{f", {EXTENT}" * rank}]' for name, rank in sorted(found.items())
    ]
    return f"def f({', '.join(parameters)}):\n" + textwrap.indent(text, "    ")


def called(s: Schedule, call: str) -> None:
    eval(f"s.{call}", {"s": s})


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_rewrite(name: str) -> None:
    before, call, after = parts(REGISTRY[name])
    assert call.startswith(f"{name}(")
    s = schedule(declared(before), TARGET if "cpu" in REGISTRY[name].targets else CUDA)
    called(s, call)
    assert body(s.func) == body(parse(declared(after))) == after
    check(s)


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_codes_are_listed(name: str) -> None:
    text = inspect.getdoc(REGISTRY[name])
    assert text is not None
    listed = set(re.findall(r"[A-Z]{3}\d{3}", text[text.index("legal when:") :]))
    assert listed <= set(CODES)
    source = inspect.getsource(inspect.getmodule(REGISTRY[name]) or REGISTRY[name])
    own = source[source.index(f"class {REGISTRY[name].__name__}(") :]
    own = own[: own.find("\n@dataclass")] if "\n@dataclass" in own else own
    yielded = set(re.findall(r'(?:malformed|unsupported|Violation)\(\s*"([A-Z]{3}\d{3})"', own))
    assert yielded <= listed
