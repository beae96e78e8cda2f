"""Every stage, and the code in the end, means what the program means."""

from __future__ import annotations

from typing import Any

import pytest

from tensorc.codegen.pipeline import Options
from tensorc.ir.nodes import Func
from tensorc.ir.parse import parse
from tensorc.target import Target
from tests.codegen.programs import PROGRAMS
from tests.codegen.running import check, check_stages, compiled, random_arguments

CASES = [
    pytest.param(text, dict(sizes), id="-".join([name, *(f"{n}{s}" for n, s in sizes.items())]))
    for name, (text, several) in PROGRAMS.items()
    for sizes in several
]


def case(text: str, sizes: dict[str, int]) -> tuple[Func, dict[str, Any]]:
    func = parse(text)
    return func, random_arguments(func, sizes)


@pytest.mark.parametrize(("text", "sizes"), CASES)
def test_stages(text: str, sizes: dict[str, int]) -> None:
    func, arguments = case(text, sizes)
    check_stages(func, arguments)


@pytest.mark.parametrize(("text", "sizes"), CASES)
def test_code(text: str, sizes: dict[str, int]) -> None:
    func, arguments = case(text, sizes)
    check(func, arguments)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("target", ["cpu:x86-64", "cpu:x86-64-v3", "cpu"])
@pytest.mark.parametrize("opt", ["none", "full"])
def test_targets(name: str, target: str, opt: str) -> None:
    text, several = PROGRAMS[name]
    func, arguments = case(text, dict(several[-1]))
    made = Target.parse(target)
    if made.missing_on(Target.parse("cpu")):
        pytest.skip(f"this machine cannot run {target}")
    check(func, arguments, target=made, opt=opt)


@pytest.mark.parametrize("options", [Options(checks=True), Options(strict_float=True)])
@pytest.mark.parametrize("name", PROGRAMS)
def test_options(name: str, options: Options) -> None:
    """Checked code finds nothing to complain about in a program that is right."""
    text, several = PROGRAMS[name]
    func, arguments = case(text, dict(several[-1]))
    check(func, arguments, options=options)


@pytest.mark.parametrize("name", PROGRAMS)
def test_deterministic(name: str) -> None:
    text, _ = PROGRAMS[name]
    assert compiled(parse(text)).kernel == compiled(parse(text)).kernel
