"""Which tasks are for training, for development and for the test.

The rule is fixed, so that a task keeps its place when the set is made anew. What a program looks
like decides, never its name: a program of a network in the test set is in the test set, whatever
other network has it too.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, TypeAlias, get_args

Split: TypeAlias = Literal["training", "development", "test"]
Held: TypeAlias = Literal["", "network", "family", "extents"]
SPLITS: tuple[Split, ...] = get_args(Split)

HELD_NETWORKS: dict[str, Split] = {
    "efficientnet-b0": "test",
    "gpt2": "test",
    "mobilenetv2-1.4": "development",
}
"""Networks of which no task is trained on, in any size."""

HELD_FAMILIES: dict[str, Split] = {
    "transposed convolution": "test",
    "dilated convolution": "test",
    "layer norm": "test",
    "grouped convolution": "development",
}
"""Families of which no task is trained on, whatever network it comes from."""

TRAINING_FLOPS = 1_000_000_000
"""A task of more operations is for the test: larger than any that is trained on."""

ONE_IN = 10
"""Of the tasks that nothing holds out, one in so many is for development."""


def split_of(
    structure: str, family: str, networks: Collection[str], beyond: bool
) -> tuple[Split, Held]:
    """The part of the set that a task belongs to, and what holds it out of training.

    Args:
        structure: its hash, see `structure.structure`.
        family: see `HELD_FAMILIES`.
        networks: the names of all networks that have it.
        beyond: whether it was made to be larger than what is trained on.
    """
    by_network = {HELD_NETWORKS[name] for name in networks if name in HELD_NETWORKS}
    if "test" in by_network:
        return "test", "network"
    if HELD_FAMILIES.get(family) == "test":
        return "test", "family"
    if beyond:
        return "test", "extents"
    if by_network:
        return "development", "network"
    if family in HELD_FAMILIES:
        return "development", "family"
    drawn = int(structure[:8], 16) % ONE_IN == 0
    return ("development" if drawn else "training"), ""
