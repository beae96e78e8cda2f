"""`torch.compile` with our backend: equal to eager, or run by torch and said so."""

from __future__ import annotations

import copy
import gc
import warnings
import weakref
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._dynamo.exc import BackendCompilerFailed

import tensorc as tc
from tensorc.errors import CompileError
from tensorc.graph import dynamo_part
from tensorc.graph.compile import CompiledNetwork
from tensorc.graph.dynamo import EagerFallbackWarning, backend
from tensorc.graph.dynamo_split import shortened

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:.*:DeprecationWarning:torch.*"),
]


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)


@pytest.fixture
def networks(monkeypatch):
    """What is compiled from here on."""
    made: list[CompiledNetwork] = []

    def compile_network(*arguments):
        made.append(original(*arguments))
        return made[-1]

    original = dynamo_part.compile_network
    monkeypatch.setattr(dynamo_part, "compile_network", compile_network)
    return made


class ConvNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4)
        self.head = nn.Linear(4, 5)
        for tensor in (self.norm.weight, self.norm.bias, *self.norm.buffers()):
            if tensor.is_floating_point():
                tensor.data.uniform_(0.5, 1.5)

    def forward(self, x):
        return self.head(F.max_pool2d(self.norm(self.conv(x)).relu(), 2).mean((-1, -2)))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(8), nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).view(1, 5, 3, 2, 4).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(y.transpose(1, 2).reshape(x.shape))


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(7, 12), nn.ReLU(), nn.Linear(12, 3))


NETWORKS = {
    "mlp": (mlp, (4, 7)),
    "conv": (ConvNet, (1, 3, 6, 6)),
    "attention": (Attention, (1, 5, 8)),
}


def compiled(module, **options):
    """With plain nests, which take least to compile."""
    return torch.compile(module, backend=backend, options={"scheduler": "none"} | options)


def assert_equal_to_eager(function, *arguments, runs=2, **keywords):
    """Results, what becomes of the arguments, strides and shared memory, in several calls."""
    fast = compiled(function, **keywords)
    for _ in range(runs):
        own, theirs = copy.deepcopy(arguments), copy.deepcopy(arguments)
        with torch.no_grad():
            found, wanted = fast(*own), function(*theirs)
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(own, theirs)
        assert _memory(found, own) == _memory(wanted, theirs)
    return fast


def _memory(results, arguments):
    """For each result its strides, and which of the tensors before it shares its memory."""
    seen = [one.untyped_storage().data_ptr() for one in _tensors(arguments)]
    found = []
    for one in _tensors(results):
        place = one.untyped_storage().data_ptr()
        first = seen.index(place) if place in seen else None
        found.append((one.stride(), one.storage_offset(), first))
        seen.append(place)
    return found


def _tensors(tree):
    return [one for one in torch.utils._pytree.tree_leaves(tree) if isinstance(one, torch.Tensor)]


# Networks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_equals_eager(name):
    make, shape = NETWORKS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error", EagerFallbackWarning)
        assert_equal_to_eager(make().eval(), torch.randn(shape))


def test_the_backend_has_a_name_and_shares_the_cache_of_compile(tmp_path: Path):
    def entries():
        return sorted(path.name for path in tmp_path.rglob("*") if path.is_file())

    for name, (make, shape) in NETWORKS.items():
        module, x = make().eval(), torch.randn(shape)
        with torch.no_grad(), tc.config.scope(cache_dir=tmp_path):
            expected = tc.compile(module, (x,))(x)
            there = entries()
            torch.testing.assert_close(torch.compile(module, backend="tensorc")(x), expected)
            assert entries() == there, name


def test_weights_are_folded_and_tasks_know_their_modules(networks):
    assert_equal_to_eager(ConvNet().eval(), torch.randn(1, 3, 6, 6))
    (network,) = networks
    assert [(task.label, task.places) for task in network.tasks] == [
        ("convolution + relu", ("",)), ("max_pool2d_with_indices", ("",)), ("mean", ("",)),
        ("addmm", ("head",)),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("L['self']", ""),
        ("L['fn'].0", "0"),
        ("G['model'].layers.0", "layers.0"),
        ("L['self'].layers.0.norm", "layers.0.norm"),
        ("L['self']._modules['layers']._modules['0'].norm", "layers.0.norm"),
        ("layers.0", "layers.0"),
    ],
)
def test_paths_are_those_of_the_owner(path, name):
    assert shortened(path) == name


# Weights that change -----------------------------------------------------------------------------


def _in_place(module):
    with torch.no_grad():
        module.head.weight.mul_(2.0)


def _one_element(module):
    with torch.no_grad():
        module.conv.weight[1, 2, 0, 1] += 1.0


def _statistics(module):
    module.norm.running_mean.add_(1.0)


def _data(module):
    for weight in module.parameters():
        weight.data.mul_(0.5)


def _other_memory(module):
    module.conv.weight.data = torch.randn_like(module.conv.weight)


def _other_parameter(module):
    module.head.bias = nn.Parameter(torch.randn(5))


def _loaded(module):
    module.load_state_dict({name: one + 1 for name, one in ConvNet().state_dict().items()})


def _step(module):
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    for weight in module.parameters():
        weight.grad = torch.ones_like(weight)
    optimizer.step()


CHANGES = [
    _in_place, _one_element, _statistics, _data, _other_memory, _other_parameter, _loaded, _step,
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_results_are_those_of_the_current_weights(change, networks):
    module, x = ConvNet().eval(), torch.randn(1, 3, 6, 6)
    fast = assert_equal_to_eager(module, x)
    before = module(x)
    change(module)
    with torch.no_grad():
        torch.testing.assert_close(fast(x), module(x), rtol=1e-4, atol=1e-5)
        assert not torch.allclose(fast(x), before)
    assert len(networks) == 2


def test_a_weight_that_keeps_changing_becomes_an_input(networks):
    module, x = mlp().eval(), torch.randn(4, 7)
    fast = compiled(module)
    with torch.no_grad():
        for _ in range(6):
            torch.testing.assert_close(fast(x), module(x))
            module[0].weight.add_(0.1)
    assert [len(network.graph.inputs) for network in networks] == [1, 1, 2]
    assert len(networks[-1].graph.constants) > 0


def test_modules_that_share_their_code_keep_their_own_weights(networks):
    x = torch.randn(4, 7)
    modules = [mlp().eval() for _ in range(3)]
    layers = [compiled(module) for module in modules]
    with torch.no_grad():
        for _ in range(2):
            for module, layer in zip(modules, layers, strict=True):
                torch.testing.assert_close(layer(x), module(x))
    assert len(networks) == 3


def test_weights_that_are_new_in_every_call_become_inputs(networks, monkeypatch):
    monkeypatch.setattr(dynamo_part, "MOST_VARIANTS", 3)
    module, x = mlp().eval(), torch.randn(4, 7)
    fast = compiled(module)
    with torch.no_grad():
        for _ in range(6):
            module[2].bias = nn.Parameter(torch.randn(3))
            torch.testing.assert_close(fast(x), module(x))
    assert [len(network.graph.inputs) for network in networks] == [1, 1, 1, 5]


def test_weights_are_let_go(networks):
    x, modules = torch.randn(4, 7), [mlp().eval(), mlp().eval()]
    held = weakref.ref(modules[0][0].weight)
    with torch.no_grad():
        for module in modules:
            compiled(module)(x)
    networks.clear()
    del module, modules[0]
    torch._dynamo.reset()
    gc.collect()
    assert held() is None


# What torch runs ---------------------------------------------------------------------------------


@torch.library.custom_op("tensorc_tests::odd", mutates_args=())
def odd(x: torch.Tensor) -> torch.Tensor:
    return torch.igamma(x.abs() + 1, x.abs())


@odd.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


class Odd(nn.Module):
    def forward(self, x):
        return odd(x)


class Mixed(nn.Module):
    """Two operators that we do not have between layers that we do."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.odd, self.last = nn.Linear(6, 6), Odd(), nn.Linear(6, 6)

    def forward(self, x):
        y = self.odd(self.first(x).relu())
        return self.last(torch.fft.fft(y).real.contiguous()) + y


def test_what_is_not_known_runs_in_torch_between_compiled_parts(networks):
    with pytest.warns(EagerFallbackWarning) as caught:
        assert_equal_to_eager(Mixed().eval(), torch.randn(3, 6))
    (warning,) = [one.message for one in caught if one.category is EagerFallbackWarning]
    found = {problem.what: problem for problem in warning.problems}
    name = "tensorc_tests.odd.default"
    assert found[name].places == (("odd", 1),)
    assert found[name].reason == "no such operator"
    assert "_fft_r2c.default" in found
    assert f"runs in torch, not in tensorc:\n  {name}: no such operator (once" in str(warning)
    assert ["addmm + relu" in [t.label for t in n.tasks] for n in networks] == [True, False]


def test_what_takes_a_complex_number_runs_in_torch(networks):
    def function(x):
        return torch.fft.fft(first(x)).abs() @ x.T

    first = nn.Linear(6, 6).requires_grad_(False)
    with pytest.warns(EagerFallbackWarning, match="it takes what cannot be imported") as caught:
        assert_equal_to_eager(function, torch.randn(3, 6))
    assert len([one for one in caught if one.category is EagerFallbackWarning]) == 1
    assert [[task.label for task in n.tasks] for n in networks] == [["addmm"], ["mm"]]


def test_a_part_that_is_too_small_runs_in_torch(networks):
    def function(x):
        return odd(odd(x) * 2.0)

    with pytest.warns(EagerFallbackWarning, match="mul.Tensor: too little to be worth a call"):
        assert_equal_to_eager(function, torch.randn(3, 4))
    assert not networks


def test_gradients_are_those_of_eager(networks):
    module, x = mlp().eval(), torch.randn(4, 7)
    with pytest.warns(EagerFallbackWarning, match=r"call it under torch.no_grad\(\)"):
        result = compiled(module)(x)
    result.sum().backward()
    found = [weight.grad.clone() for weight in module.parameters()]
    module.zero_grad()
    module(x).sum().backward()
    torch.testing.assert_close(found, [weight.grad for weight in module.parameters()])
    assert not networks


def test_a_graph_without_gradients_is_compiled_in_grad_mode(networks):
    module, x = mlp().eval().requires_grad_(False), torch.randn(4, 7)
    torch.testing.assert_close(compiled(module)(x), module(x))

    def inner(x):
        with torch.no_grad():
            return trained(x) * 2.0

    trained = mlp().eval()
    torch.testing.assert_close(compiled(inner)(x), inner(x))
    assert len(networks) == 2


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_modes_without_gradients(mode, networks):
    module, x = ConvNet().eval(), torch.randn(1, 3, 6, 6)
    fast = compiled(module)
    with mode():
        torch.testing.assert_close(fast(x), module(x), rtol=1e-4, atol=1e-5)
    assert len(networks) == 1


def test_training_mode_changes_its_statistics_as_eager_does():
    module = ConvNet()
    other = copy.deepcopy(module)
    fast = compiled(module)
    x = torch.randn(2, 3, 6, 6)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", EagerFallbackWarning)
        for _ in range(4):
            torch.testing.assert_close(fast(x), other(x), rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(module.state_dict(), other.state_dict())


def test_random_numbers_are_those_of_eager(networks):
    module, x = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5)), torch.randn(3, 6)
    fast = compiled(module)
    message = "^Sequential: .*\n  all of it: it draws random numbers"
    torch.manual_seed(3)
    with torch.no_grad(), pytest.warns(EagerFallbackWarning, match=message):
        found = fast(x)
    torch.manual_seed(3)
    torch.testing.assert_close(found, module(x))
    assert not networks


def test_tensors_elsewhere_stay_there(networks):
    x = torch.randn(3, 4, device="meta")
    with pytest.warns(EagerFallbackWarning, match="a tensor: it lies on meta"):
        assert compiled(lambda x: (x @ x.T).relu())(x).device.type == "meta"
    sparse = torch.eye(3).to_sparse()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = compiled(lambda x, y: torch.sparse.mm(x, y) + 1.0)(sparse, torch.ones(3, 4))
    torch.testing.assert_close(found, torch.full((3, 4), 2.0))
    assert not networks


def test_a_compiler_that_fails_leaves_it_to_torch(monkeypatch):
    def fails(*arguments):
        raise CompileError("no such instruction")

    monkeypatch.setattr(dynamo_part, "compile_network", fails)
    with pytest.warns(EagerFallbackWarning, match="a part of it: no such instruction"):
        assert_equal_to_eager(mlp().eval(), torch.randn(4, 7))


# What a graph does beside its results ------------------------------------------------------------


def _changes_its_input(x):
    x.mul_(2.0)
    return x + 1.0


def _gives_its_input(x):
    return x, x + 1.0, x


def _gives_views_of_its_input(x):
    return x[1:], x.view(-1)[3:7], (x + 1.0).sum(-1), x.t()


def _gives_views_of_a_result(x):
    y = torch.exp(x) + 1.0
    return y, y[1:], y.t(), y.split(2, 1)


def _gives_strides(x):
    y = torch.exp(x)
    return y.t(), y[:, ::2], y[0].expand(3, 4), y.sum(0, keepdim=True).expand(2, 4)


def _changes_through_a_view(x):
    x[1].add_(5.0)
    x.t_()
    return x * 2.0


def _gives_other_kinds(x):
    return {"none": None, "number": 3, "result": x * 2.0}, [x > 0, (x > 0).sum()]


def _has_a_tensor_of_its_own(x):
    return x * torch.tensor([1.0, 2.0, 3.0, 4.0]) + torch.arange(4)


EFFECTS = [
    _changes_its_input, _gives_its_input, _gives_views_of_its_input, _gives_views_of_a_result,
    _gives_strides, _changes_through_a_view, _gives_other_kinds, _has_a_tensor_of_its_own,
]  # fmt: skip


@pytest.mark.parametrize("function", EFFECTS)
def test_effects_strides_and_shared_memory_are_those_of_eager(function):
    assert_equal_to_eager(function, torch.randn(3, 4))


KINDS = {
    "turned": lambda: torch.randn(4, 3).t(),
    "strided": lambda: torch.randn(6, 8)[::2, ::2],
    "expanded": lambda: torch.randn(1, 4).expand(3, 4),
    "f64": lambda: torch.randn(3, 4).double(),
    "f16": lambda: torch.randn(3, 4).half(),
    "bf16": lambda: torch.randn(3, 4).bfloat16(),
    "integers": lambda: torch.randint(-5, 5, (3, 4)),
    "empty": lambda: torch.randn(0, 4),
    "complex": lambda: torch.randn(3, 4, dtype=torch.complex64),
}


@pytest.mark.parametrize("kind", KINDS)
def test_inputs_of_other_kinds(kind):
    x = KINDS[kind]()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", EagerFallbackWarning)
        fast = compiled(lambda x: (x * 3 + x.sum(0)).t())
        found, wanted = fast(x), (x * 3 + x.sum(0)).t()
    tolerance = 4 * torch.finfo(x.dtype).eps if x.is_floating_point() or x.is_complex() else 0
    torch.testing.assert_close(found, wanted, rtol=tolerance, atol=4 * tolerance)
    assert found.dtype == wanted.dtype


def test_channels_last_stays_so():
    module = ConvNet().eval().to(memory_format=torch.channels_last)
    x = torch.randn(2, 3, 6, 6).contiguous(memory_format=torch.channels_last)
    assert_equal_to_eager(lambda x: module.norm(module.conv(x)), x)


def test_subclasses_keep_their_class():
    from torch.testing._internal.two_tensor import TwoTensor

    x = TwoTensor(torch.randn(3, 4), torch.randn(3, 4))
    found = compiled(lambda x: torch.exp(x) * 2.0)(x)
    assert isinstance(found, TwoTensor)
    torch.testing.assert_close(found.a, torch.exp(x.a) * 2.0)
    torch.testing.assert_close(found.b, torch.exp(x.b) * 2.0)


# Shapes ------------------------------------------------------------------------------------------


def test_each_shape_is_compiled_for_itself(networks):
    module = ConvNet().eval()
    fast = compiled(module)
    with torch.no_grad():
        for size in (1, 2, 3, 2, 1, 3):
            x = torch.randn(size, 3, 6, 6)
            torch.testing.assert_close(fast(x), module(x), rtol=1e-4, atol=1e-5)
    assert [network.graph.inputs[0].shape[0] for network in networks] == [1, 2, 3]


def test_marked_dimensions_and_numbers(networks):
    def function(x, count):
        return torch.exp(x.view(-1, count)) * x.shape[0], x.shape[0] + 1

    fast = compiled(function)
    for size in (4, 6, 8):
        x = torch.randn(size, 6)
        torch._dynamo.mark_dynamic(x, 0)
        torch.testing.assert_close(fast(x, 3), function(x, 3))
    assert [network.graph.inputs[0].shape[0] for network in networks] == [4, 6, 8]


def test_too_many_shapes_run_in_torch(networks, monkeypatch):
    monkeypatch.setattr("tensorc.graph.dynamo.MOST_SHAPES", 2)
    fast = compiled(torch.exp)

    def called() -> None:
        for size in range(2, 8):
            x = torch.randn(size, 3)
            torch._dynamo.mark_dynamic(x, 0)
            torch.testing.assert_close(fast(x), torch.exp(x))

    with pytest.warns(EagerFallbackWarning, match="compiled for 2 others") as caught:
        called()
    assert len(networks) == 2
    assert len([one for one in caught if one.category is EagerFallbackWarning]) == 1


# Options -----------------------------------------------------------------------------------------


def test_options_are_those_of_compile(networks):
    module, x = mlp().eval(), torch.randn(4, 7)
    seen = []

    def scheduler(func):
        seen.append(func.name)
        return func

    with torch.no_grad():
        fast = torch.compile(
            module, backend="tensorc", options={"scheduler": scheduler, "target": "cpu:x86-64-v2"}
        )
        torch.testing.assert_close(fast(x), module(x))
    assert len(seen) == 2
    assert torch.compile(module, backend="tensorc", mode="default") is not None


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"options": {"speed": 3}}, "`options`: there is no option 'speed'; legal: scheduler, tar"),
        ({"options": {"scheduler": "best"}}, "there is no scheduler 'best'"),
        ({"options": {"target": "tpu"}}, "tpu"),
        ({"mode": "max-autotune"}, "there is no mode 'max-autotune' here; legal: default"),
    ],
)
def test_options_that_there_are_not_are_refused(keywords, message):
    module, x = mlp().eval(), torch.randn(4, 7)
    with torch.no_grad(), pytest.raises(BackendCompilerFailed, match=message) as caught:
        torch.compile(module, backend="tensorc", **keywords)(x)
    assert isinstance(caught.value.inner_exception, tc.ArgumentError | tc.TargetError)
