"""The network: what it computes, pinned against NumPy, finite differences and its own cache."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorc.errors import ArgumentError
from tensorc.tlm.loss import Decisions, decision_loss, slow_loss
from tensorc.tlm.model import Model, Shape, causal, one_thread

pytestmark = pytest.mark.torch

SMALL = Shape(pieces=23, layers=2, heads=2, width=8, prompt=9, answer=7)


def small(seed: int = 0) -> Model:
    torch.manual_seed(seed)
    model = Model(SMALL).double()
    with torch.no_grad():
        for weight in model.parameters():
            # As they are after training: biases and norms count too.
            weight += 0.3 * torch.randn_like(weight)
        model.pieces.weight[0] = 0
    return model.eval()


def tokens(seed: int, *shape: int) -> torch.Tensor:
    source = torch.Generator().manual_seed(seed)
    return torch.randint(0, SMALL.pieces, shape, generator=source)


# The same in NumPy, a token at a time -------------------------------------------------------------


def normed(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    return (x - x.mean()) / np.sqrt(x.var() + 1e-5) * weight + bias


def gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def naive(model: Model, found: np.ndarray, positions: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """The hidden states of one sequence, (T, C)."""
    w = {name: weight.detach().numpy() for name, weight in model.named_parameters()}
    rows = [w["pieces.weight"][token].sum(0) for token in found]
    xs = [row + w["positions.weight"][p] for row, p in zip(rows, positions, strict=True)]
    size = SMALL.width // SMALL.heads
    for n in range(SMALL.layers):
        of = {name[len(f"blocks.{n}.") :]: v for name, v in w.items() if f"blocks.{n}." in name}
        inner = [
            of["attention.inner.weight"] @ normed(x, of["norm1.weight"], of["norm1.bias"])
            + of["attention.inner.bias"]
            for x in xs
        ]
        for t, x in enumerate(xs):
            mixed = np.zeros(SMALL.width)
            for head in range(SMALL.heads):
                at = slice(head * size, (head + 1) * size)
                seen = [s for s in range(len(xs)) if mask[t, s]]
                query = inner[t][: SMALL.width][at]
                keys = [inner[s][SMALL.width : 2 * SMALL.width][at] for s in seen]
                values = [inner[s][2 * SMALL.width :][at] for s in seen]
                weights = np.exp([query @ key / math.sqrt(size) for key in keys])
                mixed[at] = sum(a * v for a, v in zip(weights / weights.sum(), values, strict=True))
            x = x + of["attention.outer.weight"] @ mixed + of["attention.outer.bias"]
            wide = of["perceptron.0.weight"] @ normed(x, of["norm2.weight"], of["norm2.bias"])
            wide = gelu(wide + of["perceptron.0.bias"])
            xs[t] = x + of["perceptron.2.weight"] @ wide + of["perceptron.2.bias"]
    return np.stack([normed(x, w["norm.weight"], w["norm.bias"]) for x in xs])


@given(st.integers(0, 10**6), st.integers(1, 8))
@settings(max_examples=10)
def test_the_network_is_that_of_gpt2(seed: int, count: int) -> None:
    model = small(seed % 7)
    found, positions = tokens(seed, 2, count, 3), torch.arange(count)
    mask = causal(count) & (torch.rand(count, count) > 0.3) | torch.eye(count, dtype=torch.bool)
    hidden = model(found, positions, mask).detach().numpy()
    for row in range(2):
        wanted = naive(model, found[row].numpy(), positions.numpy(), mask.numpy())
        np.testing.assert_allclose(hidden[row], wanted, rtol=1e-9, atol=1e-9)


def test_scores_are_sums_over_pieces() -> None:
    model, hidden = small(), torch.randn(3, SMALL.width, dtype=torch.float64)
    options = tokens(5, 3, 4, 2)
    options[..., 0] = options[..., 0].clamp(min=1)
    options[1, 3] = 0
    found = model.logits(hidden, options).detach().numpy()
    table = model.pieces.weight.detach().numpy()
    for n in range(3):
        for o in range(4):
            wanted = sum(hidden[n].numpy() @ table[piece] for piece in options[n, o].tolist())
            assert found[n, o] == (pytest.approx(wanted) if (n, o) != (1, 3) else -math.inf)
    inner, outer = model.slowness[0], model.slowness[2]
    wide = inner.weight.detach().numpy() @ hidden.numpy().T + inner.bias.detach().numpy()[:, None]
    wide = 0.5 * wide * (1 + np.vectorize(math.erf)(wide / math.sqrt(2)))
    wanted = outer.weight.detach().numpy() @ wide + outer.bias.detach().numpy()[:, None]
    np.testing.assert_allclose(model.slow(hidden).detach().numpy(), wanted[0])


@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 3))
@settings(max_examples=15)
def test_what_is_cached_is_what_is_computed(seed: int, first: int, rows: int) -> None:
    """A prompt read once, then continued in several ways, some tokens at a time."""
    model = small()
    start, rest = tokens(seed, 1, first, 3), tokens(seed + 1, rows, 5, 3)
    with torch.no_grad():
        whole = torch.cat([start.expand(rows, -1, -1), rest], 1)
        positions = torch.cat([torch.arange(first), SMALL.prompt + torch.arange(5)])
        wanted = model(whole, positions, causal(first + 5))
        cache = model.cache(first)
        read = model(start, positions[:first], causal(first), cache)
        torch.testing.assert_close(read, wanted[:1, :first])
        cache = cache.repeated(rows, 5)
        made = [model(rest[:, :1], positions[first : first + 1], None, cache)]
        made.append(
            model(rest[:, 1:3], positions[first + 1 : first + 3], causal(2, first + 1), cache)
        )
        made += [model(rest[:, n : n + 1], positions[[first + n]], None, cache) for n in (3, 4)]
        torch.testing.assert_close(torch.cat(made, 1), wanted[:, first:])


def test_a_token_is_a_set_of_pieces() -> None:
    model = small()
    found = tokens(3, 1, 4, 3)
    filled = torch.cat([found.flip(-1), torch.zeros(1, 4, 2, dtype=torch.long)], -1)
    places = torch.arange(4)
    torch.testing.assert_close(model(found, places, causal(4)), model(filled, places, causal(4)))


def test_what_is_blind_reads_nothing_of_some_pieces() -> None:
    torch.manual_seed(0)
    shape = replace(SMALL, blind=12)
    model, found = Model(shape).double().eval(), tokens(3, 1, 4, 3)
    options = tokens(4, 4, 5, 2).clamp(min=1)
    options[..., 0] = options[..., 0].clamp(max=11)
    places = torch.arange(4)
    hidden = model(found, places, causal(4))
    seen = found * (found < 12)
    torch.testing.assert_close(hidden, model(seen, places, causal(4)))
    torch.testing.assert_close(
        model.logits(hidden[0], options), model.logits(hidden[0], options * (options < 12))
    )
    assert not torch.equal(found, seen)


# Losses and gradients -----------------------------------------------------------------------------


def example(seed: int) -> tuple[torch.Tensor, Decisions]:
    source = np.random.default_rng(seed)
    options = torch.from_numpy(source.integers(1, SMALL.pieces, (6, 4, 2)))
    options[0, 2:] = 0
    options[3, 1:] = 0
    answers = torch.tensor([1, 3, 0, 0, 2, 3])
    weights = torch.tensor([1.0, 0.5, 0.0, 1.0, 2.0, 0.25], dtype=torch.float64)
    return tokens(seed, 1, 6, 3), Decisions(torch.arange(6), options, answers, weights)


def losses(model: Model, found: torch.Tensor, made: Decisions) -> tuple[Any, Any]:
    hidden = model(found, torch.arange(6), causal(6)).flatten(0, 1)
    wanted = torch.tensor([0.0, 1.5, 4.0], dtype=torch.float64)
    weights = torch.tensor([1.0, 1.0, 0.5], dtype=torch.float64)
    return (
        decision_loss(model, hidden, made),
        slow_loss(model, hidden[[1, 3, 5]], wanted, weights),
    )


def test_losses_are_what_they_say() -> None:
    model = small()
    found, made = example(2)
    decided, slow = losses(model, found, made)
    hidden = model(found, torch.arange(6), causal(6)).flatten(0, 1)
    logits = model.logits(hidden, made.options).detach().numpy()
    total = 0.0
    for n, (answer, weight) in enumerate(
        zip(made.answers.tolist(), made.weights.tolist(), strict=True)
    ):
        legal = [x for x in logits[n] if x > -math.inf]
        total += weight * (math.log(sum(map(math.exp, legal))) - logits[n, answer])
    assert decided.item() == pytest.approx(total / made.weights.sum().item())
    off = (model.slow(hidden[[1, 3, 5]]).detach().numpy() - [0.0, 1.5, 4.0]).tolist()
    # Squares up to 1, straight lines beyond (Huber 1964).
    each = [x * x / 2 if abs(x) < 1 else abs(x) - 0.5 for x in off]
    assert slow.item() == pytest.approx((each[0] + each[1] + 0.5 * each[2]) / 2.5)


def test_gradients_are_those_of_finite_differences() -> None:
    model = small()
    found, made = example(1)
    sum(losses(model, found, made)).backward()
    source = np.random.default_rng(0)
    for name, weight in model.named_parameters():
        flat = weight.data.view(-1)
        for place in source.integers(0, len(flat), 3):
            if name == "pieces.weight" and place < SMALL.width:
                continue
            kept, step = flat[place].item(), 1e-5
            with torch.no_grad():
                flat[place] = kept + step
                above = sum(losses(model, found, made)).item()
                flat[place] = kept - step
                below = sum(losses(model, found, made)).item()
                flat[place] = kept
            wanted = (above - below) / (2 * step)
            assert weight.grad.view(-1)[place].item() == pytest.approx(wanted, abs=1e-7), name


def test_filling_learns_nothing() -> None:
    model = small()
    found, made = example(1)
    found[0, :, 2] = 0
    sum(losses(model, found, made)).backward()
    assert not model.pieces.weight.grad[0].any()


def test_a_fresh_network_knows_nothing() -> None:
    torch.manual_seed(0)
    model = Model(Shape(pieces=50, layers=3, width=32, heads=2))
    assert float(model.pieces.weight[1:].detach().std()) == pytest.approx(0.02, rel=0.1)
    outer = model.blocks[0].attention.outer
    assert float(outer.weight.detach().std()) == pytest.approx(0.02 / math.sqrt(6), rel=0.1)
    assert not model.pieces.weight[0].any()
    hidden = model(tokens(0, 1, 5, 2), torch.arange(5), causal(5))
    found = model.logits(hidden[0], tokens(1, 5, 4, 2).clamp(min=1)).log_softmax(1)
    assert (found + math.log(4)).abs().max().item() < 0.5


def test_sizes() -> None:
    assert 3_000_000 < Model(Shape(1100)).parameters_count < 4_000_000
    for wrong in (
        {"layers": 0},
        {"heads": 3},
        {"width": 2.0},
        {"dropout": 1.0},
        {"pieces": -1},
        {"blind": -1},
    ):
        with pytest.raises(ArgumentError, match=next(iter(wrong))):
            Shape(**{"pieces": 5, **wrong})


def test_threads_are_given_back() -> None:
    before = torch.get_num_threads()
    seen: list[int] = []
    with pytest.raises(IndexError), one_thread():
        seen[torch.get_num_threads()] = 0
    with one_thread():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before
