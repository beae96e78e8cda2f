"""Planted faults: one condition of one rule dropped, weakened or off by one, in running code."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

import tensorc.analysis
import tensorc.schedule


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
    """Empty every cache of the rules."""
    for package in (tensorc.analysis, tensorc.schedule):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            module = importlib.import_module(found.name)
            for value in vars(module).values():
                if hasattr(value, "cache_clear"):
                    value.cache_clear()
