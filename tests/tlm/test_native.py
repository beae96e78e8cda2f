"""The network on our own kernels: it computes what the one in torch does, and writes the same."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import numpy as safetensors

from tensorc import config
from tensorc.errors import ArgumentError
from tensorc.ir.print import print_func
from tensorc.schedule.replay import steps_text
from tensorc.space.space import Space
from tensorc.tasks import task_set
from tensorc.tlm import schedule as use
from tensorc.tlm import weights
from tensorc.tlm.decode import Writer
from tensorc.tlm.failures import WeightsError
from tensorc.tlm.model import Model
from tensorc.tlm.native import Native
from tensorc.tlm.network import Shape, looks_back
from tensorc.tlm.sentence import prompt
from tensorc.tlm.tensors import tensors
from tests.tlm.made import TARGET, product, small

pytestmark = pytest.mark.torch


@functools.cache
def both(seed: int = 0, blind: int = 0) -> tuple[Model, Native]:
    """One network with wild weights, twice."""
    torch.manual_seed(seed)
    model = Model(small(layers=2, blind=blind))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight += 0.1 * torch.randn_like(weight) * ("norm" in name or "bias" in name)
        model.pieces.weight[1:] *= 30
    return model, native(model)


def native(model: Model) -> Native:
    return Native(model.shape, {name: one.numpy() for name, one in model.state_dict().items()})


# Numbers ------------------------------------------------------------------------------------------


@given(
    st.sampled_from([1, 2, 16, 63, 64, 130]),
    st.sampled_from([1, 2, 16, 17]),
    st.integers(1, 18),
    st.sampled_from([0, 500]),
    st.randoms(use_true_random=False),
)
@settings(max_examples=8)
def test_logits_are_those_of_torch(count, rows, steps, blind, source) -> None:
    """A prompt, single steps, both heads, and answers in one row."""
    networks, generator = both(blind=blind), np.random.default_rng(source.randrange(1 << 32))
    shape = networks[0].shape
    tokens = generator.integers(0, shape.pieces, (count, 5))
    further = generator.integers(0, shape.pieces, (steps, rows, 3))
    options = generator.integers(0, shape.pieces, (rows, 7, 4))
    answers = generator.integers(0, shape.pieces, (40, 4))
    mask = looks_back(40, count)
    owners = np.arange(40) // 13
    mask[:, count:] &= owners[:, None] == owners[None, :]
    found = []
    for network in networks:
        with network.alone():
            reader = network.reader(count)
            hidden = [reader.read(tokens, np.arange(count), looks_back(count))]
            several = reader.repeated(rows, 16)
            for number, step in enumerate(further):
                hidden.append(several.step(step, shape.prompt + number))
            assert (reader.length, several.length) == (count, count + steps)
            last = hidden[-1]
            hidden.append(reader.repeated(1, 40).read(answers, shape.prompt + owners, mask))
            scores = network.scores(last, options)
            found.append([*hidden, scores, network.expected(last)])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-4)


def test_rows_do_not_depend_on_their_number() -> None:
    """Whether there are two or twenty: the same bits."""
    _, network = both()
    generator = np.random.default_rng(0)
    tokens = generator.integers(0, network.shape.pieces, (20, 4))
    reader = network.reader(8)
    reader.read(tokens[:8], np.arange(8), looks_back(8))
    whole = reader.repeated(20, 16).step(tokens, network.shape.prompt)
    part = reader.repeated(2, 16).step(tokens[:2], network.shape.prompt)
    np.testing.assert_array_equal(whole[:2], part)


def test_what_has_written_is_not_read_further() -> None:
    _, network = both()
    reader = network.reader(1)
    tokens = np.ones((1, 1), np.int64)
    reader.step(tokens, 0)
    for wrong in (reader, network.reader(1).repeated(2, 1)):
        with pytest.raises(ArgumentError, match="single steps only"):
            wrong.read(tokens, np.zeros(1, np.int64), looks_back(1, 1))
    with pytest.raises(ArgumentError, match="single steps only"):
        reader.repeated(2, 1)


# Tokens -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", task_set().tasks[7::240], ids=lambda task: task.name)
def test_the_same_tokens(task) -> None:
    space, read = Space(task.func, TARGET), prompt(task.func, TARGET)
    theirs, ours = (Writer(network) for network in both())
    for written in ({"count": 1}, {"count": 16, "seed": 5, "temperature": 2.0}):
        pairs = zip(
            ours.write(space, read, **written), theirs.write(space, read, **written), strict=True
        )
        for one, other in pairs:
            assert one.sentence == other.sentence
            assert one.probabilities == pytest.approx(other.probabilities, abs=1e-4)
    one, other = ours.best(space, read), theirs.best(space, read)
    assert one.sentence == other.sentence
    assert one.slowness == pytest.approx(other.slowness, abs=1e-4)


def test_the_same_with_any_threads() -> None:
    space, read = Space(product(), TARGET), prompt(product(), TARGET)
    first = Writer(both()[1]).write(space, read, 6, seed=3)
    for count in (1, 3):
        with config.scope(num_threads=count):
            assert Writer(native(both()[0])).write(space, read, 6, seed=3) == first


# Use ----------------------------------------------------------------------------------------------

WITHOUT = """
import sys
sys.modules |= dict.fromkeys(("torch", "safetensors"))
from tensorc.ir.parse import parse
from tensorc.schedule.replay import steps_text
from tensorc.target import Target
from tensorc.tlm.schedule import scheduler
text, file, target = sys.argv[1:]
print(steps_text(scheduler(Target.parse(target), weights=file, threads=2)(parse(text)).steps))
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "weights.safetensors"
    weights.save(both()[0], path)
    return path


def test_without_torch(file: Path) -> None:
    """In a process that can import neither torch nor safetensors."""
    text, target = print_func(product()), "cpu:x86-64-v3;cores=2"
    command = [sys.executable, "-c", WITHOUT, text, str(file), target]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr
    with config.scope(tlm_network="torch"):
        wanted = use.scheduler(TARGET, weights=file, threads=2)(product())
    assert done.stdout == f"{steps_text(wanted.steps)}\n"


def test_the_setting_chooses(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(use.opened(file).model, Model)
    monkeypatch.setenv("TENSORC_TLM_NETWORK", "Native")
    assert isinstance(use.opened(file).model, Native)
    monkeypatch.setattr("tensorc.config.find_spec", lambda name: None)
    monkeypatch.delenv("TENSORC_TLM_NETWORK")
    assert isinstance(use.opened(file).model, Native)
    monkeypatch.setenv("TENSORC_TLM_NETWORK", "numpy")
    with pytest.raises(ArgumentError, match=r"TENSORC_TLM_NETWORK.*native, torch"):
        use.opened(file)


# Bad files ----------------------------------------------------------------------------------------


def changed(path: Path, **kept: str) -> None:
    """The same file with other texts."""
    data = path.read_bytes()
    first = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:first])
    header["__metadata__"] |= kept
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[first:])


OTHER = json.dumps({"pieces": 9, "layers": 2, "heads": 2, "width": 16})
DAMAGES = {
    "gone": (lambda path: path.unlink(), "cannot be read"),
    "short": (lambda path: path.write_bytes(path.read_bytes()[:-1]), "truncated or damaged"),
    "half a header": (lambda path: path.write_bytes(path.read_bytes()[:99]), "truncated or dam"),
    "empty": (lambda path: path.write_bytes(b""), "truncated or damaged"),
    "format": (lambda path: changed(path, format="another"), "no 'tensorc tlm 1' but 'another'"),
    "vocabulary": (lambda path: changed(path, vocabulary="12"), "of the vocabulary 12, this tens"),
    "shape": (lambda path: changed(path, shape=OTHER), "it holds no network: .*size mismatch"),
    "heads": (lambda path: changed(path, shape='{"pieces": 9, "heads": 3}'), "do not divide the"),
    "no sizes": (lambda path: changed(path, shape="{}"), "it holds no network"),
    "no text": (lambda path: changed(path, shape="{"), "it holds no network"),
}


@pytest.mark.parametrize(("damage", "words"), DAMAGES.values(), ids=DAMAGES)
def test_both_refuse_alike(file: Path, damage, words: str) -> None:
    damage(file)
    for load in (weights.load, weights.load_native, weights.checked):
        with pytest.raises(WeightsError, match=f"(?s){words}"):
            load(file)


def test_weights_are_checked_by_name() -> None:
    model, _ = both()
    known = {name: one.numpy() for name, one in model.state_dict().items()}
    shape: Shape = model.shape
    with pytest.raises(ValueError, match=r"there is no norm\.bias"):
        Native(shape, {name: one for name, one in known.items() if name != "norm.bias"})
    with pytest.raises(ValueError, match="more is not of a network of 2 layers"):
        Native(shape, {**known, "more": known["norm.bias"]})


@given(
    st.dictionaries(st.text("ab", min_size=1), st.lists(st.integers(0, 3), max_size=3)), st.data()
)
@settings(max_examples=30)
def test_files_are_read_whole_or_not_at_all(shapes, data) -> None:
    kinds = [np.float16, np.float32, np.float64]
    known = {
        name: np.random.default_rng(n).random(shape).astype(data.draw(st.sampled_from(kinds)))
        for n, (name, shape) in enumerate(shapes.items())
    }
    written = safetensors.save(known, metadata={"a": "b"})
    found = tensors(written)
    assert found.keys() == known.keys()
    for name, array in known.items():
        np.testing.assert_array_equal(found[name], array.astype(np.float32))
    with pytest.raises(ValueError):  # noqa: PT011
        tensors(written[: data.draw(st.integers(0, len(written) - 1))])
    with pytest.raises(ValueError, match="bytes"):
        tensors(written + b"0")


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"dtype": "I8", "shape": [4], "data_offsets": [0, 4]}, "is of the type 'I8'"),
        ({"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}, "cut off, or not of its shape"),
        ({"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]}, "cut off, or not of its shape"),
        ({"dtype": "F32", "shape": ["x"], "data_offsets": [0, 4]}, "does not say what w is"),
        ({"dtype": "F32", "shape": [1]}, "does not say what w is"),
        (3, "does not say what w is"),
    ],
    ids=("type", "size", "begin", "shape", "place", "entry"),
)
def test_headers_are_checked(entry: object, words: str) -> None:
    header = json.dumps({"w": entry}).encode()
    with pytest.raises(ValueError, match=words):
        tensors(len(header).to_bytes(8, "little") + header + b"\0\0\0\0")
    with pytest.raises(ValueError, match="is no table"):
        tensors((2).to_bytes(8, "little") + b"[]")
