"""What training makes small."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from tensorc.tlm import language
from tensorc.tlm.model import Model


@dataclass(frozen=True, slots=True)
class Decisions:
    """Decisions to learn.

    Attributes:
        places: of the tokens that the options are chosen after, (N,), among all hidden states.
        options: the numbers of their pieces, (N, O, W); options of no piece fill up.
        answers: which one was chosen, (N,).
        weights: how much each counts, (N,).
    """

    places: Tensor
    options: Tensor
    answers: Tensor
    weights: Tensor


def decision_loss(model: Model, hidden: Tensor, made: Decisions) -> Tensor:
    """The mean of -log p of what was chosen among the legal options, by weight.

    What the mask rules out has no probability, so nothing is spent on learning the rules.
    """
    logits = model.logits(hidden[made.places], made.options)
    each = functional.cross_entropy(logits, made.answers, reduction="none")
    return (each * made.weights).sum() / made.weights.sum().clamp(min=1e-9)


def unmasked_loss(model: Model, hidden: Tensor, made: Decisions) -> Tensor:
    """The mean of -log p of what was chosen among all decisions of the language, by weight: the
    rules are to be learned. The model has to be one that reads no contexts, which what is illegal
    does not have."""
    own, every = hidden[made.places], torch.from_numpy(language.numbers()).to(hidden.device)
    width = max(every.shape[-1], made.options.shape[-1])
    every, options = (
        functional.pad(table, (0, width - table.shape[-1])) for table in (every, made.options)
    )
    logits = model.logits(own, options)
    heard = torch.from_numpy(language.places(options.cpu().numpy()) >= 0).to(hidden.device)
    others = logits.masked_fill(heard, -math.inf)
    scores = torch.cat([model.logits_of_all(own, every), others], 1)
    each = scores.logsumexp(1) - logits.gather(1, made.answers[:, None])[:, 0]
    return (each * made.weights).sum() / made.weights.sum().clamp(min=1e-9)


def slow_loss(model: Model, ends: Tensor, wanted: Tensor, weights: Tensor) -> Tensor:
    """The mean error of the value head by weight, squared up to 1 and linear beyond (Huber).

    Args:
        model: the network.
        ends: hidden states at the last tokens of answers, (N, C).
        wanted: log2 of the times by that of the best, (N,).
        weights: how much each counts, (N,).
    """
    each = functional.huber_loss(model.slow(ends), wanted, reduction="none")
    return (each * weights).sum() / weights.sum().clamp(min=1e-9)
