"""The six networks in several sizes, as graphs whose weights take no memory.

A task depends on shapes alone, so the weights are never made: torch lays them out without writing
to them, which leaves the memory unused, and the graph has zeros in their place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tensorc.graph.graph import Graph
from tensorc.graph.network import load
from tensorc.graph.networks import RECIPES
from tensorc.graph.operator_graphs import zeros
from tensorc.graph.passes import optimised

LANES = 8


@dataclass(frozen=True, slots=True)
class NetworkSize:
    """A network of `RECIPES` in one size.

    Attributes:
        recipe: its name there.
        variant: what tells it from the recipe's own widths, such as "1.4".
        batch: images or rows of tokens.
        size: pixels a side, or tokens.
        options: of the configuration. Two layers stand for all, which are alike.
        lanes: channels in a block; those of the vectors of a target.
        larger: whether it is meant to be larger than what is trained on.
        whole: whether all its tasks are wanted, however large.
    """

    recipe: str
    variant: str
    batch: int
    size: int
    options: Mapping[str, Any] = field(default_factory=dict)
    lanes: int = LANES
    larger: bool = False
    whole: bool = False

    @property
    def network(self) -> str:
        return f"{self.recipe}-{self.variant}" if self.variant else self.recipe

    @property
    def name(self) -> str:
        """Such as `bert-base-256@2x128`."""
        blocks = "" if self.lanes == LANES else f"-{self.lanes}lanes"
        return f"{self.network}@{self.batch}x{self.size}{blocks}"

    def graph(self) -> Graph:
        """The graph after all passes; it takes seconds.

        Raises:
            ModuleNotFoundError: torch or transformers is not installed.
        """
        module, example = self._module()
        graph = load(module, (example,)).graph
        graph = graph.replace(constants={value: zeros(value) for value in graph.constants})

        def evaluate(part: Graph) -> Mapping[Any, Any]:
            return {value: zeros(value) for value in part.outputs}

        *_, (_, last) = optimised(graph, evaluate, self.lanes)
        return last

    def _module(self) -> tuple[Any, Any]:
        import torch
        import transformers

        recipe = RECIPES[self.recipe]
        kind = getattr(transformers, recipe.configuration)
        configuration = kind(**{**recipe.options, **self.options})
        with torch.device("meta"):
            module = getattr(transformers, recipe.model)(configuration)
        module = module.to_empty(device="cpu").eval()
        if recipe.images:
            return module, torch.zeros(self.batch, 3, self.size, self.size)
        return module, torch.zeros(self.batch, self.size, dtype=torch.int64)


def _bert(variant: str, batch: int, size: int, width: int = 768, **flags: bool) -> NetworkSize:
    options = {
        "hidden_size": width, "num_attention_heads": width // 64, "intermediate_size": 4 * width,
        "num_hidden_layers": 2,
    }  # fmt: skip
    return NetworkSize("bert-base", variant, batch, size, options, **flags)


def _gpt2(variant: str, batch: int, size: int, width: int = 768, **flags: bool) -> NetworkSize:
    options = {"n_embd": width, "n_head": width // 64, "n_layer": 2}
    return NetworkSize("gpt2", variant, batch, size, options, **flags)


def _llama(variant: str, batch: int, size: int, *widths: int) -> NetworkSize:
    names = ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads",
             "vocab_size")  # fmt: skip
    options = dict(zip(names, widths, strict=False))
    return NetworkSize("llama-7b", variant, batch, size, options)


_HALF = {"embedding_size": 32, "hidden_sizes": [128, 256, 512, 1024]}

NETWORK_SIZES = (
    NetworkSize("resnet50", "", 1, 224),
    NetworkSize("resnet50", "", 4, 128),
    NetworkSize("resnet50", "", 1, 192, lanes=16),
    NetworkSize("resnet50", "half", 2, 160, _HALF),
    NetworkSize("resnet50", "", 8, 224, larger=True),
    NetworkSize("mobilenetv2", "", 1, 224),
    NetworkSize("mobilenetv2", "", 4, 128, lanes=4),
    NetworkSize("mobilenetv2", "0.5", 2, 160, {"depth_multiplier": 0.5}),
    NetworkSize("mobilenetv2", "1.4", 1, 192, {"depth_multiplier": 1.4}),
    NetworkSize("efficientnet-b0", "", 1, 224, whole=True),
    NetworkSize("efficientnet-b0", "", 2, 128, lanes=16),
    _bert("", 1, 128),
    _bert("", 4, 32),
    _bert("256", 2, 128, 256),
    _bert("512", 1, 96, 512),
    _bert("1024", 1, 64, 1024),
    _bert("", 1, 512, larger=True),
    _gpt2("", 1, 128, whole=True),
    _gpt2("", 4, 16),
    _gpt2("1024", 1, 48, 1024),
    _llama("512", 1, 64, 512, 1376, 8, 8, 8000),
    _llama("1024", 1, 32, 1024, 2816, 16, 4, 8000),
    _llama("1024", 1, 1, 1024, 2816, 16, 16, 8000),
    _llama("2048", 1, 24, 2048, 5632, 32, 4, 4000),
    _llama("", 1, 16),
)
