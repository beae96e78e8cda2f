"""A dimension of extent 1 that is broadcast is read at index 0; what `cat`, `slice_scatter` and
`select_scatter` join there was built for every part, and a part that is never read was refused."""

import pytest
import torch

import tensorc as tc


class Joined(torch.nn.Module):
    def forward(self, x):
        return torch.relu(torch.cat([x, x])[:1]) + torch.cat([x, x])


class Scattered(torch.nn.Module):
    def forward(self, x):
        both = torch.cat([x, x])
        return both.slice_scatter(torch.relu(both[:1]), 0, 0, 1)


class Selected(torch.nn.Module):
    def forward(self, x):
        both = torch.cat([x, x])
        return both.select_scatter(torch.relu(both[1]), 0, 1)[1:] + both


@pytest.mark.parametrize("network", [Joined, Scattered, Selected])
@pytest.mark.parametrize("value", [-1.5, 2.0])
def test_it_equals_torch(network, value):
    x = torch.full((1,), value)
    expected = network().eval()(x)
    torch.testing.assert_close(tc.compile(network().eval(), (x,))(x), expected)
