"""Torch's own operator samples, one after the other: the child process of `bench.op_db`.

It reads orders, one JSON object a line, on stdin: {"operator": name, "first": n} judges the samples
from the n-th on; with "find": true it says whether an operator counts. It writes what it is at,
and what came out, as a line each on stdout. A crash or an endless loop ends this process only.
"""

from __future__ import annotations

import functools
import itertools
import json
import operator
import random
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.export import exported_program
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

from tensorc.errors import TensorcError
from tensorc.graph.compile import compile_network
from tensorc.graph.network import load
from tensorc.graph.torch_composites import known
from tensorc.graph.torch_examples import FAILURES
from tensorc.graph.torch_import import CHECKS
from tensorc.graph.torch_tensors import op_name
from tensorc.graph.unsupported import UnsupportedNetworkError
from tensorc.target import Target

# How many samples may be asked whether an operator decomposes to core ATen.
ASKED = 6
# Their results are memory as it was found.
UNDEFINED = frozenset(
    {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}
)
RELATIVE = {torch.float16: 2e-3, torch.bfloat16: 1.6e-2, torch.float32: 1e-4, torch.float64: 1e-6}
ABSOLUTE = 1e-5


class Called(torch.nn.Module):
    """A call of an operator whose tensors in `places` (of the flattened arguments) are inputs."""

    def __init__(self, call: Callable[..., Any], leaves: list[Any], tree: Any, places: list[int]):
        super().__init__()
        self.call, self.leaves, self.tree, self.places = call, leaves, tree, places

    def forward(self, *tensors: torch.Tensor) -> Any:
        leaves = list(self.leaves)
        for place, tensor in zip(self.places, tensors, strict=True):
            leaves[place] = tensor
        first, positional, keywords = pytree.tree_unflatten(leaves, self.tree)
        return self.call(first, *positional, **keywords)


@dataclass(frozen=True)
class Sample:
    call: Callable[..., Any]
    leaves: list[Any]
    tree: Any

    def places(self) -> Iterator[list[int]]:
        """Which arguments are inputs: all tensors; then, where torch cannot export that, the first,
        the others being constants."""
        tensors = [n for n, leaf in enumerate(self.leaves) if isinstance(leaf, torch.Tensor)]
        yield tensors
        if len(tensors) > 1:
            yield tensors[:1]

    def module(self, places: list[int]) -> tuple[Called, tuple[torch.Tensor, ...]]:
        """The call as a module, with its inputs, which may be views of other tensors."""
        leaves = list(self.leaves)
        inputs = tuple(leaves[place] for place in places)
        for place in places:
            leaves[place] = None
        return Called(self.call, leaves, self.tree, places).eval(), inputs


def operators() -> dict[str, Any]:
    """Torch's descriptions of operators, by name and variant, those that take float32."""
    found = {}
    for info in op_db:
        if info.supports_dtype(torch.float32, "cpu"):
            variant = info.variant_test_name
            found[f"{info.name}.{variant}" if variant else info.name] = info
    return found


def samples(info: Any) -> Iterator[Sample]:
    """The samples of an operator, the same in every run."""
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    for sample in info.sample_inputs("cpu", torch.float32, requires_grad=False):
        leaves, tree = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
        yield Sample(info.op, leaves, tree)


def count(info: Any) -> int:
    return sum(1 for _ in samples(info))


def exported(sample: Sample) -> tuple[Any, Called, tuple[torch.Tensor, ...]]:
    """The exported program of a sample, with its module and inputs.

    Raises:
        what torch.export raises, when it takes the sample in neither way.
    """
    ways = list(sample.places())
    for places in ways:
        module, inputs = sample.module(places)
        try:
            with torch.no_grad():
                return torch.export.export(module, inputs), module, inputs
        except (*FAILURES, torch._dynamo.exc.TorchDynamoException):
            if places == ways[-1]:
                raise
    raise AssertionError("there is at least one way")


def changes_inputs(program: Any) -> bool:
    specs = program.graph_signature.output_specs
    mutated = any(spec.kind.name != "USER_OUTPUT" for spec in specs)
    inputs = {node for node in program.graph.nodes if node.op == "placeholder"}
    calls = [node for node in program.graph.nodes if node.op == "call_function"]
    return mutated or any(
        node.target._schema.is_mutable and inputs.intersection(node.args)
        for node in calls
        if hasattr(node.target, "_schema")
    )


def is_core(program: Any) -> bool:
    """Whether all operators are core ATen, or ones that our importer takes as they are."""
    for node in program.graph.nodes:
        if node.op != "call_function" or node.target is operator.getitem:
            continue
        tags = getattr(node.target, "tags", ())
        checks = op_name(node.target).partition(".")[0] in CHECKS
        if torch.Tag.core not in tags and not checks and known(node) is None:
            return False
    return True


def decomposes(info: Any) -> bool:
    """Whether one of the first samples that torch exports decomposes to core ATen."""
    asked = 0
    for sample in samples(info):
        try:
            program = exported(sample)[0]
            core = is_core(program) or is_core(program.run_decompositions())
        except (*FAILURES, torch._dynamo.exc.TorchDynamoException):
            continue
        if core and not changes_inputs(program):
            return True
        asked += 1
        if asked == ASKED:
            break
    return False


# One sample -------------------------------------------------------------------------------------


def difference(ours: Any, theirs: Any, compare: bool) -> str | None:
    """What is wrong with a result, None when nothing is."""
    if not isinstance(theirs, torch.Tensor):
        return None if ours == theirs else f"{ours!r} for {theirs!r}"
    if (ours.dtype, ours.shape) != (theirs.dtype, theirs.shape):
        return f"{ours.dtype}{list(ours.shape)} for {theirs.dtype}{list(theirs.shape)}"
    if not compare:
        return None
    if not theirs.dtype.is_floating_point:
        return None if ours.equal(theirs) else "other numbers"
    wide, expected = ours.double(), theirs.double()
    if torch.allclose(wide, expected, RELATIVE[theirs.dtype], ABSOLUTE, equal_nan=True):
        return None
    error = (wide - expected).abs()
    place = int(torch.where(error.isnan(), torch.inf, error).argmax())
    return f"{wide.flatten()[place]:.9g} for {expected.flatten()[place]:.9g}"


def judged(
    name: str, sample: Sample, scheduler: str, say: Callable[[str], None]
) -> tuple[str, list[str]]:
    """What becomes of a sample (one of `bench.op_db.OUTCOMES`), and why."""
    say("export")
    try:
        program, module, inputs = exported(sample)
    except (*FAILURES, torch._dynamo.exc.TorchDynamoException) as error:
        return "not exported", [type(error).__name__]
    if changes_inputs(program):
        return "in place", []
    say("eager")
    with torch.no_grad():
        expected = module(*inputs)
    say("compile")
    try:
        network = compile_network(load(program), Target.parse("cpu"), scheduler)
    except UnsupportedNetworkError as error:
        return "refused", [f"{one.what}: {one.reason}" for one in error.problems]
    except TensorcError as error:
        return "refused", [f"{type(error).__name__}: {error.message.splitlines()[0]}"]
    say("call")
    try:
        found = network(*inputs)
    except TensorcError as error:
        return "refused", [f"call: {type(error).__name__}: {error.message.splitlines()[0]}"]
    ours, theirs = (pytree.tree_leaves(result) for result in (found, expected))
    if len(ours) != len(theirs):
        return "wrong", [f"{len(ours)} results for {len(theirs)}"]
    compare = name.partition(".")[0] not in UNDEFINED
    for a, b in zip(ours, theirs, strict=True):
        reason = difference(a, b, compare)
        if reason is not None:
            return "wrong", [reason]
    return "passed", []


def obey(order: dict[str, Any], infos: dict[str, Any], scheduler: str) -> None:
    name = order["operator"]
    if order.get("find"):
        info = infos[name]
        write({"operator": name, "counts": decomposes(info), "samples": count(info)})
        return
    for number, sample in enumerate(samples(infos[name])):
        if number < order["first"]:
            continue
        start = time.perf_counter()

        def say(at: str, number: int = number) -> None:
            write({"operator": name, "sample": number, "at": at})

        outcome, reasons = judged(name, sample, scheduler, say)
        seconds = round(time.perf_counter() - start, 3)
        write({"operator": name, "sample": number, "outcome": outcome, "reasons": reasons,
               "seconds": seconds})  # fmt: skip
    write({"operator": name, "done": True})


def write(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


def decompose_for_this_processor() -> None:
    """Make `run_decompositions` twice as fast: it prepares 600 operators for every kind of device
    that torch knows, each time, and collects them anew. All tensors here are on the CPU."""
    key = torch._C.DispatchKey
    exported_program._collect_all_valid_cia_ops = functools.cache(
        exported_program._collect_all_valid_cia_ops
    )
    exported_program._BACKEND_KEYS_TO_OVERRIDE = [key.CPU, key.Meta]
    exported_program._AUTOGRAD_ALIAS_BACKEND_KEYS_TO_OVERRIDE = [key.AutogradCPU, key.AutogradMeta]


def main() -> None:
    warnings.simplefilter("ignore")
    decompose_for_this_processor()
    torch.set_num_threads(1)
    scheduler, infos = sys.argv[1], operators()
    write({"operators": list(infos)})
    for line in itertools.takewhile(str.strip, sys.stdin):
        obey(json.loads(line), infos, scheduler)


if __name__ == "__main__":
    main()
