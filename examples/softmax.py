"""A softmax over rows: four stages that end up in one loop over the rows.

Usage: python examples/softmax.py
"""

import numpy as np

import tensorc as tc

ROWS, COLUMNS = 512, 128


@tc.func
def softmax(X: tc.Buffer["f32", ROWS, COLUMNS], Y: tc.Buffer["f32", ROWS, COLUMNS, "out"]):
    top = tc.alloc("f32", ROWS)
    E = tc.alloc("f32", ROWS, COLUMNS)
    total = tc.alloc("f32", ROWS)
    for a in range(ROWS):
        top[a] = -inf
        for b in range(COLUMNS):
            tc.reduce("max", top[a], X[a, b])
    for c in range(ROWS):
        for d in range(COLUMNS):
            E[c, d] = tc.exp(X[c, d] - top[c])
    for e in range(ROWS):
        total[e] = 0.0
        for f in range(COLUMNS):
            total[e] += E[e, f]
    for i in range(ROWS):
        for j in range(COLUMNS):
            Y[i, j] = E[i, j] / total[i]


def scheduled() -> tc.Schedule:
    s = tc.Schedule(softmax)
    # Every row is a task of its own: the stages move into the last one's loop over the rows, and
    # their buffers shrink to what one row needs.
    s.compute_at("total", "i")
    s.compute_at("E", "i")
    s.compute_at("top", "i")
    s.parallel("i")
    for statement in ("E", "Y"):
        _, lanes = s.split(s.loops(statement)[-1], 16)
        s.vectorize(lanes)
    return s


def main() -> None:
    s = scheduled()
    print(s)
    x = np.random.default_rng(0).standard_normal((ROWS, COLUMNS), "f4")
    y = tc.build(s).run(x)
    e = np.exp(x - x.max(1, keepdims=True))
    print("largest difference from NumPy:", abs(y - e / e.sum(1, keepdims=True)).max())


if __name__ == "__main__":
    main()
