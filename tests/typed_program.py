"""A user's program, for a type checker and to be run; it leaves its object file where it runs."""

import numpy as np

import tensorc as tc

# The strings in the annotations of a @tc.func are sizes and modes.
# ruff: noqa: F821

A = tc.placeholder((64, "K"), "f32", name="A")
B = tc.placeholder(("K", 32), "f32", name="B")
alpha = tc.scalar("alpha", "f32")
k = tc.reduce_axis("K", name="k")
C = tc.compute((64, 32), lambda i, j: tc.sum(A[i, k] * B[k, j], axis=k), name="C")
D = tc.compute(C.shape, lambda i, j: tc.maximum(C[i, j] * alpha, 0.0), name="D")
E = tc.compute((), lambda: D[0, 0] + 1.0, name="E")
program = tc.func_of([A, B, alpha], [D], name="scaled")
single = tc.func_of([A, B, alpha], E)

j = tc.reduce_axis(32, name="j")
highest, total = tc.compute((64,), lambda i: tc.logsumexp(D[i, j], axis=j), name="L")
softmax = tc.compute((64, 32), lambda i, j: tc.exp(D[i, j] - highest[i]) / total[i], name="S")
best = tc.compute((64,), lambda i: tc.argmax(D[i, j], axis=[j]), name=["value", "place"])
one = tc.const(1.0, "f32")
mean, *rest = tc.compute((64,), lambda i: tc.reduce("welford", D[i, j], one - one, one, axis=j))
largest = tc.compute((64,), lambda i: tc.reduce("max", D[i, j], axis=j), name="largest")
several = tc.func_of([A, B, alpha], [softmax, *best, mean, largest])


@tc.func
def skew(X: tc.Buffer["f32", 64, "N"], Y: tc.Buffer["f32", 64, "N", "out"], scale: tc.f32):
    for i in range(64):
        for p in parallel(4):  # type: ignore[name-defined]
            Y[i, p] = X[i, p] * scale


s = tc.Schedule(program, "cpu:x86-64-v3", strict_float=False)
first, second, *_ = s.loops("D")
outer, inner = s.split(first, 8)
s.reorder(inner, second)
s.parallel(outer)
s.transform_layout("C", lambda p, q: (q // 16, p, q % 16))
names: tuple[str, ...] = s.statements()
trace: tc.Trace = s.trace
text: str = trace.to_json()
again = tc.Schedule(program, s.target)
again.replay(tc.Trace.from_json(text))
again.undo()

module: tc.Module = tc.build(tc.Schedule(program), checks=True, name="other")
result = module.run(np.ones((64, 8), np.float32), np.ones((8, 32), np.float32), 0.5)
files = module.save("other.o", prefix="lib_")
assembly: str = module.source("asm")
skewed = tc.build(skew).run(np.ones((64, 4), np.float32), 2.0)
default = tc.default_schedule(several, tc.Target.parse("cpu"))
with tc.config.scope(num_threads=2):
    count: int = tc.config.num_threads
