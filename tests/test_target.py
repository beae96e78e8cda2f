"""Targets: texts that are understood, texts that are refused, and what the facts must satisfy."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
from dataclasses import FrozenInstanceError, asdict, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorc.errors import TargetError
from tensorc.target import Target
from tensorc.target.host import cache_sizes
from tensorc.target.processors import ARCHITECTURES, named, with_features

NAMES = sorted({name for entry in ARCHITECTURES.values() for name in entry.cpus})
X86_FEATURES = sorted({*ARCHITECTURES["x86_64"].features, *ARCHITECTURES["x86_64"].optional})

changes = st.lists(
    st.builds("{}{}".format, st.sampled_from("+-"), st.sampled_from(X86_FEATURES)), max_size=5
)
sizes = st.integers(1, 1 << 40)
machines = st.one_of(
    st.tuples(st.just("cpu"), st.text()),
    st.tuples(st.just("cuda"), st.sampled_from(["sm_75", "sm_90a", "sm_120f"])),
)
targets = st.builds(
    lambda machine, triple, **facts: Target(machine[0], triple, machine[1], **facts),
    machines,
    triple=st.text(),
    features=st.lists(st.text()).map(tuple),
    vector_bits=st.sampled_from([128, 256, 512]),
    vector_registers=st.integers(1, 64),
    fma=st.booleans(),
    cores=sizes,
    l1=sizes,
    l2=sizes,
    l3=st.integers(0, 1 << 40),
    alignment=st.sampled_from([1, 16, 64, 4096]),
    limits=st.dictionaries(st.text(), sizes).map(lambda limits: tuple(limits.items())),
)


@pytest.mark.parametrize(
    ("text", "bits", "registers", "fma"),
    [
        ("cpu:x86-64", 128, 16, False),
        ("cpu:x86-64-v2", 128, 16, False),
        ("cpu:sandybridge", 256, 16, False),
        ("cpu:x86-64-v3", 256, 16, True),
        ("cpu:znver3", 256, 16, True),
        ("cpu:x86-64-v4", 512, 32, True),
        ("cpu:znver5", 512, 32, True),
        ("cpu:x86-64-v4;vector_bits=256", 256, 32, True),
        ("cpu:x86-64-v4;features=-avx512f", 256, 16, True),
        ("cpu:x86-64-v4;features=-avx", 128, 16, False),
        ("cpu:x86-64-v2;features=+avx512bw", 512, 32, True),
        ("cpu:generic;triple=aarch64-linux-gnu", 128, 32, True),
        ("cpu:apple-m1;triple=arm64-apple-macosx", 128, 32, True),
        ("cpu:neoverse-n1", 128, 32, True),
        ("cpu:generic;triple=riscv64-linux-gnu", 128, 32, True),
        ("cpu:generic;triple=wasm32-unknown-unknown", 128, 32, False),
    ],
)
def test_vector_units(text: str, bits: int, registers: int, fma: bool) -> None:
    target = Target.parse(text)
    assert (target.vector_bits, target.vector_registers, target.fma) == (bits, registers, fma)
    assert [target.lanes(width) for width in (8, 16, 32, 64)] == [
        bits // width for width in (8, 16, 32, 64)
    ]


def test_this_machine() -> None:
    host = Target.parse("cpu")
    assert host == Target.parse("cpu:host") == Target.parse(host)
    assert host.missing_on(host) == ()
    assert host.has("avx512f") == (host.vector_bits == 512)
    if host.architecture == "x86_64":
        assert Target.parse("cpu:generic").missing_on(host) == ()
        assert Target.parse("cpu:x86-64-v2").missing_on(Target.parse("cpu:generic")) != ()
    assert Target.parse("cpu;cores=3;l1=1K;l2=2M;l3=0") == replace(
        host, cores=3, l1=1024, l2=2 << 20, l3=0
    )


def test_options() -> None:
    target = Target.parse(" cpu:znver3 ; cores = 16; l1=48k ;l2=1000;l3=32M; alignment=128 ")
    facts = asdict(target)
    assert {name: facts[name] for name in ("cores", "l1", "l2", "l3", "alignment")} == {
        "cores": 16,
        "l1": 48 * 1024,
        "l2": 1000,
        "l3": 32 * 1024 * 1024,
        "alignment": 128,
    }


@pytest.mark.parametrize(
    ("text", "wrong", "legal"),
    [
        ("gpu", "'gpu'", "cpu"),
        ("", "''", "cpu"),
        ("cpu:pentium9", "'pentium9'", "x86-64-v3"),
        ("cpu:znver3;triple=aarch64-linux-gnu", "'znver3'", "neoverse-n1"),
        ("cpu:generic;triple=vax-dec-vms", "'vax'", "riscv64"),
        ("cpu;triple=aarch64-linux-gnu", "'aarch64-linux-gnu'", "cpu:NAME;triple="),
        ("cpu:generic;l4=1M", "'l4=1M'", "l3=..."),
        ("cpu:generic;cores", "'cores'", "cores=..."),
        ("cpu:generic;cores=2;cores=2", "'cores'", "once"),
        ("cpu:generic;cores=two", "'two'", "a number"),
        ("cpu:generic;cores=2K", "'2K'", "a number"),
        ("cpu:generic;cores=0", "cores cannot be 0", "from 1 on"),
        ("cpu:generic;l1=64G", "'64G'", "KiB with K"),
        ("cpu:generic;l1=²", "'²'", "KiB with K"),
        ("cpu:generic;alignment=48", "48", "power of two"),
        ("cpu:generic;features=avx", "'avx'", "+name, -name"),
        ("cpu:generic;features=+avx3", "'avx3'", "avx2"),
        ("cpu:x86-64-v3;vector_bits=512", "512", "128, 256"),
        ("cpu:x86-64-v3;vector_bits=64", "64", "128, 256"),
    ],
)
def test_refusals_name_the_fault_and_what_is_legal(text: str, wrong: str, legal: str) -> None:
    with pytest.raises(TargetError) as caught:
        Target.parse(text)
    message = str(caught.value)
    assert wrong in message
    assert legal in message.partition("legal here:")[2]
    assert isinstance(caught.value, ValueError)
    assert str(pickle.loads(pickle.dumps(caught.value))) == message


def test_a_target_is_no_number() -> None:
    with pytest.raises(TargetError, match="not int"):
        Target.parse(3)  # type: ignore[arg-type]


@pytest.mark.parametrize("bits", [0, 1, 7, 128, -8])
def test_lanes_of_no_element(bits: int) -> None:
    with pytest.raises(TargetError, match="8, 16, 32, 64"):
        Target.parse("cpu:generic").lanes(bits)


@pytest.mark.parametrize("cpu", NAMES)
def test_every_named_processor(cpu: str) -> None:
    target = Target.parse(f"cpu:{cpu}")
    assert set(ARCHITECTURES[target.architecture].features) <= set(target.features)
    assert target.missing_on(target) == ()
    assert Target.parse(f"cpu:{cpu};triple={target.triple}") == target


@given(st.sampled_from([n for n in NAMES if "64" in n]), changes)
def test_features_are_closed_under_implication(cpu: str, texts: list[str]) -> None:
    """Later changes win, and no feature is there without those that it implies."""
    have = set(named("x86-64-v2", "", "")["features"])
    if texts:
        have = set(with_features("x86_64", have, ",".join(texts)))
        last = texts[-1]
        assert (last if last[0] == "-" else last[1:]) in have
    assert not {name for name in have if f"-{name}" in have}
    if any(name.startswith("avx512") for name in have):
        assert {"avx512f", "avx2", "fma", "f16c", "avx"} <= have
    if have & {"avx2", "fma", "f16c", "vaes", "vpclmulqdq"}:
        assert {"avx", "sse4.2"} <= have


def test_llvm_hears_of_absent_features_last() -> None:
    target = Target.parse("cpu:znver4;features=-avx512fp16")
    present, _, absent = target.llvm_features.rpartition(",")
    assert absent == "-avx512fp16"
    assert present.split(",") == [f"+{name}" for name in target.features if name[0] != "-"]


@given(targets)
def test_json_round_trip(target: Target) -> None:
    again = Target.from_json(target.to_json())
    assert again == target
    assert hash(again) == hash(target)
    assert again.to_json() == target.to_json()
    assert copy.deepcopy(target) == pickle.loads(pickle.dumps(target)) == target
    names = "".join(name for name, _ in target.limits)
    assert "\n" not in target.describe() or "\n" in target.cpu + target.triple + names


@given(targets, st.data())
def test_json_of_a_wrong_type_is_refused(target: Target, data: st.DataObject) -> None:
    record = json.loads(target.to_json())
    name = data.draw(st.sampled_from(sorted(record)))
    wrong = data.draw(st.sampled_from([None, 1.5, {"a": 1}, [1], [["a"]], [["a", True]]]))
    record[name] = wrong
    with pytest.raises(TargetError, match=name):
        Target.from_json(json.dumps(record))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a target"),
        ("[]", "list in place of an object"),
        ("{}", "kind, triple, cpu missing"),
        ('{"kind": "cpu", "triple": "", "cpu": "", "l5": 1}', "'l5'.*legal here: kind"),
        ('{"kind": "tpu", "triple": "", "cpu": ""}', "'tpu'.*legal here: cpu, cuda"),
        ('{"kind": "cpu", "triple": "", "cpu": "", "fma": 1}', "fma"),
        ('{"kind": "cpu", "triple": "", "cpu": "", "cores": true}', "cores"),
    ],
)
def test_json_that_is_no_target(text: str, message: str) -> None:
    with pytest.raises(TargetError, match=message):
        Target.from_json(text)


def test_a_target_is_a_frozen_value() -> None:
    target = Target("cpu", "t", "c", features=("b", "a", "b"))
    assert target.features == ("a", "b")
    assert {target: 1}[Target("cpu", "t", "c", features=("a", "b"))] == 1
    with pytest.raises(FrozenInstanceError):
        target.cores = 3  # type: ignore[misc]
    with pytest.raises((AttributeError, TypeError)):
        target.extra = 3  # type: ignore[attr-defined]


def test_limits_of_a_device() -> None:
    device = Target("cuda", "", "sm_90", limits=(("shared_bytes", 232448), ("registers", 65536)))
    assert device.limit("registers") == 65536
    with pytest.raises(TargetError, match="it states registers, shared_bytes"):
        device.limit("threads")
    assert device.describe() == "cuda sm_90: registers 65536, shared_bytes 232448"
    assert device.missing_on(Target.parse("cpu:generic")) == ("cuda sm_90",)


def test_descriptions() -> None:
    assert Target.parse("cpu:znver3;l2=1000").describe() == (
        "cpu znver3 (x86_64-unknown-linux-gnu): 16 vector registers of 256 bits, with fma, "
        "4 cores, L1 32 KiB, L2 1000 B, L3 16 MiB"
    )
    assert "L3" not in Target.parse("cpu:x86-64;l3=0").describe()


def sysfs(root: Path, *entries: tuple[str, str, str]) -> Path:
    for number, texts in enumerate(entries):
        folder = root / f"index{number}"
        folder.mkdir()
        for name, text in zip(("type", "level", "size"), texts, strict=True):
            (folder / name).write_text(text + "\n")
    return root


def test_cache_sizes_from_sysfs(tmp_path: Path) -> None:
    root = sysfs(
        tmp_path,
        ("Data", "1", "48K"),
        ("Instruction", "1", "32K"),
        ("Unified", "2", "2048K"),
        ("Unified", "4", "1K"),
    )
    (root / "index9").mkdir()  # without its files
    found = cache_sizes(root)
    assert (found["l1"], found["l2"]) == (48 << 10, 2 << 20)
    assert set(found) <= {"l1", "l2", "l3"}
    assert all(size > 0 for size in cache_sizes(tmp_path / "nowhere").values())


def test_the_module_is_light() -> None:
    code = (
        "import sys; from tensorc.target import Target; Target.parse('cpu:znver3').to_json();"
        "print(*{'numpy', 'llvmlite'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
