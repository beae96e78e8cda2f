"""The script for a machine with a GPU, up to the launch: on the emulated device."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench import gpu, gpu_peers
from bench.gpu_kernels import CASES
from tensorc.emulator.device import EmulatedDevice
from tensorc.runtime.cuda import device_named

QUICK = ("softmax", "transpose", "elementwise", "matmul bf16")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("golden")
    for name in QUICK:
        gpu.prepare(made, name, "cuda:H200", small=True)
    gpu.prepare(made / gpu.SMALL, "transpose", "cuda:H200", small=True)
    return made


def test_kernels_are_checked_from_what_was_prepared(folder: Path) -> None:
    found = gpu.run(folder, list(QUICK), "emulated")
    assert set(found["kernels"]) == set(QUICK)
    lines = gpu.table(found).splitlines()
    assert len(lines) == 1 + len(QUICK)
    assert json.loads(json.dumps(found)) == found


class Gpu(EmulatedDevice):
    """The emulator in place of a GPU: the PTX beside a cubin is what it loads."""

    folder: Path

    @property
    def name(self) -> str:
        return "gpu"

    def load(self, image: bytes | str, file: str = "") -> Any:
        (place,) = {
            path.parent for path in self.folder.glob("*/kernel.cubin") if path.read_bytes() == image
        }
        return super().load((place / "kernel.ptx").read_bytes())


def test_what_is_timed_is_set_beside_others(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_peers, "RUNS", 1)
    monkeypatch.setattr(gpu_peers, "ROUNDS", 1)
    monkeypatch.setattr(gpu, "COPIED", 1 << 12)
    asked = []

    def peers(golden: Any, given: Any, kinds: Any, until: float) -> dict[str, float]:
        asked.append((len(given), kinds))
        return {"torch": 1.0, "triton": 2.0}

    monkeypatch.setattr(gpu, "peers", peers)
    counted = gpu.count(folder / gpu.SMALL, "transpose")
    assert counted["bank conflicts"] == 0
    assert counted["sectors read"] == counted["sectors written"] == 96 * 64 * 4 / 32
    device = Gpu()
    device.folder = folder
    found = gpu.run(folder, list(QUICK), device)
    assert asked[-1] == (2, ["bf16", "bf16"])
    constants = found["constants"]
    assert constants["operations of tensor cores a second"] > 0
    assert -1 <= constants["rank correlation of the model"] <= 1
    assert found["examined"] == {"transpose": {}}
    assert gpu.run(folder, ["transpose"], device, limit=0.0)["examined"] == {}
    text = gpu.table(found)
    assert "seconds of a launch: " in text
    assert all(f"{name:18}" in text for name in QUICK)
    assert json.loads(json.dumps(found)) == found


NCU = """==PROF== Connected to process 7
"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"
"0","t","l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum","","3"
"0","t","l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum","sector","1,024"
"1","t","l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum","sector","6"
"""


def test_tools_are_asked_and_their_output_is_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert gpu_peers.counters("") == {}
    commands = []

    def run(command: list[str]) -> str | None:
        commands.append(command)
        if command[0] == "ncu":
            return NCU
        return {"racecheck": "RACECHECK SUMMARY: 0 hazards displayed"}.get(command[2], "ERROR")

    monkeypatch.setattr(gpu_peers, "_run", run)
    predicted = dict.fromkeys(gpu_peers.METRICS, 2.0)
    found = gpu_peers.examined(folder / gpu.SMALL, "transpose", predicted)
    assert [found[tool]["clean"] for tool in ("racecheck", "memcheck")] == [True, False]
    assert found["counters"] == {
        "bank conflicts": {"ncu": 3.0, "emulator": 2.0},
        "sectors read": {"ncu": 1030.0, "emulator": 2.0},
        "sectors written": {"ncu": None, "emulator": 2.0},
    }
    # What they run is this script, which checks one kernel.
    start = commands[0].index("one")
    monkeypatch.setattr("sys.argv", ["gpu", *commands[0][start:], "--device", "emulated"])
    gpu.main()


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ([1, 2, 3], [10, 20, 30], 1),
        ([1, 2], [3, 1], -1),
        ([1, 2, 3], [1, 3, 2], 0.5),
        ([1], [5], 1),
    ],
)
def test_correlation_of_ranks(a: list[float], b: list[float], expected: float) -> None:
    assert gpu.rank_correlation(a, b) == pytest.approx(expected)


def test_a_wrong_result_ends_the_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    golden = CASES["elementwise"]
    wrong = lambda a, c: golden.reference(a, c) + 1.0  # noqa: E731
    changed = {**CASES, "elementwise": type(golden)(
        golden.make, golden.small, golden.large, wrong, golden.torch)}  # fmt: skip
    monkeypatch.setattr(gpu, "CASES", changed)
    with pytest.raises(SystemExit, match="relative error"):
        gpu.checked(folder, "elementwise", device_named("emulated"))


def test_plans_are_whole(folder: Path) -> None:
    plan = json.loads((folder / "softmax" / "plan.json").read_text())
    assert (folder / "softmax" / "kernel.cubin").read_bytes()[:4] == b"\x7fELF"
    for launch in plan["launches"]:
        assert set(launch["arguments"]) <= set(plan["memory"])
        assert np.prod(launch["block"]) <= 1024
    assert all(report["stack"] == 0 for report in plan["reports"])


def test_torch_computes_what_the_references_do() -> None:
    torch = pytest.importorskip("torch")
    draw = np.random.default_rng(1)
    for golden in CASES.values():
        func = golden.make(*golden.small)
        inputs = [p.value for p in func.params if p.mode == "in"]
        given = [gpu.drawn(draw, [int(e.value) for e in x.shape], str(x.dtype)) for x in inputs]
        plain = eval(f"lambda *x: {golden.torch}", {"torch": torch})
        tensors = [gpu_peers.tensor(g, str(x.dtype)) for g, x in zip(given, inputs, strict=True)]
        found = plain(*tensors)
        known = golden.reference(*map(gpu.wide, given))
        # Torch rounds a product of bf16 to bf16.
        off = 2e-2 if found.dtype is torch.bfloat16 else 1e-3
        np.testing.assert_allclose(found.float().numpy(), known, rtol=off, atol=off)
        assert golden.flops(*golden.small) > 0
