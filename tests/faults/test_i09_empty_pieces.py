"""pytorch #147278, #144836: pieces of no elements divided by zero, or indexed out of bounds."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.faults.networks import in_every_way, network

pytestmark = pytest.mark.torch

X = torch.arange(24.0).reshape(4, 6)
NOTHING = torch.zeros(0, 6)


def joined(*parts: torch.Tensor) -> torch.Tensor:
    return torch.cat([part.reshape(-1) for part in parts])


PIECES: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], torch.Tensor]] = {
    "split with sizes of zero": (lambda x: joined(*x.split([0, 4, 0, 2], 1)), X),
    "split of nothing": (lambda x: joined(*x.split(2)), NOTHING),
    "split by zero of nothing": (lambda x: joined(*x.split(0)), NOTHING),
    "more chunks than rows": (lambda x: joined(*x.chunk(7)), X),
    "chunks from the last dimension": (lambda x: joined(*x.chunk(4, -1)), X),
    "slice behind the end": (lambda x: x[9:], X),
    "slice that ends before it begins": (lambda x: x[3:1] * 2.0, X),
    "slice by steps": (lambda x: x[:, 1::4] + x[:, :2], X),
    "slice from the end": (lambda x: x[-3:-1, -2:], X),
    "steps longer than the extent": (lambda x: x[::9, 5::7], X),
    "negative dimensions": (lambda x: x.sum(-2).unsqueeze(-1).transpose(-1, -2), X),
    "unknown extent of a reshape": (lambda x: x.reshape(3, -1, 2), X),
    "reshape of nothing": (lambda x: x.reshape(6, 0, 3), NOTHING),
    "unknown extent of nothing": (lambda x: x.reshape(2, -1), NOTHING),
    "zero in a reshape beside others": (lambda x: x.reshape(-1, 6), NOTHING),
    "sum of nothing": (lambda x: x.sum(0), NOTHING),
    "mean over nothing": (lambda x: x.mean(0), NOTHING),
    "joined with nothing": (lambda x: torch.cat([x, x[:0], x[4:]], 0), X),
    "padded nothing": (lambda x: torch.nn.functional.pad(x, (1, 1, 2, 0)), NOTHING),
    "unbind of one row": (lambda x: x[:1].unbind(0)[0], X),
    "select from behind": (lambda x: x.select(-1, -6), X),
}


@in_every_way
@pytest.mark.parametrize("name", PIECES)
def test_as_torch(name: str, how: str) -> None:
    function, x = PIECES[name]
    found, expected = network(function, x, how), function(x)
    assert found.shape == expected.shape
    assert torch.equal(found.nan_to_num(7.0), expected.nan_to_num(7.0))
