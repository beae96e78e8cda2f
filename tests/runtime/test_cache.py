"""The compile cache: what is put is got, by exactly its key, whatever happens to the files."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorc import config
from tensorc.errors import ArgumentError, CacheWarning
from tensorc.runtime.cache import CacheKey, CompileCache, cache_in
from tensorc.target import Target

V3 = Target.parse("cpu:x86-64-v3")
KEY = CacheKey.of("func f(): pass", V3, checks=False)

texts = st.text(max_size=20)
options = st.dictionaries(texts, st.one_of(texts, st.booleans(), st.integers(0, 2)), max_size=3)
targets = st.sampled_from([V3, Target.parse("cpu:x86-64-v4"), Target.parse("cpu:x86-64-v3;l2=1K")])
version_lists = st.lists(st.tuples(texts, texts), max_size=2).map(tuple)
keys = st.builds(
    CacheKey, texts, targets, options.map(lambda d: tuple(sorted(d.items()))), version_lists
)


@contextmanager
def no_warning() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def entry_file(store: CompileCache) -> Path:
    (file,) = store.path.iterdir()
    return file


@given(st.lists(st.tuples(keys, st.binary(max_size=50)), max_size=8))
def test_it_is_a_dictionary(tmp_path_factory: pytest.TempPathFactory, pairs: list) -> None:
    store = CompileCache(tmp_path_factory.mktemp("cache"))
    model: dict[bytes, bytes] = {}
    with no_warning():
        for key, payload in pairs:
            assert store.get(key) == model.get(key.encoded())
            store.put(key, payload)
            model[key.encoded()] = payload
        for key, _ in pairs:
            assert CompileCache(store.path).get(key) == model[key.encoded()]


@given(keys, keys)
def test_keys_are_equal_where_their_bytes_are(one: CacheKey, two: CacheKey) -> None:
    # Python's == takes 1 for True; the bytes do not.
    same = repr(one) == repr(two)
    assert (one.encoded() == two.encoded()) == same


def test_a_process_looks_through_a_folder_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[Path] = []
    listed = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: looked.append(path) or listed(path))
    for number in range(3):
        cache_in(tmp_path).put(replace(KEY, text=f"program {number}"), b"code")
    assert looked == [tmp_path]


def test_every_part_of_the_key_counts(tmp_path: Path) -> None:
    store = CompileCache(tmp_path)
    store.put(KEY, b"code")
    others = [
        replace(KEY, text=KEY.text + " "),
        replace(KEY, target=replace(V3, features=(*V3.features, "-avx512f"))),
        replace(KEY, target=replace(V3, l2=V3.l2 + 1)),
        replace(KEY, options=(("checks", True),)),
        replace(KEY, options=(("checks", 0),)),
        *(
            replace(KEY, versions=(*KEY.versions[:i], (name, "0"), *KEY.versions[i + 1 :]))
            for i, (name, _) in enumerate(KEY.versions)
        ),
    ]
    assert [store.get(other) for other in others] == [None] * len(others)
    assert store.get(KEY) == b"code"
    assert {name for name, _ in KEY.versions} == {"tensorc", "llvmlite", "llvm", "sources"}


# --- damage -------------------------------------------------------------------------------------


def damaged(store: CompileCache, data: bytes) -> None:
    """A file with these bytes in place of the entry is noticed, said and replaced."""
    file = entry_file(store)
    file.write_bytes(data)
    with pytest.warns(CacheWarning, match="damaged"):
        assert store.get(KEY) is None
    with no_warning():
        assert store.get(KEY) is None
        store.put(KEY, b"code")
        assert store.get(KEY) == b"code"


@pytest.fixture
def small(tmp_path: Path) -> CompileCache:
    store = CompileCache(tmp_path)
    store.put(KEY, b"code")
    return store


def test_an_entry_cut_at_any_byte(small: CompileCache) -> None:
    whole = entry_file(small).read_bytes()
    for length in range(len(whole)):
        damaged(small, whole[:length])


def test_an_entry_with_any_bit_changed(small: CompileCache) -> None:
    whole = entry_file(small).read_bytes()
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= 1 << (place % 8)
        damaged(small, bytes(changed))


@pytest.mark.parametrize("data", [b"", b"\0" * 500, b"x" * 64])
def test_foreign_bytes(small: CompileCache, data: bytes) -> None:
    damaged(small, data)
    damaged(small, entry_file(small).read_bytes() + data + b".")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
@pytest.mark.timeout(20)
@pytest.mark.parametrize("device", ["pipe", "/dev/zero"])
def test_no_regular_file(small: CompileCache, device: str) -> None:
    file = entry_file(small)
    file.unlink()
    if device == "pipe":
        os.mkfifo(file)
    else:
        file.symlink_to(device)
    with pytest.warns(CacheWarning, match="it is no regular file"):
        assert small.get(KEY) is None
    with no_warning():
        small.put(KEY, b"code")
        assert small.get(KEY) == b"code"


def test_another_programs_entry_under_this_name(
    small: CompileCache, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = CompileCache(tmp_path_factory.mktemp("other"))
    other.put(CacheKey.of("another", V3), b"other code")
    damaged(small, entry_file(other).read_bytes())


def test_a_writer_killed_at_any_moment(tmp_path: Path) -> None:
    """What is under the name is an old or a new entry, whole; never anything else."""
    script = """
import sys
from tensorc.runtime.cache import CacheKey, CompileCache
from tensorc.target import Target
store = CompileCache(sys.argv[1])
key = CacheKey.of("func f(): pass", Target.parse("cpu:x86-64-v3"), checks=False)
print("ready", flush=True)
while True:
    for byte in b"ab":
        store.put(key, bytes([byte]) * 1_000_000)
"""
    store = CompileCache(tmp_path)
    for repeat in range(8):
        command = [sys.executable, "-c", script, str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"ready\n"
            time.sleep(0.004 * repeat)
            writer.kill()
        with no_warning():
            assert store.get(KEY) in (None, b"a" * 1_000_000, b"b" * 1_000_000)


def test_files_of_dead_writers_are_removed(small: CompileCache) -> None:
    old, new = (small.path / f"{name}.tmp" for name in ("old", "new"))
    for file in (old, new):
        file.write_bytes(b"part")
    long_ago = time.time() - 7200
    os.utime(old, (long_ago, long_ago))
    CompileCache(small.path).put(KEY, b"code")
    assert not old.exists()
    assert new.exists()


# --- several at once ----------------------------------------------------------------------------


def test_many_threads_on_few_keys(tmp_path: Path) -> None:
    wrong: list[object] = []
    several = [CacheKey.of(str(number), V3) for number in range(3)]

    def work(seed: int) -> None:
        store = CompileCache(tmp_path, limit_bytes=9000)
        for step in range(60):
            key = several[(seed + step) % 3]
            payload = key.text.encode() * 2500
            store.put(key, payload)
            got = store.get(key)
            if got not in (None, payload):
                wrong.append(got)

    with no_warning():
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []
    assert [file.name for file in tmp_path.iterdir() if file.suffix == ".tmp"] == []


# --- size ---------------------------------------------------------------------------------------


def test_the_longest_unused_go_first(tmp_path: Path) -> None:
    store = CompileCache(tmp_path, limit_bytes=1_000_000)
    several = [CacheKey.of(str(number), V3) for number in range(5)]
    for number, key in enumerate(several[:4]):
        store.put(key, bytes(240_000))
        # The clock of a file system may be too coarse to tell two writes apart.
        os.utime(store._file_of(key.encoded()), (1000 + number, 1000 + number))
    assert store.get(several[0]) is not None
    store.put(several[4], bytes(240_000))
    assert [store.get(key) is not None for key in several] == [True, False, False, True, True]


@given(st.lists(st.integers(0, 4000), max_size=20), st.integers(0, 10_000))
def test_the_limit_holds(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], limit: int
) -> None:
    store = CompileCache(tmp_path_factory.mktemp("cache") / "new", limit_bytes=limit)
    for number, size in enumerate(sizes):
        store.put(CacheKey.of(str(number), V3), bytes(size))
        used = sum(f.stat().st_size for f in store.path.iterdir()) if store.path.exists() else 0
        assert used <= limit
    store.clear()
    assert not store.path.exists() or list(store.path.iterdir()) == []


def test_a_limit_below_zero_is_refused() -> None:
    with pytest.raises(ArgumentError, match="-1 is negative"):
        CompileCache(limit_bytes=-1)


# --- places -------------------------------------------------------------------------------------


def test_the_folder_is_the_settings(tmp_path: Path) -> None:
    with config.scope(cache_dir=tmp_path / "deep" / "folder"):
        store = CompileCache()
    store.put(KEY, b"code")
    assert store.path == tmp_path / "deep" / "folder" / "compiled"
    assert store.get(KEY) == b"code"
    if os.name == "posix":
        assert store.path.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    store = CompileCache(tmp_path / "file" / "below")
    with pytest.warns(CacheWarning, match="nothing can be kept"):
        store.put(KEY, b"code")
    with pytest.warns(CacheWarning, match="cannot be read"):
        assert store.get(KEY) is None
