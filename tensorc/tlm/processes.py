"""One training in several processes: each reads its part of every batch, the gradients are shared.

What is learned is that of one process with the same batch, up to rounding: losses are means by
weight, so that each process counts by what its part weighs (DistributedDataParallel; Li et al.,
VLDB 2020).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed

from tensorc.tlm.model import Model

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Processes:
    """Which process this is, from 0 on, and how many there are."""

    rank: int = 0
    count: int = 1

    @property
    def first(self) -> bool:
        """Whether this is the process that writes files and talks to people."""
        return self.rank == 0

    def part(self, items: Sequence[Item]) -> Sequence[Item]:
        """What this process has to do of all."""
        return items[self.rank :: self.count]

    def reading(self, model: Model) -> Any:
        """The model as it is called in training: who goes backwards shares the gradients."""
        if self.count == 1:
            return model
        return torch.nn.parallel.DistributedDataParallel(model)

    def total(self, values: Tensor) -> Tensor:
        """The sums of values over all processes."""
        if self.count > 1:
            values = values.clone()
            distributed.all_reduce(values)
        return values


ALONE = Processes()


@contextmanager
def joined(device: str) -> Iterator[Processes]:
    """The processes that torchrun has started; this one alone where it has not."""
    if not distributed.is_torchelastic_launched():
        yield ALONE
        return
    distributed.init_process_group("nccl" if device.startswith("cuda") else "gloo")
    try:
        yield Processes(distributed.get_rank(), distributed.get_world_size())
        # Who leaves while another one still reads from it ends that one, too.
        distributed.barrier()
    finally:
        distributed.destroy_process_group()


def device_of(device: str, processes: Processes) -> str:
    """The device of this process: of several each has its own GPU."""
    if device != "cuda" or processes.count == 1:
        return device
    return f"cuda:{distributed.get_node_local_rank()}"
