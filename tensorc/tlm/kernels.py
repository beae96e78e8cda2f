"""Kernels by the rule-based scheduler, for one thread, made when they are first called.

Machine code is in the compile cache, and so are the schedules: a process that finds both compiles
and schedules nothing.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

from tensorc import config
from tensorc.errors import ParseError
from tensorc.ir.nodes import Func
from tensorc.ir.parse import parse
from tensorc.ir.print import print_func
from tensorc.runtime.cache import CacheKey, cache_in, hash_of_sources
from tensorc.runtime.module import Module, build
from tensorc.space.default import default_schedule
from tensorc.target import Target


@dataclass(frozen=True, slots=True)
class Nest:
    """What `build` takes: a program, and how its constants are packed."""

    func: Func
    target: Target
    packs: tuple[tuple[str, Func], ...]


class Kernels:
    """The kernels of one network: each packs the weights of its layers once."""

    def __init__(self) -> None:
        # One core, so that there is one order of arithmetic.
        self._target = dataclasses.replace(Target.parse("cpu"), cores=1)
        self._modules: dict[tuple[object, ...], Module] = {}

    def __call__(self, nest: Callable[..., Func], *sizes: int, **options: bool) -> Module:
        """The kernel of a nest of `tensorc.tlm.nests`, of these sizes."""
        key = (nest, sizes, *options.items())
        if key not in self._modules:
            func = nest(*sizes, **options)
            self._modules[key] = build(_scheduled(func, self._target, config.cache_dir))
        return self._modules[key]


@cache
def _schedulers() -> str:
    """A hash of what makes schedules."""
    return hash_of_sources("analysis", "schedule", "space")


@lru_cache(maxsize=256)
def _scheduled(func: Func, target: Target, folder: Path) -> Nest:
    store = cache_in(folder / "schedules")
    text = print_func(func)
    key = CacheKey.of(text, target, scheduler="rules of kernels", schedulers=_schedulers())
    payload = store.get(key)
    known = None if payload is None else _unpacked(payload, target)
    if known is not None:
        return known
    schedule = default_schedule(func, target)
    packs = tuple(schedule.packs)
    texts = [print_func(schedule.func), *(t for name, f in packs for t in (name, print_func(f)))]
    store.put(key, json.dumps(texts).encode())
    return Nest(schedule.func, target, packs)


def _unpacked(payload: bytes, target: Target) -> Nest | None:
    """None for an entry that another revision wrote in its own way."""
    try:
        first, *rest = json.loads(payload)
        packs = zip(rest[::2], map(parse, rest[1::2]), strict=True)
        return Nest(parse(first), target, tuple(packs))
    except (ValueError, TypeError, ParseError):
        return None
