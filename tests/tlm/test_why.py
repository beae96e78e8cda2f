"""Why: the probabilities are those of writing, and what was ruled out is counted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from tensorc.cli.app import app
from tensorc.space.space import Space
from tensorc.tlm import schedule as use
from tensorc.tlm import weights
from tensorc.tlm.decode import Writer
from tensorc.tlm.failures import LengthError
from tensorc.tlm.language import LARGEST, language
from tensorc.tlm.sentence import prompt
from tensorc.tlm.why import why
from tests.tlm.made import TARGET, product, wild

pytestmark = pytest.mark.torch


def test_probabilities_are_those_of_writing() -> None:
    writer, space, read = Writer(wild()), Space(product(), TARGET), prompt(product(), TARGET)
    for one in writer.write(space, read, 3, seed=1):
        found = why(writer, space, read, one.sentence)
        assert [(e.kind, e.subject, e.value) for e in found] == list(one.sentence.record)
        assert [e.probability for e in found] == pytest.approx(one.probabilities, abs=1e-4)
        for each, (choice, _) in zip(found, one.sentence.decisions, strict=True):
            assert set(each.probabilities) == set(choice.options)
            assert sum(each.probabilities.values()) == pytest.approx(1.0)
            shares = list(each.probabilities.values())
            assert shares == sorted(shares, reverse=True)
            assert each.next[0] != each.value
            assert each.tokens - each.illegal == len(choice.options)
    best = writer.best(space, read).sentence.record
    assert tuple((e.kind, e.subject, e.value) for e in why(writer, space, read)) == best
    with pytest.raises(LengthError):
        why(Writer(wild(answer=2)), space, read, one.sentence)


def test_who_knows_nothing_finds_all_alike() -> None:
    """With weights of zero the mask takes away the share that it takes away of the tokens."""
    writer, space = Writer(wild()), Space(product(), TARGET)
    with torch.no_grad():
        writer.model.pieces.weight.zero_()
    for one in why(writer, space, prompt(product(), TARGET)):
        assert one.share == pytest.approx(one.illegal / one.tokens)
        assert one.best_share == pytest.approx(1 / one.tokens)
        assert one.tokens >= len(language()) > 10 * LARGEST


def test_the_best_that_was_ruled_out() -> None:
    """One who always wants what is never offered: 251 rows."""
    writer, space = Writer(wild()), Space(product(), TARGET)
    model, words = writer.model, writer.words
    with torch.no_grad():
        model.pieces.weight.zero_()
        model.norm.weight.zero_()
        model.norm.bias.fill_(1.0)
        token = next(token for token, text in language().items() if text == "rows 251")
        model.pieces.weight[list(words.numbers(token))] = 1.0
    for one in why(writer, space, prompt(product(), TARGET)):
        assert one.best_illegal == "rows 251"
        assert one.best_share <= one.share <= 1.0
        assert one.best_share > 0.5


def test_the_command_shows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights.save(wild(), tmp_path / "w.safetensors")
    # Kernels of our own take seconds to compile, and give the same.
    monkeypatch.setenv("TENSORC_TLM_NETWORK", "torch")
    monkeypatch.setenv(use.VARIABLE, str(tmp_path / "w.safetensors"))
    source = tmp_path / "p.py"
    source.write_text(
        "import tensorc as tc\n"
        "def total():\n"
        "    X, r = tc.placeholder((40, 30), 'f32', name='X'), tc.reduce_axis(30, name='k')\n"
        "    s = tc.compute((40,), lambda i: tc.sum(X[i, r], axis=r), name='S')\n"
        "    return tc.func_of([X], [s], name='t')\n"
    )
    asked = ["explain", f"{source}:total", "--scheduler", "tlm", "--target", "cpu:x86-64-v3"]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
    assert "ruled out" in done.stdout.splitlines()[1]
    assert "# stage schedule" in done.stdout
    data = json.loads(CliRunner().invoke(app, [*asked, "--json"]).stdout)
    first = data["decisions"][0]
    assert first["probability"] == dict(first["probabilities"])[first["value"]]
    assert data["decisions"][0]["illegal"] > LARGEST
    assert data["stages"]
    refused = CliRunner().invoke(app, [*asked, "--trace", str(source)])
    assert refused.exit_code == 1
    assert "a trace says the steps already" in refused.stderr
    refused = CliRunner().invoke(app, [*asked[:3], "best"])
    assert "there is no scheduler 'best'; legal: default, tlm" in refused.stderr
