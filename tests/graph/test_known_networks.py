"""The networks to try, small: whole, equal to torch, with results that would show a fault."""

from __future__ import annotations

import pytest
import torch
from transformers.utils import logging

from tensorc.errors import ArgumentError
from tensorc.graph.compile import compile
from tensorc.graph.networks import RECIPES, Behaviour, behaviour, logits, network

pytestmark = pytest.mark.torch
logging.set_verbosity_error()

TEXT = {"num_hidden_layers": 1, "hidden_size": 32, "num_attention_heads": 2, "vocab_size": 61}
SMALL = {
    "resnet50": {
        "size": 33, "embedding_size": 8, "hidden_sizes": [16, 16], "depths": [2, 1],
    },
    "mobilenetv2": {"size": 32, "depth_multiplier": 0.1, "finegrained_output": False},
    "efficientnet-b0": {
        "size": 32, "width_coefficient": 0.25, "in_channels": [32, 16], "out_channels": [16, 24],
        "kernel_sizes": [3, 5], "strides": [1, 2], "num_block_repeats": [1, 2],
        "expand_ratios": [1, 6], "hidden_dim": 320,
    },
    "bert-base": {"size": 9, **TEXT, "intermediate_size": 48},
    "gpt2": {"size": 9, "n_layer": 1, "n_embd": 32, "n_head": 2, "vocab_size": 61},
    "llama-7b": {"size": 9, **TEXT, "intermediate_size": 48},
}  # fmt: skip


@pytest.mark.parametrize("name", RECIPES)
def test_a_small_one_equals_torch(name):
    module, inputs = network(name, **SMALL[name])
    ours = compile(module, inputs, scheduler="none")(*inputs)
    with torch.no_grad():
        theirs = module(*inputs)
    assert list(ours) == list(theirs) == ["logits"]
    error = (ours.logits - theirs.logits).norm() / theirs.logits.norm()
    assert error < 1e-5
    found = behaviour(module, inputs)
    assert found.difference > 1e-2
    assert 0.05 < found.spread < 100.0


@pytest.mark.parametrize("name", ["resnet50", "gpt2", "mlp", "attention"])
def test_a_seed_gives_one_network(name):
    options = SMALL.get(name, {})
    (one, x), (two, y), (other, z) = (network(name, seed, **options) for seed in (1, 1, 2))
    assert not one.training
    torch.testing.assert_close((x, one.state_dict()), (y, two.state_dict()), rtol=0, atol=0)
    assert not torch.equal(x[0], z[0])
    changed = zip(one.parameters(), other.parameters(), strict=True)
    assert any(not torch.equal(a, b) for a, b in changed)


def test_default_initialisation_would_hide_faults():
    """What the calibration is for: without it the images' logits do not depend on the image."""
    module, inputs = network("mobilenetv2", **SMALL["mobilenetv2"])
    for norm in module.modules():
        if isinstance(norm, torch.nn.BatchNorm2d):
            norm.reset_parameters()
    assert not behaviour(module, inputs).is_telling


def test_what_behaves():
    assert Behaviour(1.0, 0.5).is_telling
    assert not Behaviour(1e-22, 0.5).is_telling
    assert not Behaviour(1e3, 0.5).is_telling
    assert not Behaviour(1.0, 1e-3).is_telling
    assert not Behaviour(float("nan"), float("nan")).is_telling
    assert logits(3) == 3


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("vgg", {}, "there is no 'vgg'; legal here: resnet50, mobilenetv2, efficientnet-b0"),
        ("mlp", {"size": 3}, "mlp has none, got size"),
        ("gpt2", {"size": 3, "layers": 3}, "GPT2Config has no 'layers'"),
    ],
)
def test_networks_that_there_are_not_are_refused(name, options, message):
    with pytest.raises(ArgumentError, match=message):
        network(name, **options)
