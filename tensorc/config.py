"""The settings of a process. This is the only module of tensorc that reads the environment.

Each setting is an attribute of this module and is read at each use. The first of these that gives
a value wins: an enclosing `scope`, an assignment (`tensorc.config.num_threads = 4`, taken back by
`del tensorc.config.num_threads`), the environment variable, the default.

===============  =======================  =======================================================
setting          variable                 meaning; default
===============  =======================  =======================================================
num_threads      TENSORC_NUM_THREADS      workers of a parallel loop; the processors on which
                                          this process may run
cache_dir        TENSORC_CACHE_DIR        where compiled code is kept; `tensorc` in the user's
                                          cache directory
verify           TENSORC_VERIFY           check the IR after every stage; no
data_dir         TENSORC_DATA_DIR         where weights that were adapted to this machine are kept;
                                          `tensorc` in the user's data directory
database         TENSORC_DATABASE         records of measurements that `compile` takes schedules
                                          from: a file, or a folder of them; none
tlm_network      TENSORC_TLM_NETWORK      what runs the language model: "native" is of kernels that
                                          tensorc compiles, "torch" of PyTorch; torch where it is
                                          installed
scheduler        TENSORC_SCHEDULER        who schedules the tasks of a network when it is compiled
                                          and names nobody: "rules", "tlm" (the language model) or
                                          "none"; `DEFAULT_SCHEDULER` of this module
===============  =======================  =======================================================

A value that a setting refuses raises `ArgumentError`, which names the setting or the variable.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING

from tensorc.errors import ArgumentError

__all__ = [
    "cache_dir",
    "data_dir",
    "database",
    "num_threads",
    "scheduler",
    "scope",
    "tlm_network",
    "verify",
]

if TYPE_CHECKING:
    num_threads: int
    cache_dir: Path
    data_dir: Path
    verify: bool
    database: Path | None
    tlm_network: str
    scheduler: str

MAX_THREADS = 4096
SWITCH_WORDS = {
    "1": True,
    "true": True,
    "yes": True,
    "on": True,
    "0": False,
    "false": False,
    "no": False,
    "off": False,
}
NETWORKS = ("native", "torch")
SCHEDULERS = ("rules", "tlm", "none")
DEFAULT_SCHEDULER = "rules"
_NO_OVERRIDES: Mapping[str, object] = MappingProxyType({})
# Scopes belong to a thread or an asyncio task, so that one test or request cannot disturb another.
_scoped: ContextVar[Mapping[str, object]] = ContextVar("tensorc.config", default=_NO_OVERRIDES)
_assigned: dict[str, object] = {}


@contextmanager
def scope(**overrides: object) -> Iterator[None]:
    """Give settings other values within a `with` block, in this thread only.

    Raises:
        ArgumentError: a setting does not exist or refuses its value.
    """
    for name in overrides:
        if name not in _SETTINGS:
            raise ArgumentError(name, f"no such setting; legal here: {', '.join(_SETTINGS)}")
    accepted = {name: _SETTINGS[name].accept(name, value) for name, value in overrides.items()}
    token = _scoped.set({**_scoped.get(), **accepted})
    try:
        yield
    finally:
        _scoped.reset(token)


@dataclass(frozen=True, slots=True)
class _Setting:
    """One setting, as an attribute of this module.

    `parse` takes a value or the text of one and raises ValueError for any other.
    """

    name: str
    variable: str
    parse: Callable[[object], object]
    default: Callable[[], object]

    def accept(self, source: str, value: object) -> object:
        try:
            return self.parse(value)
        except ValueError as error:
            raise ArgumentError(source, f"{error}, got {value!r}") from None

    def __get__(self, module: ModuleType, owner: type[ModuleType]) -> object:
        overrides = _scoped.get()
        if self.name in overrides:
            return overrides[self.name]
        if self.name in _assigned:
            return _assigned[self.name]
        text = os.environ.get(self.variable)
        # An empty variable counts as unset: it is how a shell takes one back.
        return self.accept(self.variable, text) if text else self.default()

    def __set__(self, module: ModuleType, value: object) -> None:
        _assigned[self.name] = self.accept(self.name, value)

    def __delete__(self, module: ModuleType) -> None:
        _assigned.pop(self.name, None)


def _parse_threads(value: object) -> int:
    if isinstance(value, str) and value.strip().isdecimal():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_THREADS:
        raise ValueError(f"expected a whole number from 1 to {MAX_THREADS}")
    return value


def _processors() -> int:
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    else:
        return os.cpu_count() or 1


def _parse_directory(value: object) -> Path:
    return _parse_path(value, "a directory")


def _parse_database(value: object) -> Path | None:
    return None if value is None else _parse_path(value, "a file or a directory")


def _parse_path(value: object, kind: str) -> Path:
    if not isinstance(value, str | os.PathLike) or not os.fspath(value):
        raise ValueError(f"expected the path of {kind}")
    text = os.fsdecode(value)
    if "\0" in text:
        raise ValueError(f"expected the path of {kind}, which has no null character")
    try:
        return Path(text).expanduser().absolute()
    except RuntimeError as error:
        raise ValueError(f"expected the path of {kind} ({error})") from None


def _user_cache() -> Path:
    return _user_directory("~/Library/Caches", "XDG_CACHE_HOME", "~/.cache")


def _user_data() -> Path:
    return _user_directory("~/Library/Application Support", "XDG_DATA_HOME", "~/.local/share")


def _user_directory(mac: str, variable: str, otherwise: str) -> Path:
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    else:
        base = mac if sys.platform == "darwin" else os.environ.get(variable) or otherwise
    return Path(base).expanduser() / "tensorc"


def _parse_switch(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in SWITCH_WORDS:
        return SWITCH_WORDS[value.strip().lower()]
    raise ValueError(f"expected a bool or one of {', '.join(SWITCH_WORDS)}")


def _parse_network(value: object) -> str:
    return _parse_word(value, NETWORKS)


def _parse_scheduler(value: object) -> str:
    return _parse_word(value, SCHEDULERS)


def _parse_word(value: object, words: Sequence[str]) -> str:
    if isinstance(value, str) and value.strip().lower() in words:
        return value.strip().lower()
    raise ValueError(f"expected one of {', '.join(words)}")


def _network_here() -> str:
    installed = all(find_spec(name) is not None for name in ("torch", "safetensors"))
    return "torch" if installed else "native"


class _ConfigModule(ModuleType):
    """The class of this module: a module's own variables could be neither read late nor checked."""

    num_threads = _Setting("num_threads", "TENSORC_NUM_THREADS", _parse_threads, _processors)
    cache_dir = _Setting("cache_dir", "TENSORC_CACHE_DIR", _parse_directory, _user_cache)
    data_dir = _Setting("data_dir", "TENSORC_DATA_DIR", _parse_directory, _user_data)
    verify = _Setting("verify", "TENSORC_VERIFY", _parse_switch, lambda: False)
    database = _Setting("database", "TENSORC_DATABASE", _parse_database, lambda: None)
    tlm_network = _Setting("tlm_network", "TENSORC_TLM_NETWORK", _parse_network, _network_here)
    scheduler = _Setting(
        "scheduler", "TENSORC_SCHEDULER", _parse_scheduler, lambda: DEFAULT_SCHEDULER
    )

    def __dir__(self) -> list[str]:
        return __all__


_SETTINGS = {
    name: setting for name, setting in vars(_ConfigModule).items() if isinstance(setting, _Setting)
}
sys.modules[__name__].__class__ = _ConfigModule
