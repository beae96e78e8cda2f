"""Files of records: what is written is read, and whatever is wrong with a file is skipped."""

from __future__ import annotations

import json
import lzma
import os
import random
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorc.errors import ArgumentError
from tensorc.ir.hash import structural_hash
from tensorc.ir.print import print_func
from tensorc.runtime.measure.failures import RecordsError
from tensorc.runtime.measure.line import Definitions, decoded, encoded
from tensorc.runtime.measure.record import Outcome, Record
from tensorc.runtime.measure.records import RecordFile, read_records
from tensorc.target import Target
from tests.runtime.misbehaving import TASK

TARGET, OTHER = Target.parse("cpu:x86-64-v3"), Target.parse("cpu:x86-64-v2")
RECORD = Record(
    task=structural_hash(TASK),
    func=print_func(TASK),
    target=TARGET,
    threads=2,
    steps='{"version":1,"steps":[{"primitive":"split","loop":"i","factors":[8]}]}',
    outcome=Outcome.OK,
    times=(0.00125, 0.0013),
    compile_seconds=0.25,
    timestamp=1.7e9,
    decisions=(("tile", "i", 8), ("order", "C", "rows first")),
    tuner="random",
    seed=0,
    nest="5f" * 32,
    versions=(("llvmlite", "0.50"), ("tensorc", "0.1.0")),
    host=(("cores", "2"), ("cpu", "some ®")),
)

_texts = st.text(max_size=20)
_records = st.builds(
    replace,
    st.just(RECORD),
    target=st.sampled_from([TARGET, OTHER]),
    threads=st.integers(1, 4096),
    steps=st.sampled_from(["", '"s"', '{"a":[1,null,"\\u00e9"]}']),
    outcome=st.sampled_from(Outcome),
    reason=_texts,
    times=st.lists(
        st.integers(1, 9999).map(lambda n: n * 1e-7).map(lambda t: float(f"{t:.4g}"))
    ).map(tuple),
    decisions=st.lists(st.tuples(_texts, _texts, _texts | st.integers())).map(tuple),
    sizes=st.dictionaries(_texts, st.integers(0, 10**9), max_size=3).map(
        lambda d: tuple(d.items())
    ),
    tuner=_texts,
    seed=st.none() | st.integers(),
    place=st.integers(0, 9),
).filter(lambda record: not record.ok or bool(record.times))


@given(st.lists(_records, max_size=4))
def test_records_survive_the_way_through_lines(records: list[Record]) -> None:
    written: Definitions = {}
    lines = b"".join(encoded(record, written) for record in records).splitlines()
    read: Definitions = {}
    found = [record for line in lines if (record := decoded(line, read)) is not None]
    assert found == records


@given(st.integers(0, 10**6), st.binary(max_size=3), st.booleans())
def test_a_damaged_line_is_a_value_error_or_a_record(place: int, new: bytes, cut: bool) -> None:
    known: Definitions = {}
    *definitions, line = encoded(RECORD, known).splitlines()
    place %= len(line)
    damaged = line[:place] + (new if cut else new + line[place + len(new) :])
    again: Definitions = {}
    for definition in definitions:
        decoded(definition, again)
    try:
        found = decoded(damaged, again)
    except ValueError:
        return
    assert found is None or isinstance(found, Record)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("times", []),
        ("times", [0.0]),
        ("times", [10**400]),
        ("compile_seconds", 10**400),
        ("timestamp", 10**400),
    ],
)
def test_times_that_nothing_can_take_are_no_record(field: str, value: object) -> None:
    *definitions, line = encoded(RECORD, {}).splitlines()
    known: Definitions = {}
    for definition in definitions:
        decoded(definition, known)
    data = json.loads(line) | {field: value}
    with pytest.raises(ValueError, match=r"ok, but the times are|no time in seconds"):
        decoded(json.dumps(data).encode(), known)


def _written(path: Path, *records: Record) -> Path:
    with RecordFile(path) as file:
        for record in records:
            file.append(record)
    return path


def test_what_records_share_is_written_once(tmp_path: Path) -> None:
    path = _written(tmp_path / "a.jsonl", RECORD, replace(RECORD, threads=1))
    _written(path, replace(RECORD, threads=3), replace(RECORD, target=OTHER))
    assert path.read_bytes().count(b'"define":"task"') == 1
    assert path.read_bytes().count(b'"define":"target"') == 2
    found = read_records(path)
    assert [record.threads for record in found] == [2, 1, 3, 2]
    assert found.skipped == 0
    assert found.records[0].target is found.records[1].target
    assert read_records(path, OTHER).other_target == 3
    assert len(read_records(path, OTHER)) == 1


def test_a_file_cut_at_any_byte_loses_its_last_record_alone(tmp_path: Path) -> None:
    path = _written(tmp_path / "a.jsonl", RECORD)
    whole = path.stat().st_size
    _written(path, replace(RECORD, threads=3, target=OTHER))
    data = path.read_bytes()
    third = replace(RECORD, threads=5)
    for end in (*range(whole, len(data), 9), len(data) - 1):
        path.write_bytes(data[:end])
        assert [record.threads for record in read_records(path)][:1] == [2]
        _written(path, third)
        found = read_records(path)
        assert found.records[0] == RECORD
        assert found.records[-1] == third
        assert len(found) == (3 if end == len(data) - 1 else 2)
        assert found.bad <= 1


def test_whatever_is_in_a_file_is_skipped_and_counted(tmp_path: Path) -> None:
    path = _written(tmp_path / "a.jsonl", RECORD)
    good = path.read_bytes().splitlines()[-1]
    data = json.loads(good)
    bad = [
        b"\x00\xff", b"{", b"[1]", b"3", b'"text"', b"{}", b'{"format": true}', b"[" * 10_000,
        b'{"format": 1, "define": "spell", "id": "x", "value": 1}',
        b'{"format": 1, "define": "target", "id": "x", "value": {"kind": "abacus"}}',
        *(
            json.dumps({**data, **wrong}).encode()
            for wrong in (
                {"task": "unknown"}, {"task": []}, {"target": "unknown"}, {"outcome": "fine"},
                {"threads": 0}, {"threads": "2"}, {"threads": True}, {"times": [-1]},
                {"times": ["1"]}, {"times": 3}, {"times": [float("inf")]}, {"timestamp": None},
                {"decisions": [["a", "b"]]}, {"sizes": [1]}, {"seed": 1.5}, {"tuner": 3},
            )
        ),
    ]  # fmt: skip
    newer = json.dumps({**data, "format": 2, "times": "of another kind"}).encode()
    with open(path, "ab") as file:
        file.write(b"\n".join([*bad, newer, b"", b"  ", good]) + b"\n")
    found = read_records(path)
    assert found.records == (RECORD, RECORD)
    assert (found.bad, found.other_version) == (len(bad), 1)
    assert found.skipped == len(bad) + 1


def test_compressed_files_are_read(tmp_path: Path) -> None:
    data = _written(tmp_path / "a.jsonl", RECORD, RECORD).read_bytes()
    packed = tmp_path / "a.jsonl.xz"
    packed.write_bytes(lzma.compress(data))
    assert len(read_records(packed)) == 2
    packed.write_bytes(lzma.compress(data)[:-30])
    assert read_records(packed).bad >= 1
    packed.write_bytes(b"no archive")
    assert (len(read_records(packed)), read_records(packed).bad) == (0, 1)
    with pytest.raises(RecordsError, match="only read"):
        RecordFile(packed)


def test_files_that_cannot_be(tmp_path: Path) -> None:
    for path in (tmp_path / "none" / "a.jsonl", tmp_path, Path("/dev/full")):
        with pytest.raises(RecordsError, match=str(path)):
            RecordFile(path)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (tmp_path / "missing", tmp_path, pipe):
        with pytest.raises(RecordsError, match="cannot be read"):
            read_records(path)
    with pytest.raises(RecordsError, match="no null character"):
        read_records("a\0.jsonl")
    for none in (None, 3, b"a.jsonl"):
        with pytest.raises(ArgumentError, match="needed the path of a file"):
            read_records(none)  # type: ignore[arg-type]
        with pytest.raises(ArgumentError, match="needed the path of a file"):
            RecordFile(none)  # type: ignore[arg-type]


FULL = """
import resource, sys
from tensorc.runtime.measure.failures import RecordsError
from tensorc.runtime.measure.records import RecordFile, read_records
from tests.runtime.test_records import RECORD
path, limit = sys.argv[1], int(sys.argv[2])
with RecordFile(path) as file:
    file.append(RECORD)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    done = 1
    try:
        while True:
            file.append(RECORD)
            done += 1
    except RecordsError as error:
        print(done, error.reason)
    found = read_records(path)
    assert (len(found), found.skipped) == (done, 0)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    file.append(RECORD)
"""


def test_a_disk_that_fills_leaves_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    first = _written(tmp_path / "b.jsonl", RECORD).stat().st_size
    command = [sys.executable, "-c", FULL, str(path), str(first + 1500)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    count, _, reason = done.stdout.partition(" ")
    assert reason == "no record can be added: File too large\n"
    found = read_records(path)
    assert (len(found), found.skipped) == (int(count) + 1, 0)


WRITER = """
import sys
from dataclasses import replace
from tensorc.runtime.measure.records import RecordFile
from tests.runtime.test_records import RECORD
with RecordFile(sys.argv[1]) as file:
    print("ready", flush=True)
    for number in range(1, 1_000_000):
        file.append(replace(RECORD, threads=number % 4096 + 1, seed=number))
        print(number, flush=True)
"""


def test_writers_that_are_killed_lose_nothing(tmp_path: Path) -> None:
    """Two write at once; each is killed at a random moment; what they said is written is there."""
    path = tmp_path / "a.jsonl"
    draw = random.Random(3)
    acknowledged = []
    for _ in range(3):
        writers = [
            subprocess.Popen(
                [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True
            )
            for _ in range(2)
        ]
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
            for _ in range(draw.randrange(200)):
                writer.stdout.readline()
            writer.send_signal(signal.SIGKILL)
            said = writer.stdout.read().split("\n")
            writer.stdout.close()
            writer.wait()
            acknowledged.append(max((int(n) for n in said[:-1] if n), default=0))
    found = read_records(path)
    assert len(found) >= sum(acknowledged)
    assert found.bad <= 6
    _written(path, RECORD)
    assert read_records(path).records[-1] == RECORD
