"""The model as the default scheduler of networks: what it cannot do, the rules do, and one warning
says so."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import tensorc
from tensorc import config
from tensorc.errors import ArgumentError
from tensorc.graph import kernels
from tensorc.graph.kernels import Kernel, build_kernels
from tensorc.ir import build as tc
from tensorc.ir.hash import structural_hash
from tensorc.ir.nodes import Func
from tensorc.runtime.measure.records import RecordFile
from tensorc.search.database import Database
from tensorc.target import Target
from tensorc.tlm import schedule as use
from tensorc.tlm import weights
from tensorc.tlm.failures import WeightsError
from tests.tlm.made import product, records, total, wild

pytestmark = pytest.mark.torch
HOST = Target.parse("cpu")


@pytest.fixture(autouse=True)
def default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The model is the default, and nothing is in the cache."""
    monkeypatch.delenv(use.VARIABLE, raising=False)
    with config.scope(cache_dir=tmp_path / "cache", num_threads=1, scheduler="tlm"):
        yield


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "weights.safetensors"
    weights.save(wild(), path)
    monkeypatch.setenv(use.VARIABLE, str(path))
    return path


def nests(made: list[Kernel]) -> list[Func]:
    return [kernel.module.func for kernel in made]


def told(funcs: list[Func]) -> tuple[list[Func], list[str]]:
    """The nests of the default, and what it warns of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", use.UnwrittenWarning)
        made = build_kernels(funcs, HOST)
    assert all(one.category is use.UnwrittenWarning for one in caught)
    return nests(made), [str(one.message) for one in caught]


def test_the_model_writes(file: Path) -> None:
    funcs = [product(), total()]
    found, messages = told(funcs)
    assert messages == []
    assert found == nests(build_kernels(funcs, HOST, "tlm"))
    wanted = [use.scheduler(HOST)(func).func for func in funcs]
    assert found == wanted
    assert wanted != nests(build_kernels(funcs, HOST, "rules"))


def test_other_weights_are_another_entry_of_the_cache(file: Path) -> None:
    func = product()
    ruled, written = (kernels._key(func, HOST, name).encoded() for name in ("rules", "tlm"))
    model = wild()
    with torch.no_grad():
        model.pieces.weight *= -1.0
    weights.save(model, file)
    assert kernels._key(func, HOST, "rules").encoded() == ruled
    assert kernels._key(func, HOST, "tlm").encoded() != written
    assert told([func])[0] == [use.scheduler(HOST)(func).func]


def spoiled(path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    model = wild()
    match how:
        case "gone":
            path.unlink()
        case "unset":
            monkeypatch.delenv(use.VARIABLE)
        case "short":
            path.write_bytes(path.read_bytes()[:-5])
        case "vocabulary":
            text = weights.packed(dict(model.state_dict()), model.shape, {}, vocabulary="12")
            path.write_bytes(text)
        case "network":
            tensors = dict(model.state_dict())
            del tensors["norm.bias"]
            path.write_bytes(weights.packed(tensors, model.shape, {}))
        case "library":
            monkeypatch.setattr(use, "find_spec", lambda name: None)
            monkeypatch.setenv("TENSORC_TLM_NETWORK", "torch")


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("gone", "cannot be read: No such file"),
        ("unset", "there are no weights: set TENSORC_TLM to a file"),
        ("short", "it is truncated or damaged"),
        ("vocabulary", "it is of the vocabulary 12, this tensorc has"),
        ("network", "it holds no network: there is no norm.bias"),
        ("library", "torch is not installed, which the language model needs: pip install"),
    ],
)
def test_weights_that_cannot_be_used(
    file: Path, monkeypatch: pytest.MonkeyPatch, how: str, words: str
) -> None:
    """The default warns, once; who asks for the model by name gets the error."""
    spoiled(file, monkeypatch, how)
    funcs = [product(), total()]
    found, (message,) = told(funcs)
    assert message.startswith("all tasks are scheduled by rules: ")
    assert words in message
    assert found == nests(build_kernels(funcs, HOST, "rules"))
    with pytest.raises((WeightsError, ArgumentError), match=r"weights|vocabulary|torch|network"):
        build_kernels(funcs, HOST, "tlm")


def wide(count: int = 70) -> Func:
    """More buffers than the language has names for."""
    given = [tc.placeholder((2,), "f32", name=f"A{n}") for n in range(count)]

    def added(i: object) -> object:
        found = given[0][i]
        for one in given[1:]:
            found = found + one[i]
        return found

    return tc.func_of(given, [tc.compute((2,), added, name="S")], name="wide")


@pytest.mark.parametrize(
    ("limit", "make", "words"),
    [
        (5, lambda: [product(), total()], "2 of 2 tasks are scheduled by rules: product: the task"),
        (5, lambda: [product()], "1 of 1 tasks are scheduled by rules: product: the task has"),
        (2000, lambda: [wide(), product()], "1 of 2 tasks are scheduled by rules: wide: the buff"),
    ],
    ids=("too long", "one", "beyond the language"),
)
def test_tasks_that_cannot_be_written(
    file: Path, limit: int, make: Callable[[], list[Func]], words: str
) -> None:
    """The cache knows why, so that another compilation says it again."""
    weights.save(wild(prompt=limit), file)
    funcs = make()
    first, (message,) = told(funcs)
    assert message.startswith(words)
    assert told(funcs) == (first, [message])
    ruled = nests(build_kernels(funcs, HOST, "rules"))
    assert first[0] == ruled[0]


def test_helpers_tell_why(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "TASKS_PER_WRITER", 1)
    weights.save(wild(prompt=5), file)
    funcs = [product(n, 8, 8) for n in (2, 3, 4, 5)]
    with config.scope(num_threads=2, tlm_network="native"):
        kernels._compile_aside(funcs, HOST, "tlm")
        for func in funcs:
            assert kernels.cache_in(config.cache_dir / "schedules").get(
                kernels._key(func, HOST, "tlm")
            )
        _, (message,) = told(funcs)
    assert message.startswith("4 of 4 tasks are scheduled by rules: product, product, product, 1 m")


def test_what_was_measured_comes_first(file: Path, tmp_path: Path) -> None:
    func, path = product(), tmp_path / "records.jsonl"
    with RecordFile(path) as kept:
        for record in records(func, target=HOST):
            kept.append(replace(record, task=structural_hash(func)))
    best = Database(path).schedule(func, HOST)
    assert best is not None
    with config.scope(database=path):
        for name in ("default", "tlm", "rules"):
            assert nests(build_kernels([func], HOST, name)) == [best.func]


def test_a_network_without_weights_is_compiled_by_rules_and_right() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)).eval()
    x = torch.randn(3, 8)
    with pytest.warns(use.UnwrittenWarning, match="all tasks are scheduled by rules") as caught:
        network = tensorc.compile(module, (x,))
    assert len([one for one in caught if one.category is use.UnwrittenWarning]) == 1
    torch.testing.assert_close(network(x), module(x), rtol=1e-4, atol=1e-5)
