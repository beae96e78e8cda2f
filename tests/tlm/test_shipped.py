"""The weights of the package: half precision, where they are looked for, and what makes them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from bench import ship
from tensorc.errors import ArgumentError
from tensorc.space.space import Space
from tensorc.tlm import schedule as use
from tensorc.tlm import shipped, weights
from tensorc.tlm.decode import Writer
from tensorc.tlm.failures import WeightsError
from tensorc.tlm.sentence import prompt
from tensorc.tlm.vocabulary import vocabulary
from tests.tlm.made import TARGET, product, total, wild

pytestmark = pytest.mark.torch
ROOT = Path(__file__).parents[2]
# Before a test puts another file there.
REAL = shipped.weights()


# Half precision -----------------------------------------------------------------------------------


def test_both_networks_read_the_same_and_write_the_same(tmp_path: Path) -> None:
    """Also where one reads what the other has rounded."""
    model = wild()
    weights.save(model, tmp_path / "half", {"a": 1}, half=True)
    weights.save(model, tmp_path / "whole")
    kept = weights.load(tmp_path / "half")
    assert kept.provenance == {"a": 1}
    assert weights.checked(tmp_path / "half") == kept.digest
    for name, weight in kept.model.state_dict().items():
        assert weight.dtype is torch.float32
        assert torch.equal(weight, model.state_dict()[name].half().float())
    sizes = [(tmp_path / name).stat().st_size for name in ("half", "whole")]
    count = sum(weight.numel() for weight in model.parameters())
    assert sizes[1] - sizes[0] == pytest.approx(2 * count, abs=100)  # places have fewer digits
    native, ours = Writer(weights.load_native(tmp_path / "half")), Writer(kept.model)
    for func in (product(), total()):
        space, read = Space(func, TARGET), prompt(func, TARGET)
        assert native.best(space, read).sentence == ours.best(space, read).sentence


@given(arrays.arrays(np.float32, 20, elements=st.floats(2**-14, 65504, width=32)))
def test_a_weight_is_off_by_1_in_2048_at_most(known: np.ndarray) -> None:
    found = torch.from_numpy(known).half().float().numpy()
    assert (np.abs(found - known) <= known / 2048).all()


@pytest.mark.parametrize("value", [1e6, float("nan")])
def test_what_half_precision_cannot_say_is_refused(value: float, tmp_path: Path) -> None:
    model = wild()
    with torch.no_grad():
        model.pieces.weight[3, 3] = value
    with pytest.raises(ArgumentError, match=r"pieces\.weight has weights of 65520 or more"):
        weights.save(model, tmp_path / "half", half=True)
    assert not list(tmp_path.iterdir())


# Where weights are --------------------------------------------------------------------------------


def test_what_is_named_comes_before_what_is_adapted_before_what_is_shipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(use.VARIABLE, raising=False)
    monkeypatch.setenv("TENSORC_DATA_DIR", str(tmp_path / "data"))
    own = tmp_path / "shipped.safetensors"
    monkeypatch.setattr(shipped, "weights", lambda: own)
    with pytest.raises(WeightsError, match="there are no weights"):
        use.place()
    weights.save(wild(), own, half=True)
    assert use.place() == own
    assert use.opened().model.shape == wild().shape
    use.adapted().parent.mkdir(parents=True)
    weights.save(wild(), use.adapted())
    assert use.place() == use.adapted()
    monkeypatch.setenv(use.VARIABLE, "named")
    assert use.place() == Path("named")
    assert use.place("given") == Path("given")


def test_what_is_shipped_is_whole() -> None:
    """None, or weights of this vocabulary with the card that was made of them."""
    card = REAL.parent / shipped.CARD
    assert REAL.exists() == card.exists()
    assert {REAL.parent, REAL.name} == {ROOT / "tensorc/tlm/shipped", "weights.safetensors"}
    if REAL.exists():
        assert f"| SHA-256 | {weights.checked(REAL)} |" in card.read_text(encoding="utf-8")
        assert REAL.stat().st_size < 8e6


def test_wheel_and_source_hold_the_weights(tmp_path: Path) -> None:
    """As the package is built, of a tree with little else in it."""
    tree = tmp_path / "tree"
    for name in ("pyproject.toml", "README.md", "LICENSE", ".gitignore", "tensorc/__init__.py",
                 "tensorc/tlm/shipped/__init__.py"):  # fmt: skip
        file = tree / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes((ROOT / name).read_bytes())
    for name in (shipped.WEIGHTS, shipped.CARD):
        (tree / "tensorc/tlm/shipped" / name).write_bytes(b"x")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(tmp_path / "dist")]
    subprocess.run(command, cwd=tree, check=True, capture_output=True, env=os.environ, timeout=200)
    (wheel,), (source,) = ((tmp_path / "dist").glob(f"*.{end}") for end in ("whl", "tar.gz"))
    with zipfile.ZipFile(wheel) as archive:
        names = [archive.namelist()]
    with tarfile.open(source) as archive:
        names.append([name.partition("/")[2] for name in archive.getnames()])
    for known in names:
        for name in (shipped.WEIGHTS, shipped.CARD):
            assert f"tensorc/tlm/shipped/{name}" in known


# Making them --------------------------------------------------------------------------------------


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    path = tmp_path / "trained.safetensors"
    weights.save(wild(), path, {"data": "abc", "step": 7, "settings": {"rate": 0.001, "seed": 0}})
    return path


def test_the_card_has_the_figures_of_its_files(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluation = {"lessons": 12, "nats": 0.123456, "ranks": None}
    judged = {
        "machine": "some | machine",
        "speeds": [
            {"columns": "tlm", "ratio": 1.25, "interval": [1.1, 1.4]}, {"columns": "tlm10"},
        ],
        "cases": [{"task": n} for n in range(ship.MOST_ROWS + 1)],
        "missing": {"one": "too long"},
        "seeds": [0, 1],
    }  # fmt: skip
    (tmp_path / "e.json").write_text(json.dumps(evaluation))
    (tmp_path / "j.json").write_text(json.dumps(judged))
    out = tmp_path / "out"
    code = ship.main(
        [str(trained), "--out", str(out), "--tasks", "2",
         "--figures", f"Development={tmp_path / 'e.json'}",
         "--figures", f"Test, a=b={tmp_path / 'j.json'}"]
    )  # fmt: skip
    assert code == 0, capsys.readouterr().err
    assert sorted(path.name for path in out.iterdir()) == [shipped.CARD, shipped.WEIGHTS]
    made = weights.load(out / shipped.WEIGHTS)
    assert made.provenance["trained"] == weights.load(trained).digest
    lines = (out / shipped.CARD).read_text(encoding="utf-8").splitlines()
    for line in (
        f"| SHA-256 | {made.digest} |", f"| vocabulary | {vocabulary().hash} |", "| step | 7 |",
        "| settings, rate | 0.001 |", "| data | abc |", "| network | gpt2 | test |",
        "| tasks of development compared | 2 |", "### Development", "| lessons | 12 |",
        "| nats | 0.1235 |", "| ranks |  |", "### Test, a=b", "| machine | some \\| machine |",
        "| columns | ratio |", "| tlm | 1.25 |", "| tlm10 |  |", "| one | too long |",
        "**seeds**: 0, 1", f"**cases**: {ship.MOST_ROWS + 1} rows, which are not shown.",
        "| tokens of a task that are read at most | 288 |",
    ):  # fmt: skip
        assert line in lines, line


def test_networks_that_differ_ship_nothing(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = wild()
    with torch.no_grad():
        other.pieces.weight *= -1.0
    monkeypatch.setattr(weights, "load_native", lambda path: other)
    with pytest.raises(ship.DifferentError, match="write other sentences"):
        ship.ship(trained, tmp_path / "out", (), 3)
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize(
    ("figures", "words"),
    [("none.json", "expected TITLE=FILE.json"), ("A=none.json", "none.json cannot be read")],
)
def test_figures_that_are_none_are_refused(
    figures: str, words: str, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ship.main([str(trained), "--out", str(tmp_path / "o"), "--figures", figures]) == 1
    assert words in capsys.readouterr().err
    assert not (tmp_path / "o").exists()


def test_weights_that_are_none_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ship.main([str(tmp_path / "none"), "--out", str(tmp_path / "o")]) == 1
    assert "cannot be read" in capsys.readouterr().err
