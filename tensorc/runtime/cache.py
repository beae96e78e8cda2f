"""The on-disk compile cache: what was compiled once is not compiled again.

An entry is a file of its own, named by the SHA-256 of its key:

    bytes 0..16      "tensorc cache 1" and a line feed
    16..24, 24..32   the lengths of key and payload, little-endian
    32..64           the SHA-256 of key and payload together
    64..             the key, then the payload

The key is stored and compared in full, so that not even equal hashes can exchange two programs. It
holds the program, the target, the options and the versions of all that turns one into the other,
tensorc's own sources included.

Files are written aside and renamed, so a reader sees a whole entry or none, whoever writes beside
it and wherever that process dies. A file that was damaged later fails its checksum: it is removed,
a `CacheWarning` says so, and the caller compiles anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import struct
import tempfile
import time
import warnings
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import NamedTuple

import llvmlite
from llvmlite import binding

import tensorc
from tensorc import config
from tensorc.errors import ArgumentError, CacheWarning
from tensorc.target import Target

__all__ = ["CacheKey", "CompileCache"]

Option = str | int | float | bool
_MAGIC = b"tensorc cache 1\n"
_HEADER = struct.Struct("<16s2Q32s")
_SUFFIX = ".entry"
_UNFINISHED = ".tmp"
_STALE_SECONDS = 3600.0
DEFAULT_LIMIT = 512 * 1024 * 1024


@cache
def versions() -> tuple[tuple[str, str], ...]:
    """The versions of all that takes part in a compilation."""
    return (
        ("llvm", ".".join(map(str, binding.llvm_version_info))),
        ("llvmlite", llvmlite.__version__),
        ("sources", hash_of_sources("ir", "analysis", "codegen", "runtime", "target")),
        ("tensorc", tensorc.__version__),
    )


def hash_of_sources(*folders: str) -> str:
    """A hash of the sources in parts of the package: a working copy changes within one version."""
    root = Path(tensorc.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(path for folder in folders for path in (root / folder).rglob("*.py")):
        digest.update(f"{path.relative_to(root).as_posix()}\n".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class CacheKey:
    """Everything that decides what a compilation gives.

    Attributes:
        text: the whole program in its canonical form, constants by their bits.
        target: the target, host features included.
        options: sorted (name, value) pairs.
        versions: sorted (name, version) pairs; by default those of this process.
    """

    text: str
    target: Target
    options: tuple[tuple[str, Option], ...] = ()
    versions: tuple[tuple[str, str], ...] = field(default_factory=versions)

    @classmethod
    def of(cls, text: str, target: Target, **options: Option) -> CacheKey:
        return cls(text, target, tuple(sorted(options.items())))

    def encoded(self) -> bytes:
        """The key as bytes, equal for equal keys only."""
        record = {
            "text": self.text,
            "target": self.target.to_json(),
            "options": self.options,
            "versions": self.versions,
        }
        return json.dumps(record, sort_keys=True).encode()


class _DamagedError(Exception):
    """An entry's file does not hold what `_entry` wrote; the message says in what way."""


class _File(NamedTuple):
    used: float  # when the entry was last read or written, in seconds
    size: int
    path: str


class CompileCache:
    """Compiled code by key, in a folder that processes may share.

    The entries together stay below `limit_bytes`; those unused for longest go first. A folder that
    cannot be written makes a cache that keeps nothing and says so in a `CacheWarning`.
    """

    def __init__(self, path: Path | str | None = None, *, limit_bytes: int = DEFAULT_LIMIT):
        if limit_bytes < 0:
            raise ArgumentError("limit_bytes", f"{limit_bytes} is negative; 0 keeps nothing")
        self.path = config.cache_dir / "compiled" if path is None else Path(path)
        self.limit_bytes = limit_bytes
        # How many bytes are in the folder, as far as this process knows; None before it looked.
        self._total: int | None = None

    def get(self, key: CacheKey) -> bytes | None:
        """The payload last put under an equal key; None if there is none, or it was damaged."""
        encoded = key.encoded()
        path = self._file_of(encoded)
        try:
            payload = _payload(_read(path), encoded)
        except FileNotFoundError:
            return None
        except OSError as error:
            _warn(f"the cache entry {path} cannot be read ({error})")
            return None
        except _DamagedError as damage:
            _warn(f"the cache entry {path} is damaged ({damage}); it is compiled anew")
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        # The time of change is the time of use, by which entries go.
        with contextlib.suppress(OSError):
            os.utime(path)
        return payload

    def put(self, key: CacheKey, payload: bytes) -> None:
        """Keeps a payload; an earlier one under an equal key is replaced."""
        encoded = key.encoded()
        data = _entry(encoded, payload)
        if len(data) > self.limit_bytes:
            return
        try:
            self._write(self._file_of(encoded), data)
            self._total = self._total + len(data) if self._total is not None else self._scan()
            if self._total > self.limit_bytes:
                self._evict()
        except OSError as error:
            _warn(f"nothing can be kept in the compile cache {self.path} ({error})")

    def clear(self) -> None:
        """Removes every entry."""
        for file in self._files():
            with contextlib.suppress(FileNotFoundError):
                os.unlink(file.path)
        self._total = 0

    def _file_of(self, encoded: bytes) -> Path:
        return self.path / f"{hashlib.sha256(encoded).hexdigest()}{_SUFFIX}"

    def _write(self, path: Path, data: bytes) -> None:
        # Machine code that this user will run: nobody else may put it here.
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(_UNFINISHED, path.stem[:16], self.path)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.replace(name, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise

    def _files(self) -> list[_File]:
        """All entries, the longest unused first."""
        found = []
        with contextlib.suppress(FileNotFoundError), os.scandir(self.path) as listing:
            for item in listing:
                # Another process may remove a file at any time.
                with contextlib.suppress(FileNotFoundError):
                    if item.name.endswith(_SUFFIX):
                        status = item.stat()
                        found.append(_File(status.st_mtime, status.st_size, item.path))
                    elif item.name.endswith(_UNFINISHED):
                        self._remove_if_stale(item)
        return sorted(found)

    @staticmethod
    def _remove_if_stale(item: os.DirEntry[str]) -> None:
        """Removes what a process wrote that died before it could give the file its name."""
        if time.time() - item.stat().st_mtime > _STALE_SECONDS:
            os.unlink(item.path)

    def _scan(self) -> int:
        return sum(file.size for file in self._files())

    def _evict(self) -> None:
        """Removes the longest unused entries until a tenth of the limit is free."""
        files = self._files()
        total = sum(file.size for file in files)
        for file in files:
            if total <= 0.9 * self.limit_bytes:
                break
            with contextlib.suppress(FileNotFoundError):
                os.unlink(file.path)
            total -= file.size
        self._total = total


@cache
def cache_in(folder: Path) -> CompileCache:
    """The cache of a folder, one for all of a process: it looks through the folder only once."""
    return CompileCache(folder)


def _read(path: Path) -> bytes:
    # Opening a pipe would wait for a writer, and a device need not end.
    with open(path, "rb", opener=_opened_at_once) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise _DamagedError("it is no regular file")
        return file.read()


def _opened_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _entry(key: bytes, payload: bytes) -> bytes:
    checksum = hashlib.sha256(key + payload).digest()
    return _HEADER.pack(_MAGIC, len(key), len(payload), checksum) + key + payload


def _payload(data: bytes, key: bytes) -> bytes:
    """The payload of an entry's bytes, which must be whole and belong to `key`."""
    if len(data) < _HEADER.size:
        raise _DamagedError(f"it ends after {len(data)} bytes, within its header")
    magic, key_length, payload_length, checksum = _HEADER.unpack_from(data)
    if magic != _MAGIC:
        raise _DamagedError("it does not start like an entry of this version")
    expected = _HEADER.size + key_length + payload_length
    if len(data) != expected:
        raise _DamagedError(f"it has {len(data)} bytes in place of {expected}")
    if hashlib.sha256(data[_HEADER.size :]).digest() != checksum:
        raise _DamagedError("its checksum is wrong")
    if data[_HEADER.size : _HEADER.size + key_length] != key:
        raise _DamagedError("it is another program's")
    return data[_HEADER.size + key_length :]


def _warn(message: str) -> None:
    warnings.warn(message, CacheWarning, stacklevel=3)
