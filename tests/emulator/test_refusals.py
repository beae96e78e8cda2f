"""What the emulator says to PTX, images and arguments that it cannot take."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from tensorc.emulator import EmulatedDevice, PtxError, UnsupportedInstructionError, parse_ptx
from tensorc.errors import ArgumentError, CompileError
from tensorc.runtime.device import DeviceError
from tests.emulator.single import HEAD, kernel, run

ZEROS = np.zeros(4, np.uint32)
EMPTY = HEAD + ".visible .entry f(.param .u64 a, .param .u32 n)\n{\n  ret;\n}\n"


@pytest.mark.parametrize(("line", "reason"), [
    ("wgmma.fence.sync.aligned;", "no such instruction"),
    ("tex.2d.v4.f32.f32 {%w0, %w1, %w2, %w3}, [t, {%w0, %w1}];", "a pair of brackets"),
    ("mbarrier.init.shared.b64 [%l0], 1;", "no such instruction"),
    ("cp.async.bulk.commit_group;", "cp.async is emulated"),
    ("cp.async.ca.shared.global [%l0], [%l1], 3;", "4, 8 or 16"),
    ("bar.sync 1, 64;", "some threads of a block"),
    ("bar.arrive 1, 64;", "no such barrier"),
    ("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%l0, %l1}, {%l2}, {%l3}, {%l0, %l1};",
     "no such matrix product"),
    ("atom.global.add.v4.f32 {%w0, %w1, %w2, %w3}, [%a0], {%w0, %w1, %w2, %w3};",
     "no such atomic"),
    ("add.rz.f64 %l0, %l1, %l2;", "f64 rounded otherwise"),
    ("cvt.rn.f32 %d, %x0;", "a form without a meaning"),
    ("setp.what.u32 %p0, %d, %x0;", "a form without a meaning"),
    ("call.uni (r), helper, (p);", "function without a body"),
    ("ld.global.v4.u32 {%w0, %w1}, [%a1];", "its vector has 2"),
    ("st.global.v2.u32 [%a1], %w0;", "its vector has 1"),
    ("prmt.b32.f4e %d, %x0, %x0, %x0;", "the default mode"),
])  # fmt: skip
def test_unknown_instructions_are_named_with_their_line(line: str, reason: str) -> None:
    if reason == "a pair of brackets":
        with pytest.raises(PtxError, match="expected ]"):
            run(line, ["b32", "b32"], ZEROS, out=np.uint32)
        return
    with pytest.raises(UnsupportedInstructionError, match=reason) as caught:
        run(line, ["b32", "b32"], ZEROS, out=np.uint32)
    error = caught.value
    assert error.instruction == line.split()[0].rstrip(";")
    text = HEAD + kernel("one", [line], ["b32", "b32"])
    assert error.line == 1 + text.split(line)[0].count("\n")
    again = pickle.loads(pickle.dumps(error))
    assert (again.line, again.supported, str(again)) == (error.line, error.supported, str(error))
    if reason == "no such instruction":
        assert {"add", "ld", "mma", "bar", "ret"} <= set(error.supported)


@pytest.mark.parametrize(("line", "message"), [
    ("bra NOWHERE;", "no label 'NOWHERE'"), ("mov.u32 %d, %nothing;", "no register %nothing"),
    ("mov.u64 %l0, nothing;", "no variable 'nothing'"), ("add.u32 5, %x0, 1;", "cannot take"),
    ("ld.global.u32 %d, %x0;", "is no address"),
])  # fmt: skip
def test_names_that_do_not_exist(line: str, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        run(line, ["b32", "b32"], ZEROS, out=np.uint32)


@pytest.mark.parametrize(("text", "line", "message"), [
    ("hello", 1, "expected a declaration"),
    ("", 1, "begins with .version"),
    (HEAD + ".visible .entry f(\n", 5, "expected .param"),
    (HEAD + ".entry f()\n{\n  add.u32 %r1, ;\n}", 6, "expected a number"),
    (HEAD + ".entry f()\n{\n  ret\n}", 7, "expected"),
    (HEAD + ".entry f()\n{\n  ret;\n", 7, "not the end of the text"),
    (HEAD + ".entry f() { ret; } ~", 4, "unexpected character '~'"),
    (".version 8.0\n.target sm_90\n.address_size 32\n", 3, "64-bit addresses"),
    (HEAD + ".global .texref t;\n", 4, "is not emulated"),
    (HEAD + ".global .align 8 .u64 p[1] = {other};\n", 4, "an address as an initial value"),
    (HEAD + ".entry f() .reqnctapercluster 2 { ret; }", 4, "clusters"),
    (HEAD + ".entry f() { .reg .what %r<3>; ret; }", 4, "registers of type .what"),
    (HEAD + ".entry f() { .reg .b32 %r<4000000000>; ret; }", 4, "%r cannot be 4000000000"),
    (HEAD + ".entry f() { .shared .b8 s[-4]; ret; }", 4, "an extent cannot be -4"),
    (HEAD + ".entry f() { .local .b64 s[99999999][99999999]; ret; }", 4, "an extent cannot be"),
    (HEAD + ".entry f(.param .b8 s[40000]) { ret; }", 4, "more than 32764 bytes"),
    (HEAD + ".shared .align 3 .b8 s[4];", 4, "a power of two, not 3"),
    (HEAD + ".global .b8 s[2] = {1, 2, 3};", 4, "initial values for 3"),
    (HEAD + ".global .b64 s = 36893488147419103232;", 4, "more than 64 bits"),
    (HEAD + ".global .b64 s = 08;", 4, "no octal number"),
    (HEAD + ".entry f() { ret; }\n.entry f() { ret; }", 5, "there is a kernel f already"),
    (HEAD + ".entry f() { L: ret; L: ret; }", 4, "there is a label L already"),
    (HEAD + ".entry f() " + "{" * 600, 4, "nested too deeply"),
])  # fmt: skip
def test_texts_that_are_no_ptx(text: str, line: int, message: str) -> None:
    with pytest.raises(PtxError, match=message) as caught:
        parse_ptx(text, "mine.ptx")
    assert (caught.value.line, caught.value.file) == (line, "mine.ptx")


def test_every_beginning_of_a_text_is_refused_or_read() -> None:
    """No prefix of a program ends in anything but a module or a PtxError."""
    text = (
        HEAD
        + ".global .align 4 .b8 t[8] = {1, 2};\n"
        + kernel("k", ["{ .reg .pred q; @q bra L; }", "L: mov.b64 {%w0, _}, %l0;"], ["b32", "pred"])
    )
    lines = text.count("\n") + 1
    read = 0
    for end in range(len(text)):
        try:
            parse_ptx(text[:end])
            read += 1
        except PtxError as error:
            refused = error
            if not 1 <= refused.line <= lines:
                pytest.fail(str(refused))
    assert 1 <= read < len(text)


def test_images_and_kernels() -> None:
    device = EmulatedDevice()
    with pytest.raises(DeviceError, match="cubin"):
        device.load(b"\x7fELF\x02\x01")
    with pytest.raises(DeviceError, match="no PTX text"):
        device.load(b"\xff\xfe")
    with pytest.raises(DeviceError, match="it has f"):
        device.load(EMPTY.encode() + b"\0").function("g")
    with pytest.raises(ArgumentError, match="a PTX text is wanted, not int"):
        device.load(5)  # type: ignore[arg-type]
    for wrong in ([1.0], np.array([object()])):
        with pytest.raises(ArgumentError, match="no NumPy array of numbers"):
            device.wrap(wrong)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="sequential, reverse, random"):
        EmulatedDevice(order="upwards")  # type: ignore[arg-type]


@pytest.mark.parametrize(("arguments", "message"), [
    ([], "takes 2, not 0"), ([1, 2], "says its width"), ([np.uint64(0), 2.5], "says its width"),
    ([np.uint64(0), np.int64(1)], "4 bytes and the argument 8"),
    ([np.uint32(0), np.int32(1)], "8 bytes and the argument 4"),
    ([object(), np.int32(1)], "no memory of an emulated device"),
])  # fmt: skip
def test_arguments(arguments: list[object], message: str) -> None:
    device = EmulatedDevice()
    function = device.load(EMPTY).function("f")
    with pytest.raises(ArgumentError, match=message):
        device.launch(function, 1, 1, arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(("grid", "block", "shared", "message"), [
    (0, 1, 0, "legal here: 1 to"), ((1, 70000), 1, 0, "65535"), (1, (32, 33), 0, "more than 1024"),
    (1, (1, 1, 65), 0, "1 to 64"), (1.5, 1, 0, "whole numbers"), (1, "32", 0, "whole numbers"),
    (1, (2.5, 1), 0, "whole numbers"), ((1, 1, 1, 1), 1, 0, "one to three"), (1, 1, -1, "negative"),
])  # fmt: skip
def test_extents(grid: object, block: object, shared: int, message: str) -> None:
    device = EmulatedDevice()
    function = device.load(EMPTY).function("f")
    with pytest.raises(ArgumentError, match=message):
        device.launch(function, grid, block, [np.uint64(0), np.int32(1)], shared)  # type: ignore[arg-type]


def test_limits_of_kernels_and_blocks() -> None:
    device = EmulatedDevice()
    limited = EMPTY.replace("n)\n", "n)\n.maxntid 64, 1, 1\n")
    exact = EMPTY.replace("n)\n", "n)\n.reqntid 8, 8, 1\n")
    values = [np.uint64(0), np.int32(1)]
    with pytest.raises(DeviceError, match="at most 64 threads"):
        device.launch(device.load(limited).function("f"), 1, 65, values)
    with pytest.raises(DeviceError, match=r"a block of \(8, 8, 1\)"):
        device.launch(device.load(exact).function("f"), 1, 64, values)
    with pytest.raises(DeviceError, match="300000 bytes of shared memory"):
        device.launch(device.load(EMPTY).function("f"), 1, 1, values, 300000)
    device.launch(device.load(exact).function("f"), 1, (8, 8), values)
    local = EMPTY.replace("  ret;", "  .local .b8 s[600000]; ret;")
    with pytest.raises(DeviceError, match="600000 bytes of local memory"):
        device.launch(device.load(local).function("f"), 1, 1, values)


def test_copies() -> None:
    device, other = EmulatedDevice(), EmulatedDevice()
    memory = device.alloc(16, "mine")
    with pytest.raises(ArgumentError, match="has 12 bytes and the destination has 16"):
        device.copy(memory, np.zeros(3, np.float32))
    with pytest.raises(ArgumentError, match="not contiguous"):
        device.copy(memory, np.zeros((4, 4), np.float32)[:, 0])
    with pytest.raises(ArgumentError, match="not contiguous"):
        device.wrap(np.zeros((4, 4), np.float32)[:, 0])
    with pytest.raises(DeviceError, match="no memory of this device"):
        other.copy(memory, np.zeros(4, np.float32))
    with pytest.raises(ArgumentError, match="negative"):
        device.alloc(-1)
    frozen = np.zeros(4, np.float32)
    frozen.flags.writeable = False
    with pytest.raises(ArgumentError, match="cannot be written"):
        device.copy(frozen, memory)
    device.copy(memory, np.arange(4, dtype=np.float32))
    second = device.alloc(16)
    device.copy(second, memory)
    back = np.zeros(4, np.float32)
    device.copy(back, second)
    assert back.tolist() == [0, 1, 2, 3]
