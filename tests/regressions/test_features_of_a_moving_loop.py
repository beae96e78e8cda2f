"""A loop whose extent moves with another one counted as none, and its lines were divided by it."""

import math

from tensorc.ir.parse import parse
from tensorc.search.features import features
from tensorc.search.formula import predicted
from tensorc.space.space import Space

TEXT = """
def f(A: Buffer["f32", 32, 64], C: Buffer["f32", 32, 64, "out"]):
    for i in range(32):
        for j in range(64):
            C[i, j] = 0.0
            for k in range(j + 1):
                C[i, j] += A[i, k]
"""


def test_every_sentence_has_features() -> None:
    space = Space(parse(TEXT), "cpu:x86-64-v3;cores=2")
    for sentence in space.sample(0, n=20):
        assert all(map(math.isfinite, features(space.facts, sentence, 2)))
        assert math.isfinite(predicted(space.facts, sentence.steps, 2))
