"""The bench beside TVM, without TVM: turns through a pipe, what a tuning leaves, sums."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from bench import tvm_peer, tvm_pipe
from bench.tvm_pipe import Kernel
from bench.tvm_record import Tuned

# An interpreter that plays TVM's: its result is twice the first input, n calls take n seconds.
PEER = f"""#!{sys.executable}
import json, sys
import numpy as np
options = dict(zip(sys.argv[3::2], sys.argv[4::2]))
assert json.loads(options["--kernel"])["name"] == "mm128"
with np.load(options["--inputs"]) as inputs:
    np.savez(options["--results"], 2 * inputs["arr_0"], inputs["arr_1"])
print("ready", flush=True)
for line in sys.stdin:
    if int(line) == 13:
        sys.exit(1)
    print(float(line), flush=True)
"""


@pytest.fixture
def peer(tmp_path: Path) -> str:
    file = tmp_path / "python"
    file.write_text(PEER)
    file.chmod(0o755)
    return str(file)


def test_the_peer_answers_through_its_pipe(peer: str, tmp_path: Path) -> None:
    x = np.arange(6.0, dtype="f4").reshape(2, 3)
    kernel = Kernel("mm128", str(tmp_path))
    with tvm_pipe.served(kernel, peer, 2, [x, x + 1]) as (sample, (double, other)):
        assert np.array_equal(double, 2 * x)
        assert np.array_equal(other, x + 1)
        assert [sample(3), sample(1)] == [3.0, 1.0]


def test_a_peer_that_ends_is_named(peer: str, tmp_path: Path) -> None:
    inputs = [np.zeros(1, "f4")] * 2
    with (
        pytest.raises(RuntimeError, match=r"TVM's process for mm128 ended"),
        tvm_pipe.served(Kernel("mm128", str(tmp_path)), peer, 1, inputs) as (sample, _),
    ):
        sample(13)


def test_both_sides_take_turns() -> None:
    asked: list[tuple[str, int]] = []

    def sampler(name: str, seconds: float) -> tvm_pipe.Sampler:
        def sample(calls: int) -> float:
            asked.append((name, calls))
            return seconds

        return sample

    samples = tvm_pipe.turns({"a": sampler("a", 1e-3), "b": sampler("b", 4e-4)}, 2, 0.0)
    assert samples == {"a": [1e-3] * 2, "b": [4e-4] * 2}
    looked = [("a", 1), ("b", 1), ("b", 2), ("b", 4)]
    assert asked == [*looked, ("a", 2), ("b", 5), ("b", 5), ("a", 2)]


def test_a_call_before_a_sample_is_not_counted() -> None:
    calls: list[int] = []
    for processor in (False, True):
        assert tvm_pipe.sampler(lambda: calls.append(1), processor=processor)(4) > 0.0
    assert len(calls) == 10


def test_calls_on_copies_follow_each_other() -> None:
    order: list[int] = []
    run = tvm_pipe.in_turn([lambda n=n: order.append(n) for n in range(3)])
    for _ in range(5):
        run()
    assert order == [0, 1, 2, 0, 1]


def test_a_tuning_is_written_down(tmp_path: Path) -> None:
    tuned = Tuned(64, 60, 12.5, "a-cpu", 2, 1, True, {"apache-tvm": "1"}, "python")
    assert Tuned.load(tmp_path) is None
    tuned.save(tmp_path)
    assert Tuned.load(tmp_path) == tuned
    assert "apache-tvm 1; 64 trials timed on 1 thread(s) by processor time" in tuned.describe()


def test_ratios_are_summed_up() -> None:
    rows = [
        tvm_peer.Row(name, 1, "GB/s", 1.0, 1.0, 1.0, 1.0, ratio, ratio, 0.0, 0.0)
        for name, ratio in (("ahead", 8.0), ("behind", 0.5))
    ]
    assert tvm_peer.summary(rows) == (
        "1 threads: 2.00x TVM (median 2.00x) over 2; behind: behind 0.50"
    )
