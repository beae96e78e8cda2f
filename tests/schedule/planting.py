"""Planted faults: one condition of one rule dropped, weakened or off by one, in running code."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

REMEMBERING = (
    "tensorc.analysis", "tensorc.schedule", "tensorc.codegen.passes", "tensorc.codegen.emit_",
    "tensorc.ir.grid",
)  # fmt: skip
"""The modules whose answers may depend on a planted fault start with one of these."""


@dataclass(frozen=True, slots=True)
class Plant:
    """A change of the source of one function.

    Attributes:
        name: the rule and what is wrong with it; also the name of the file with its program.
        where: "module:function" or "module:Class.method", below tensorc.
        old: a part of the function's source, which occurs once.
        new: what stands there instead.
    """

    name: str
    where: str
    old: str
    new: str

    @property
    def file(self) -> str:
        """The name of its case, without the ending."""
        return re.sub(r"[^a-z0-9]+", "_", self.name.lower()).strip("_")

    @contextmanager
    def grown(self) -> Iterator[None]:
        """The fault is in place within the block."""
        function = self.function()
        before = function.__code__
        function.__code__ = self._code(function)
        forget()
        try:
            yield
        finally:
            function.__code__ = before
            forget()

    def function(self) -> FunctionType:
        module, _, path = self.where.partition(":")
        found: Any = importlib.import_module(f"tensorc.{module}")
        for part in path.split("."):
            found = inspect.getattr_static(found, part)
        found = getattr(found, "__func__", found)
        found = inspect.unwrap(found)
        assert isinstance(found, FunctionType)
        return found

    def _code(self, function: FunctionType) -> CodeType:
        source = textwrap.dedent(inspect.getsource(function))
        assert source.count(self.old) == 1, f"{self.name}: {self.old!r} is not there once\n{source}"
        tree = ast.parse(source.replace(self.old, self.new))
        assert isinstance(tree.body[0], ast.FunctionDef)
        tree.body[0].decorator_list = []
        namespace: dict[str, Any] = {}
        module = inspect.getmodule(function)
        assert module is not None
        code = compile(tree, f"<planted: {self.name}>", "exec", flags=_ANNOTATIONS)
        exec(code, vars(module).copy(), namespace)
        made: Callable[..., Any] = namespace[function.__name__]
        return made.__code__


_ANNOTATIONS = __import__("__future__").annotations.compiler_flag


def forget() -> None:
    """Empty every cache of the rules and of the stages."""
    for name, module in list(sys.modules.items()):
        if name.startswith(REMEMBERING):
            for value in vars(module).values():
                if hasattr(value, "cache_clear"):
                    value.cache_clear()
