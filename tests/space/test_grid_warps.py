"""Products on tensor cores by templates: legal, without a stack, right, and silent."""

from __future__ import annotations

import random

import pytest

import tensorc as tc
from tensorc.ir.nodes import Func
from tensorc.schedule.facts import facts
from tensorc.space.choice import Choice, Sentence, Value
from tensorc.space.drive import drive
from tensorc.space.grid_space import cuda
from tensorc.space.space import Space
from tensorc.target import Target
from tensorc.testing.grids import Built, built, difference


def product(rows: int, columns: int, steps: int, dtype: str = "f16", scaled: bool = False) -> Func:
    """Of a batch of two, whose right operand is turned; maybe scaled and made halves."""
    A = tc.placeholder((2, rows, steps), dtype, name="A")
    B = tc.placeholder((2, columns, steps), dtype, name="B")
    k = tc.reduce_axis(steps, name="k")
    C = tc.compute(
        (2, rows, columns),
        lambda b, i, j: tc.sum(A[b, i, k].cast("f32") * B[b, j, k].cast("f32"), axis=k),
        name="C",
    )
    if not scaled:
        return tc.func_of([A, B], [C], name="product")
    D = tc.compute(C.shape, lambda b, i, j: tc.maximum(C[b, i, j] * 0.5, 0.0).cast(dtype), name="D")
    return tc.func_of([A, B], [D], name="scaled")


def forced(func: Func, target: str, seed: int | None, **wanted: Value) -> tuple[Sentence, Built]:
    """A sentence that takes these values where they are offered: the rules', or a random one."""
    known, source = facts(func, Target.parse(target)), random.Random(seed)

    def decide(choice: Choice) -> Value:
        value = wanted.get(choice.kind, choice.default)
        if value in choice.options and choice.kind in wanted:
            return value
        return choice.default if seed is None else source.choice(choice.options)

    sentence = drive(cuda(known), decide)
    return sentence, built(func, known, sentence)


@pytest.mark.parametrize(("target", "dtype", "scaled", "seed"), [
    ("cuda:A100", "f16", True, None),
    ("cuda:H100", "bf16", False, 1),
    ("cuda:T4", "f16", True, 2),
])  # fmt: skip
def test_sentences_mean_the_program(
    target: str, dtype: str, scaled: bool, seed: int | None
) -> None:
    func = product(32, 16, 32, dtype, scaled)
    sentence, made = forced(func, target, seed, template="apart", kernel="warps", epilogue="fused")
    decided = {choice.kind: value for choice, value in sentence.decisions}
    assert decided["kernel"] == "warps"
    assert len(made.reports) == 1, "the stage behind is in the same kernel"
    assert not made.spills
    assert "mma.sync" in made.module.ptx()
    assert difference(func, made) is None, str(sentence)


def test_a_large_product_has_what_the_golden_one_has() -> None:
    func = product(1024, 1024, 1024, "bf16", scaled=True)
    _, made = forced(func, "cuda:H100", None)
    (found,) = made.reports
    assert (found.stack, found.spills) == (0, 0)
    operations = found.loop.operations
    assert operations["HMMA"] == 2 * 4 * 8
    assert operations["LDSM"] == 2 * (4 + 8)
    assert operations["LDGSTS.128"] == 8
    assert not {"LDG", "STS", "LDL", "STL"} & set(operations)


def test_what_tensor_cores_have_not_stays_elsewhere() -> None:
    known = {
        (dtype, target): forced_kernel(product(32, 16, 32, dtype), target)
        for dtype, target in (("f16", "cuda:T4"), ("bf16", "cuda:T4"), ("f32", "cuda:A100"))
    }
    assert known == {
        ("f16", "cuda:T4"): "warps", ("bf16", "cuda:T4"): "tiles", ("f32", "cuda:A100"): "tiles",
    }  # fmt: skip
    assert forced_kernel(product(33, 16, 32), "cuda:A100") == "tiles"


def forced_kernel(func: Func, target: str) -> Value:
    decided = Space(func, target, template=cuda).default().decisions
    return next(value for choice, value in decided if choice.kind == "kernel")


def test_the_space_is_counted() -> None:
    space = Space(product(32, 32, 32, scaled=True), "cuda:A100", template=cuda)
    assert space.count > 10_000
    sentence = space.unrank(2 * space.count // 3)
    assert space.rank(sentence) == 2 * space.count // 3
