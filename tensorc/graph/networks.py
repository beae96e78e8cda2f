"""Networks to try: real architectures with random weights that behave like trained ones.

Default initialisation hides faults, so batch norms get random parameters and the statistics of one
forward pass in training mode.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tensorc.errors import ArgumentError


def network(name: str, seed: int = 0) -> tuple[Any, tuple[Any, ...]]:
    """A torch module in evaluation mode and example inputs for it.

    Raises ArgumentError for an unknown name, and for a package that is not installed.
    """
    if name not in NETWORKS:
        raise ArgumentError("network", f"there is no {name!r}; legal here: {', '.join(NETWORKS)}")
    try:
        import torch
    except ModuleNotFoundError as missing:
        raise ArgumentError("network", "torch is not installed: tensorc[torch]") from missing
    torch.manual_seed(seed)
    module, inputs = NETWORKS[name]()
    _calibrate(module, inputs)
    return module.eval(), inputs


def _resnet50() -> tuple[Any, tuple[Any, ...]]:
    import torch
    from transformers import ResNetConfig, ResNetForImageClassification

    return ResNetForImageClassification(ResNetConfig()), (torch.randn(1, 3, 224, 224),)


def _mlp() -> tuple[Any, tuple[Any, ...]]:
    import torch
    from torch import nn

    layers = [nn.Linear(784, 512), nn.GELU(), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 10)]
    return nn.Sequential(*layers), (torch.randn(8, 784),)


def _attention() -> tuple[Any, tuple[Any, ...]]:
    import torch
    from torch import nn

    block = nn.TransformerEncoderLayer(256, 4, 1024, activation="gelu", batch_first=True)
    return block, (torch.randn(1, 128, 256),)


def _calibrate(module: Any, inputs: tuple[Any, ...]) -> None:
    """Random scales and shifts for batch norms, and statistics of data like the inputs."""
    import torch
    from torch import nn

    norms = [m for m in module.modules() if isinstance(m, nn.BatchNorm1d | nn.BatchNorm2d)]
    if not norms:
        return
    for norm in norms:
        nn.init.uniform_(norm.weight, 0.8, 1.2)
        nn.init.normal_(norm.bias, 0.0, 0.1)
        norm.momentum = 1.0
    module.train()
    with torch.no_grad():
        module(*(torch.randn(4, *x.shape[1:]) for x in inputs))


NETWORKS: Mapping[str, Callable[[], tuple[Any, tuple[Any, ...]]]] = {
    "resnet50": _resnet50,
    "mlp": _mlp,
    "attention": _attention,
}
