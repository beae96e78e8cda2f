"""The script for a machine with a GPU, up to the launch: on the emulated device."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bench import gpu
from bench.gpu_kernels import CASES
from tensorc.runtime.cuda import device_named

QUICK = ("softmax", "transpose", "elementwise")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("golden")
    for name in QUICK:
        gpu.prepare(made, name, "cuda:H200", small=True)
    return made


def test_kernels_are_checked_from_what_was_prepared(folder: Path) -> None:
    found = gpu.run(folder, list(QUICK), "emulated")
    assert set(found["kernels"]) == set(QUICK)
    lines = gpu.table(found).splitlines()
    assert len(lines) == 1 + len(QUICK)
    assert json.loads(json.dumps(found)) == found


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
        given = [
            draw.standard_normal([int(e.value) for e in x.shape]).astype(gpu.KINDS[str(x.dtype)])
            for x in inputs
        ]
        plain = eval(f"lambda *x: {golden.torch}", {"torch": torch})
        found = plain(*map(torch.from_numpy, given)).numpy()
        known = golden.reference(*(x.astype(np.float64) for x in given))
        np.testing.assert_allclose(found, known, rtol=1e-3, atol=1e-3)
        assert golden.flops(*golden.small) > 0
