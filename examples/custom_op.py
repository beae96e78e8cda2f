"""An operator of one's own, written as a loop nest: no intrinsic and no C is needed.

A leaky integrate-and-fire layer of a spiking network: each neuron adds up its input over time,
leaks, fires when it passes a threshold, and starts again. Time goes on in order; the neurons of a
step are independent, so they run as vectors and on threads.

Usage: python examples/custom_op.py
"""

import numpy as np

import tensorc as tc

STEPS, NEURONS = 100, 1000


@tc.func
def spikes(
    X: tc.Buffer["f32", STEPS, NEURONS],
    leak: tc.f32,
    threshold: tc.f32,
    S: tc.Buffer["u8", STEPS, NEURONS, "out"],
):
    V = tc.alloc("f32", NEURONS)
    for m in range(NEURONS):
        V[m] = 0.0
    for t in range(STEPS):
        for n in range(NEURONS):
            V[n] = V[n] * leak + X[t, n]
            S[t, n] = tc.u8(V[n] >= threshold)
            V[n] = tc.select(V[n] >= threshold, 0.0, V[n])


def main() -> None:
    s = tc.Schedule(spikes)
    try:
        s.parallel("t")  # time carries the potential V
    except tc.ScheduleError as error:
        print(error, end="\n\n")
    n0, n1 = s.split("n", 16)
    s.vectorize(n1)
    s.parallel(n0)
    print(s)
    x = np.random.default_rng(0).random((STEPS, NEURONS), "f4")
    found = tc.build(s).run(x, 0.9, 2.0)
    v, wanted = np.zeros(NEURONS, "f4"), np.empty_like(found)
    for t in range(STEPS):
        v = v * np.float32(0.9) + x[t]
        wanted[t] = v >= 2
        v[v >= 2] = 0
    print("spikes:", int(found.sum()), "- different from NumPy's:", int((found != wanted).sum()))


if __name__ == "__main__":
    main()
