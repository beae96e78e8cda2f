"""Small networks end to end: against torch, interpreted and compiled; and what is refused."""

from __future__ import annotations

import math
import pickle
import sys
import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tensorc.errors import ArgumentError, UnsupportedError
from tensorc.graph.backend import interpreted
from tensorc.graph.compile import compile
from tensorc.graph.unsupported import UnsupportedNetworkError
from tensorc.ir.nodes import Func
from tensorc.ir.walk import replace, rewrite

pytestmark = pytest.mark.torch


class ConvLayer(nn.Module):
    def __init__(self, inputs: int, outputs: int, kernel: int = 1, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
        self.norm = nn.BatchNorm2d(outputs)

    def forward(self, x):
        return self.norm(self.conv(x))


class Bottleneck(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        same = inputs == outputs
        self.shortcut = nn.Identity() if same else ConvLayer(inputs, outputs, 1, stride)
        self.reduce = ConvLayer(inputs, outputs // 2)
        self.window = ConvLayer(outputs // 2, outputs // 2, 3, stride)
        self.grow = ConvLayer(outputs // 2, outputs)

    def forward(self, x):
        y = self.window(self.reduce(x).relu()).relu()
        return (self.grow(y) + self.shortcut(x)).relu()


class TinyResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = ConvLayer(3, 4, 7, 2)
        self.blocks = nn.Sequential(Bottleneck(4, 8, 2), Bottleneck(8, 8, 1))
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        y = F.max_pool2d(self.stem(x).relu(), 3, 2, 1)
        return self.head(self.blocks(y).mean((-1, -2)))


class Attention(nn.Module):
    def __init__(self, width: int = 16, heads: int = 2, causal: bool = True) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, d = x.shape
        qkv = self.qkv(self.norm(x)).view(b, t, 3, self.heads, d // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Perceptron(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(7, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 9), nn.Tanh(),
            nn.Linear(9, 3), nn.Softmax(-1),
        )  # fmt: skip

    def forward(self, x):
        return self.layers(x)


class Gated(nn.Module):
    """Depthwise windows, squeeze and excitation, hard activations, padding on one side."""

    def __init__(self) -> None:
        super().__init__()
        self.expand = ConvLayer(3, 6)
        self.depthwise = nn.Conv2d(6, 6, 3, 2, groups=6, bias=True)
        self.norm = nn.BatchNorm2d(6)
        self.squeeze, self.excite = nn.Conv2d(6, 2, 1), nn.Conv2d(2, 6, 1)

    def forward(self, x):
        y = F.relu6(self.expand(x))
        y = F.silu(self.norm(self.depthwise(F.pad(y, (0, 1, 0, 1)))))
        gate = F.adaptive_avg_pool2d(y, 1)
        return y * self.excite(F.silu(self.squeeze(gate))).sigmoid()


class RootMeanSquare(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(6) + 0.5)

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


class Embedded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(11, 6)
        self.places = nn.Embedding(5, 6)

    def forward(self, tokens):
        return self.words(tokens) + self.places(torch.arange(tokens.shape[1]))


def randomised(module: nn.Module) -> nn.Module:
    """Evaluation mode, with batch norms that would show if they were left out."""
    torch.manual_seed(0)
    for norm in module.modules():
        if isinstance(norm, nn.BatchNorm1d | nn.BatchNorm2d):
            for tensor in (norm.weight, norm.bias, norm.running_mean, norm.running_var):
                tensor.data.uniform_(0.5, 1.5)
    return module.eval()


NETWORKS = {
    "resnet": (TinyResNet, (1, 3, 16, 16), 11),
    "attention": (Attention, (1, 5, 16), 7),
    "attention without mask": (lambda: Attention(causal=False), (2, 3, 16), 9),
    "perceptron": (Perceptron, (4, 7), 4),
    "gated": (Gated, (1, 3, 7, 7), 6),
    "root mean square": (RootMeanSquare, (4, 6), 1),
}


def made(name: str) -> tuple[nn.Module, torch.Tensor]:
    make, shape, _ = NETWORKS[name]
    module = randomised(make())
    return module, torch.randn(shape)


def assert_close(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("way", ["interpreted", "none", "default"])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_equals_torch(name, way):
    module, x = made(name)
    options = {"backend": interpreted} if way == "interpreted" else {"scheduler": way}
    network = compile(module, (x,), **options)
    with torch.no_grad():
        assert_close(network(x), module(x))
        other = torch.randn_like(x)
        assert_close(network(other), module(other))


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_is_so_many_tasks(name):
    module, x = made(name)
    assert len(compile(module, (x,), backend=interpreted).partition.calls) == NETWORKS[name][2]


def test_a_residual_network_is_fused_into_its_convolutions():
    module, x = made("resnet")
    network = compile(module, (x,), backend=interpreted)
    assert [call.label for call in network.partition.calls] == [
        "convolution + relu",
        "max_pool2d_with_indices",
        "convolution + relu",
        "convolution + relu",
        "convolution",
        "convolution + add + relu",
        "convolution + relu",
        "convolution + relu",
        "convolution + add + relu",
        "mean",
        "addmm",
    ]


def test_equal_blocks_are_one_task():
    torch.manual_seed(0)
    module = randomised(nn.Sequential(Bottleneck(4, 4, 1), Bottleneck(4, 4, 1)))
    network = compile(module, (torch.randn(1, 4, 6, 6),), backend=interpreted)
    assert [task.count for task in network.tasks] == [2, 2, 2]
    assert network.tasks[0].places == ("0", "1")


def test_weights_are_constant_parameters():
    module, x = made("resnet")
    network = compile(module, (x,), backend=interpreted)
    func = network.tasks[0].func
    assert [(p.name, p.mode) for p in func.params] == [
        ("X0", "in"), ("W0", "const"), ("W1", "const"), ("Y", "out"),
    ]  # fmt: skip


def test_work_is_counted():
    network = compile(nn.Linear(7, 3).eval(), (torch.randn(5, 7),), backend=interpreted)
    (task,) = network.tasks
    assert task.flops == 5 * 3 * (2 * 7 + 1)
    assert task.bytes == 4 * (5 * 7 + 3 * 7 + 3 + 5 * 3)


# Calls -------------------------------------------------------------------------------------------


class Structured(nn.Module):
    def forward(self, x, scale=None, *, shift):
        y = x * 2 if scale is None else x * scale
        return {"sum": y + shift, "input": x, "pair": (y, y.flatten()), "nothing": None}


def test_a_call_has_the_structure_of_the_module():
    module, x, scale, shift = Structured().eval(), *torch.randn(3, 2, 3)
    network = compile(module, (x, scale), example_keywords={"shift": shift}, backend=interpreted)
    result, expected = network(x, scale, shift=shift), module(x, scale, shift=shift)
    assert list(result) == list(expected)
    assert result["nothing"] is None
    torch.testing.assert_close(result, expected)
    # What torch gives as views of one tensor are tensors of their own here.
    result["pair"][0].zero_()
    torch.testing.assert_close(result["pair"][1], expected["pair"][1])
    assert result["input"].data_ptr() != x.data_ptr()


def test_arrays_of_numpy_give_arrays_of_numpy():
    module, x = made("perceptron")
    result = compile(module, (x,), backend=interpreted)(x.numpy())
    assert isinstance(result, np.ndarray)
    with torch.no_grad():
        assert_close(torch.from_numpy(result), module(x))


def test_an_input_that_is_not_compact_is_copied():
    module, x = made("resnet")
    network = compile(module, (x,), scheduler="none")
    turned = x.contiguous(memory_format=torch.channels_last)
    wide = torch.stack([x, x], -1)[..., 0]
    with torch.no_grad():
        assert_close(network(turned), module(x))
        assert_close(network(wide), module(x))
        assert_close(torch.from_numpy(network(wide.numpy())), module(x))


@pytest.mark.parametrize(
    ("arguments", "keywords", "message"),
    [
        ((torch.zeros(4, 8),), {}, r"`x`: compiled for x: f32\[4, 7\], got float32\[4, 8\]"),
        ((torch.zeros(4, 7, dtype=torch.float64),), {}, r"`x`: .* got float64\[4, 7\]"),
        ((np.zeros((4, 7)),), {}, r"`x`: .* got float64\[4, 7\]"),
        (([[1.0] * 7] * 4,), {}, r"`arguments\[0\]`: a list is no array"),
        ((), {}, r"exported for 1 positional tensors"),
        ((torch.zeros(4, 7),) * 2, {}, r"exported for 1 positional tensors"),
        ((torch.zeros(4, 7),), {"y": torch.zeros(1)}, r"got .* keywords \['y'\]"),
        ((3.0,), {}, r"`x`: .* got a float"),
        ((None,), {}, r"`x`: .* got a NoneType"),
    ],
)
def test_a_call_that_does_not_fit_is_refused(arguments, keywords, message):
    module, x = made("perceptron")
    network = compile(module, (x,), backend=interpreted)
    with pytest.raises(ArgumentError, match=message):
        network(*arguments, **keywords)


class Optional(torch.nn.Module):
    def forward(self, x, scale=None, y=None):
        return x if y is None else x + y


def test_arguments_go_by_position_or_by_name_as_in_the_module():
    x, y = torch.arange(3.0), torch.ones(3)
    module = Optional().eval()
    calls = [((x, None, y), {}), ((x,), {"y": y}), ((), {"y": y, "x": x})]
    for examples, named in calls:
        network = compile(module, examples, example_keywords=named, backend=interpreted)
        for arguments, keywords in calls:
            torch.testing.assert_close(network(*arguments, **keywords), x + y)
        with pytest.raises(ArgumentError):
            network(x)
        with pytest.raises(ArgumentError, match=r"`y`: .* got a float"):
            network(x, y=3.0)


def test_results_of_two_calls_do_not_share_memory():
    module, x = made("perceptron")
    network = compile(module, (x,), backend=interpreted)
    first = network(x)
    kept = first.clone()
    network(x + 1)
    torch.testing.assert_close(first, kept)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_floats(dtype):
    module, x = made("attention")
    module, x = module.to(dtype), x.to(dtype)
    tolerance = 4 * torch.finfo(dtype).eps ** 0.5 if dtype is torch.float64 else 0.1
    with torch.no_grad():
        torch.testing.assert_close(
            compile(module, (x,), backend=interpreted)(x), module(x), rtol=0, atol=tolerance
        )


def test_results_of_bf16_have_its_dtype_in_numpy():
    class Shorter(nn.Module):
        def forward(self, x):
            return x.bfloat16(), x + 1

    x = np.array([1.0, 2.5], np.float32)
    network = compile(Shorter().eval(), (torch.from_numpy(x),), backend=interpreted)
    short, sums = network(x)
    assert (short.dtype.name, sums.dtype.name) == ("bfloat16", "float32")
    assert short.astype(np.float32).tolist() == [1.0, 2.5]
    assert network(torch.from_numpy(x))[0].dtype is torch.bfloat16


def test_tokens_outside_of_the_vocabulary_touch_nothing():
    module = Embedded().eval()
    tokens = torch.tensor([[3, 10, 0, 1, 2]])
    network = compile(module, (tokens,), scheduler="none")
    with torch.no_grad():
        assert_close(network(tokens), module(tokens))
    assert network(tokens + (1 << 40)).isfinite().all()
    assert network(-tokens - 5).isfinite().all()


# Reports -----------------------------------------------------------------------------------------


def test_a_comparison_names_the_first_layer_that_is_off():
    module, x = made("perceptron")

    def wrong(func: Func) -> Func:
        def change(node):
            return replace(node, op="sigmoid") if getattr(node, "op", "") == "tanh" else None

        return rewrite(func, change)

    good = compile(module, (x,), scheduler="none").compare(module, x)
    assert good.first_off is None
    assert good.error < 1e-5
    assert "all within" in str(good)
    bad = compile(module, (x,), scheduler=wrong).compare(module, x)
    assert bad.first_off.where == "layers.4"
    assert bad.first_off.label == "addmm + tanh"
    assert "the first that is off" in str(bad)


def test_a_profile_has_every_task_against_its_roofline():
    module, x = made("attention")
    network = compile(module, (x,), scheduler="none")
    profile = network.profile(x, runs=3, peak_flops=1e10, bandwidth=1e10)
    assert {row.task for row in profile.tasks} == set(network.tasks)
    assert profile.runs == 3
    assert all(0 < row.best <= row.median for row in profile.tasks)
    assert all(row.share_of_roofline > 0 for row in profile.tasks)
    assert profile.best >= max(row.best for row in profile.tasks)
    assert "% roof: of what 10 GFLOP/s and 10.0 GB/s allow" in str(profile)
    slow = network.profile(x, runs=1, bandwidth=1.0)
    assert max(row.share_of_roofline for row in slow.tasks) > 1
    assert "over 100: the data came from a cache" in str(slow)
    assert "over 100" not in str(network.profile(x, runs=1, bandwidth=1e30))
    assert "% roof:" not in str(network.profile(x, runs=1))
    assert network.profile(x, runs=1).tasks[0].share_of_roofline is None
    with pytest.raises(ArgumentError, match="runs"):
        network.profile(x, runs=0)


def test_a_report_lists_the_tasks():
    module, x = made("perceptron")
    lines = compile(module, (x,), backend=interpreted).report().splitlines()
    assert lines[0].split() == ["calls", "FLOP", "bytes", "operators", "parameters"]
    assert len(lines) == 2 + 4 + 1
    assert lines[-1].startswith("4 tasks, 4 calls")


# What is refused ---------------------------------------------------------------------------------


class Several(nn.Module):
    """Two operators that we do not have, one of them in two modules."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = Gamma(), Gamma()

    def forward(self, x):
        y = self.two(self.one(x))
        return torch.mm(y, y).mean() + torch.fft.fft(x).real.sum()


class Gamma(nn.Module):
    def forward(self, x):
        return torch.igamma(x.abs(), x.abs())


def test_all_that_is_unsupported_is_listed_at_once():
    with pytest.raises(UnsupportedNetworkError) as caught:
        compile(Several().eval(), (torch.randn(3, 3),))
    error = caught.value
    assert isinstance(error, UnsupportedError)
    found = {problem.what: problem for problem in error.problems}
    assert {"igamma.default", "_fft_r2c.default"} <= set(found)
    assert found["igamma.default"].places == (("one", 1), ("two", 1))
    assert "igamma.default: no such operator (2 times, in one, two)" in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert again.problems == error.problems
    assert str(again) == str(error)


def test_products_and_means_are_supported():
    class Covered(nn.Module):
        def forward(self, x):
            return torch.mm(x, x).mean()

    x = torch.randn(3, 3)
    assert_close(compile(Covered().eval(), (x,), backend=interpreted)(x), Covered()(x))


def test_dynamic_shapes_are_named():
    class Doubled(nn.Module):
        def forward(self, tokens):
            return tokens * 2

    batch = torch.export.Dim("batch", min=2)
    program = torch.export.export(
        Doubled(), (torch.randn(4, 3),), dynamic_shapes={"tokens": {0: batch}}
    )
    with pytest.raises(UnsupportedNetworkError, match="dimension 0 of input `tokens`: it is dyn"):
        compile(program)


def test_shapes_and_branches_that_depend_on_data_are_named():
    class Nonzero(nn.Module):
        def forward(self, x):
            return x.nonzero()

    class Branch(nn.Module):
        def forward(self, x):
            return x * 2 if x.sum() > 0 else x

    with pytest.raises(UnsupportedNetworkError, match=r"nonzero\.default"):
        compile(Nonzero().eval(), (torch.randn(4),))
    with pytest.raises(UnsupportedNetworkError, match="control flow that depends on data"):
        compile(Branch().eval(), (torch.randn(4),))


def test_a_network_in_training_mode_is_refused():
    with pytest.raises(ArgumentError, match=r"call module.eval\(\)"):
        compile(nn.Linear(2, 2), (torch.randn(1, 2),))


def test_a_network_that_changes_its_buffers_is_refused():
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(1))

        def forward(self, x):
            self.count += 1
            return x * self.count

    with pytest.raises(UnsupportedNetworkError, match="changes its inputs or buffers"):
        compile(Counter().eval(), (torch.randn(3),))


@pytest.mark.parametrize("network", [3, None, torch.randn, "no such file.pt2"])
def test_what_is_no_network_is_refused(network):
    with pytest.raises(ArgumentError, match="`network`"):
        compile(network, (torch.randn(1),))


def test_a_module_without_example_inputs_is_refused():
    with pytest.raises(ArgumentError, match="example_inputs"):
        compile(nn.Linear(2, 2).eval())


@pytest.mark.parametrize("scheduler", ["best", 3])
def test_an_unknown_scheduler_is_refused(scheduler):
    with pytest.raises(ArgumentError, match="`scheduler`"):
        compile(nn.Linear(2, 2).eval(), (torch.randn(1, 2),), scheduler=scheduler)
    with pytest.raises(ArgumentError, match="`scheduler`"):
        compile(nn.Linear(2, 2).eval(), (torch.randn(1, 2),), scheduler=lambda func: "nothing")


# Files -------------------------------------------------------------------------------------------


def test_a_saved_program(tmp_path):
    module, x = made("perceptron")
    path = tmp_path / "network.pt2"
    torch.export.save(torch.export.export(module, (x,)), path)
    with torch.no_grad():
        assert_close(compile(path, backend=interpreted)(x), module(x))
        assert_close(compile(str(path), backend=interpreted)(x), module(x))


def test_files_that_are_no_programs(tmp_path):
    module, x = made("perceptron")
    whole = tmp_path / "network.pt2"
    torch.export.save(torch.export.export(module, (x,)), whole)
    data = whole.read_bytes()
    weights = tmp_path / "weights.pt"
    torch.save(module.state_dict(), weights)
    for name, content in {
        "empty": b"", "text": b"no network", "cut": data[: len(data) // 2],
        "weights": weights.read_bytes(),
    }.items():  # fmt: skip
        path = tmp_path / f"{name}.pt2"
        path.write_bytes(content)
        with pytest.raises(ArgumentError, match=r"\.pt2 file"):
            compile(path)


# Faults that importers have had -------------------------------------------------------------------


def test_a_view_of_a_permuted_attention():
    """Fault I5: the result of attention, permuted and then reshaped."""

    class Viewed(nn.Module):
        def forward(self, q, k, v):
            y = F.scaled_dot_product_attention(q, k, v)
            return y.permute(2, 0, 1, 3).reshape(5, -1), y.permute(0, 2, 3, 1).flatten(1)

    inputs = tuple(torch.randn(3, 1, 4, 5, 8))
    network = compile(Viewed().eval(), inputs, backend=interpreted)
    for ours, theirs in zip(network(*inputs), Viewed()(*inputs), strict=True):
        assert_close(ours, theirs)


class EdgeShapes(nn.Module):
    """Fault I9: empty pieces, negative dimensions, steps, and -1 in shapes."""

    def forward(self, x):
        a, b, c = x.split([2, 0, 4], -1)
        return (
            a.relu(), b * 2, c[:, 1:1] + 1, x[..., -1:0], x[:, ::3] * 2, x[:, -4:-1].reshape(-1, 3),
            x[:0].reshape(0, 3, 2) + 1, *x.chunk(4, 1), x.narrow(-1, 6, 0).sum(-1),
            torch.cat([b, x], -1), x[:0].mean(0), x.unsqueeze(-3).squeeze(0),
        )  # fmt: skip


def test_edge_shapes():
    x = torch.randn(4, 6)
    network = compile(EdgeShapes().eval(), (x,), backend=interpreted)
    for ours, theirs in zip(network(x), EdgeShapes()(x), strict=True):
        torch.testing.assert_close(ours, theirs, equal_nan=True)


def test_an_empty_input_runs_compiled():
    class Empty(nn.Module):
        def forward(self, x):
            return (x @ x.T).softmax(-1).sum(0) + 1, (x.T @ x).relu()

    x = torch.randn(0, 3)
    network = compile(Empty().eval(), (x,))
    for ours, theirs in zip(network(x), Empty()(x), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_nan_and_infinity_pass_through():
    class Special(nn.Module):
        def forward(self, x):
            return x.relu(), x.clamp(-1, 1), x.amax(-1), x.softmax(-1), x.sigmoid(), x.tanh()

    x = torch.tensor([[math.nan, 1.0, -1.0], [math.inf, -math.inf, 0.0], [1e10, -1e10, 88.0]])
    network = compile(Special().eval(), (x,))
    for ours, theirs in zip(network(x), Special()(x), strict=True):
        torch.testing.assert_close(ours, theirs, equal_nan=True, rtol=1e-5, atol=1e-6)


def test_a_network_tells_what_it_is():
    module, x = made("perceptron")
    network = compile(module, (x,), backend=interpreted)
    flops = sum(task.count * task.flops for task in network.tasks)
    ((given, got),) = zip(network.graph.inputs, network.graph.outputs, strict=True)
    assert repr(network) == (
        f"<CompiledNetwork ({given}) -> ({got}): 4 tasks, {len(network.partition.calls)} calls,"
        f" {flops} FLOP, {network.arena_bytes} bytes for intermediate values>"
    )


class Branch(nn.Module):
    def forward(self, x):
        return x + 1 if x.sum() > 0 else x - 1


class Chosen(nn.Module):
    """Its shape depends on data, so that torch has to decompose it: with what it deprecates."""

    def forward(self, x):
        return x[x > 0]


class Talking(nn.Module):
    def forward(self, x):
        print("a module's own words", file=sys.stderr)
        return x + 1


def test_torch_is_quiet(capfd):
    x = torch.ones(2, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for module in (Branch(), Chosen()):
            with pytest.raises(UnsupportedNetworkError, match="depends on data"):
                compile(module.eval(), (x,))
        assert "def forward" not in capfd.readouterr().err
        compile(Talking().eval(), (x,), backend=interpreted)
    told = capfd.readouterr()
    assert "a module's own words" in told.err
