"""Settings: which source wins, what is refused, and how far a scope reaches."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path

import pytest

import tensorc
from tensorc import config
from tensorc.errors import ArgumentError


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NUM_THREADS", "CACHE_DIR", "DATA_DIR", "VERIFY", "SCHEDULER"):
        monkeypatch.delenv(f"TENSORC_{name}", raising=False)


def test_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    assert config.num_threads >= 1
    assert config.verify is False
    assert config.scheduler == config.DEFAULT_SCHEDULER
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert config.cache_dir == Path("/somewhere/tensorc")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert config.cache_dir == Path.home() / ".cache" / "tensorc"
    monkeypatch.setenv("XDG_DATA_HOME", "/elsewhere")
    assert config.data_dir == Path("/elsewhere/tensorc")
    monkeypatch.delenv("XDG_DATA_HOME")
    assert config.data_dir == Path.home() / ".local" / "share" / "tensorc"


def test_environment_is_read_at_each_use(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for count in (3, 5):
        monkeypatch.setenv("TENSORC_NUM_THREADS", f" {count}")
        assert config.num_threads == count
    monkeypatch.setenv("TENSORC_CACHE_DIR", str(tmp_path))
    assert config.cache_dir == tmp_path
    for word, value in config.SWITCH_WORDS.items():
        monkeypatch.setenv("TENSORC_VERIFY", word.upper())
        assert config.verify is value


def test_empty_variable_is_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    default = config.num_threads
    monkeypatch.setenv("TENSORC_NUM_THREADS", "")
    assert config.num_threads == default


def test_scope_wins_over_assignment_over_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORC_NUM_THREADS", "3")
    config.num_threads = 5
    try:
        with config.scope(num_threads=7):
            with config.scope(verify=True):
                assert (config.num_threads, config.verify) == (7, True)
            assert (config.num_threads, config.verify) == (7, False)
        assert config.num_threads == 5
    finally:
        del config.num_threads
    assert config.num_threads == 3


def test_scope_ends_with_an_error() -> None:
    with pytest.raises(KeyError), config.scope(verify=True):
        raise KeyError
    assert config.verify is False


def test_scope_is_of_one_thread() -> None:
    seen: list[bool] = []
    with config.scope(verify=True):
        thread = threading.Thread(target=lambda: seen.append(config.verify))
        thread.start()
        thread.join()
    assert seen == [False]


REFUSED = [
    ("num_threads", 0),
    ("num_threads", -1),
    ("num_threads", 4097),
    ("num_threads", 2.0),
    ("num_threads", True),
    ("num_threads", "two"),
    ("num_threads", None),
    ("cache_dir", 3),
    ("cache_dir", ""),
    ("cache_dir", "\0"),
    ("cache_dir", b"a\0b"),
    ("cache_dir", "~nobody-of-this-name/cache"),
    ("verify", 1),
    ("verify", "maybe"),
]


@pytest.mark.parametrize(("name", "value"), REFUSED)
def test_refused_value(name: str, value: object) -> None:
    with pytest.raises(ArgumentError, match="expected") as scoped, config.scope(**{name: value}):
        pass
    with pytest.raises(ArgumentError, match="expected") as assigned:
        setattr(config, name, value)
    for caught in (scoped, assigned):
        copy = pickle.loads(pickle.dumps(caught.value))
        assert (copy.argument, str(copy)) == (name, str(caught.value))
        assert repr(value) in str(copy)


@pytest.mark.parametrize(("name", "text"), [("num_threads", "1.5"), ("verify", "2")])
def test_refused_variable_is_named(name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    variable = f"TENSORC_{name.upper()}"
    monkeypatch.setenv(variable, text)
    with pytest.raises(ArgumentError) as caught:
        getattr(config, name)
    assert caught.value.argument == variable


def test_unknown_setting_lists_the_known() -> None:
    known = "num_threads, cache_dir, data_dir, verify"
    with pytest.raises(ArgumentError, match=known), config.scope(threads=2):
        pass
    with pytest.raises(AttributeError, match="threads"):
        _ = config.threads  # type: ignore[attr-defined]


def test_settings_are_listed_and_reached_from_the_package() -> None:
    assert tensorc.config is config
    assert {"num_threads", "cache_dir", "verify"} <= set(dir(config))
