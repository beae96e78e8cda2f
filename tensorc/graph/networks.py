"""Networks to try: real architectures with random weights that behave like trained ones.

The six of `transformers` have its default configurations, batch 1, images of 224 x 224, 128 tokens.
Default initialisation hides faults: where activations die out or blow up, any network equals any
other. So batch norms get random parameters and the statistics of one forward pass in training mode
on random data, and what follows them last, the head of a network for images, is scaled until its
logits have a standard deviation of 1. `behaviour` tells whether results show what is before them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tensorc.errors import ArgumentError

PIXELS = 224
TOKENS = 128


@dataclass(frozen=True, slots=True)
class Recipe:
    """A network of `transformers`: its classes, what its configuration has other than by default,
    and whether it takes an image or tokens."""

    configuration: str
    model: str
    images: bool
    options: Mapping[str, Any] = field(default_factory=dict)


Made: TypeAlias = tuple[Any, tuple[Any, ...]]

RECIPES: Mapping[str, Recipe] = {
    "resnet50": Recipe("ResNetConfig", "ResNetForImageClassification", True),
    "mobilenetv2": Recipe("MobileNetV2Config", "MobileNetV2ForImageClassification", True),
    "efficientnet-b0": Recipe(
        "EfficientNetConfig", "EfficientNetForImageClassification", True,
        {"image_size": 224, "width_coefficient": 1.0, "depth_coefficient": 1.0, "hidden_dim": 1280},
    ),
    "bert-base": Recipe("BertConfig", "BertForMaskedLM", False),
    "gpt2": Recipe("GPT2Config", "GPT2LMHeadModel", False, {"use_cache": False}),
    "llama-7b": Recipe(
        "LlamaConfig", "LlamaForCausalLM", False, {"use_cache": False, "num_hidden_layers": 2}
    ),
}  # fmt: skip


def network(name: str, seed: int = 0, size: int | None = None, **options: Any) -> Made:
    """A torch module in evaluation mode and example inputs for it.

    Args:
        name: one of `NAMES`.
        seed: of weights and inputs.
        size: pixels a side of the image, or tokens.
        options: of the configuration, such as `num_hidden_layers`, for those of `transformers`.
            LLaMA-7B has 2 of its 32 layers by default, each 0.8 GB.

    Raises:
        ArgumentError: there is no such name or option, or a package is not installed.
    """
    if name not in NAMES:
        raise ArgumentError("network", f"there is no {name!r}; legal here: {', '.join(NAMES)}")
    try:
        import torch
    except ModuleNotFoundError as missing:
        raise ArgumentError("network", "torch is not installed: tensorc[torch]") from missing
    torch.manual_seed(seed)
    if name in RECIPES:
        module, inputs = _of_transformers(RECIPES[name], size, options)
    elif options or size is not None:
        given = ", ".join([*options, *(["size"] if size is not None else [])])
        raise ArgumentError("options", f"{name} has none, got {given}")
    else:
        module, inputs = _OWN[name]()
    _calibrate(module, inputs)
    return module.eval(), inputs


def another_input(inputs: tuple[Any, ...], seed: int = 1) -> tuple[Any, ...]:
    """Other random inputs for the same network; tokens are the same in another order."""
    import torch

    random = torch.Generator().manual_seed(seed)
    return tuple(
        torch.randn(x.shape, generator=random, dtype=x.dtype)
        if x.is_floating_point()
        else x[..., torch.randperm(x.shape[-1], generator=random)]
        for x in inputs
    )


def _of_transformers(recipe: Recipe, size: int | None, options: Mapping[str, Any]) -> Made:
    import torch

    try:
        import transformers
    except ModuleNotFoundError as missing:
        reason = "transformers is not installed: tensorc[torch]"
        raise ArgumentError("network", reason) from missing
    kind = getattr(transformers, recipe.configuration)
    configuration = kind(**{**recipe.options, **options})
    for option in options:
        if not hasattr(kind(), option):
            raise ArgumentError("options", f"{recipe.configuration} has no {option!r}")
    module = getattr(transformers, recipe.model)(configuration)
    if recipe.images:
        pixels = PIXELS if size is None else size
        return module, (torch.randn(1, 3, pixels, pixels),)
    tokens = TOKENS if size is None else size
    return module, (torch.randint(configuration.vocab_size, (1, tokens)),)


def _mlp() -> Made:
    import torch
    from torch import nn

    layers = [nn.Linear(784, 512), nn.GELU(), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 10)]
    return nn.Sequential(*layers), (torch.randn(8, 784),)


def _attention() -> Made:
    import torch
    from torch import nn

    block = nn.TransformerEncoderLayer(256, 4, 1024, activation="gelu", batch_first=True)
    return block, (torch.randn(1, 128, 256),)


_OWN: Mapping[str, Callable[[], Made]] = {"mlp": _mlp, "attention": _attention}
NAMES = (*RECIPES, *_OWN)


def _calibrate(module: Any, inputs: tuple[Any, ...]) -> None:
    """Random scales and shifts for batch norms, statistics of data like the inputs, and a head that
    fits them."""
    import torch
    from torch import nn

    norms = [m for m in module.modules() if isinstance(m, nn.BatchNorm1d | nn.BatchNorm2d)]
    if not norms:
        return
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        nn.init.uniform_(norm.weight, 0.8, 1.2)
        nn.init.normal_(norm.bias, 0.0, 0.1)
        norm.momentum = 1.0
    data = [torch.randn(4, *x.shape[1:]) for x in inputs]
    *_, head = (m for m in module.modules() if isinstance(m, nn.Linear))
    with torch.no_grad():
        module.train()(*data)
        scale = 1.0 / logits(module.eval()(*data)).std()
        head.weight.mul_(scale)
        head.bias.mul_(scale)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum


# How results behave ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Behaviour:
    """The standard deviation of a network's logits for two inputs, and the relative norm of the
    difference between those for the one and those for the other."""

    spread: float
    difference: float

    @property
    def is_telling(self) -> bool:
        """Whether a fault in the network would show in its results."""
        return 0.1 <= self.spread <= 100.0 and self.difference > 1e-2


def behaviour(module: Any, inputs: tuple[Any, ...]) -> Behaviour:
    """How the logits of a network behave, with these inputs and with others."""
    import torch

    with torch.no_grad():
        first, second = (logits(module(*one)) for one in (inputs, another_input(inputs)))
    difference = float((first - second).norm() / first.norm())
    return Behaviour(float(torch.stack((first, second)).std()), difference)


def logits(result: Any) -> Any:
    """The tensor of a result, which may hold it as `logits`."""
    return getattr(result, "logits", result)
