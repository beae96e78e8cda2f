"""One PTX instruction as a kernel: operands from arrays, result to an array."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tensorc.emulator import EmulatedDevice

Array = NDArray[np.generic]
HEAD = ".version 8.7\n.target sm_90\n.address_size 64\n"
_WIDTH = {"pred": 8, "f16x2": 32, "bf16x2": 32, "bf16": 16}


def width(type_name: str) -> int:
    return _WIDTH.get(type_name) or int(type_name[1:])


def kernel(name: str, lines: Sequence[str], types: Sequence[str]) -> str:
    """A kernel in which thread t has in %x0, %x1, ... element t of each array but the first.

    `lines` use those and give %d, which goes to the first array. `types` are the result's and the
    operands'; predicates are bytes in memory.
    """
    size = [width(each) // 8 for each in types]
    text = [
        f".visible .entry {name}("
        + ", ".join(f".param .u64 p{n}" for n in range(len(types)))
        + ")",
        "{",
        "  .reg .b64 %a<16>; .reg .b32 %t; .reg .b16 %byte; .reg .pred %p<8>; .reg .b32 %w<16>;",
        "  .reg .b64 %l<16>; .reg .b16 %h<16>;",
        "  mov.u32 %t, %tid.x;",
    ]
    for n, each in enumerate(types):
        register = "%d" if n == 0 else f"%x{n - 1}"
        kind = "pred" if each == "pred" else f"b{max(width(each), 16)}"
        text += [
            f"  .reg .{kind} {register};",
            f"  ld.param.u64 %a{n}, [p{n}];",
            f"  mad.wide.u32 %a{n}, %t, {size[n]}, %a{n};",
        ]
        if n and each == "pred":
            text += [f"  ld.global.u8 %byte, [%a{n}];", f"  setp.ne.u16 {register}, %byte, 0;"]
        elif n:
            text.append(
                f"  ld.global.{'u' if each[0] in 'us' else 'b'}{width(each)} {register}, [%a{n}];"
            )
    text += [f"  {line}" for line in lines]
    if types[0] == "pred":
        text += ["  selp.u16 %byte, 1, 0, %d;", "  st.global.u8 [%a0], %byte;"]
    else:
        text.append(f"  st.global.b{width(types[0])} [%a0], %d;")
    return "\n".join([*text, "  ret;", "}", ""])


def run(line: str | Sequence[str], types: Sequence[str], *inputs: Array, out: object) -> Array:
    """What an instruction gives for each element of the inputs."""
    lines = [line] if isinstance(line, str) else line
    return run_kernels({"one": (lines, types)}, {"one": inputs}, {"one": out})["one"]


def run_kernels(
    kernels: dict[str, tuple[Sequence[str], Sequence[str]]],
    inputs: dict[str, Sequence[Array]],
    outs: dict[str, object],
) -> dict[str, Array]:
    device = EmulatedDevice()
    text = HEAD + "\n".join(kernel(name, *parts) for name, parts in kernels.items())
    module = device.load(text)
    found = {}
    for name, arrays in inputs.items():
        count = len(arrays[0])
        result = np.zeros(count, outs[name])  # type: ignore[call-overload]
        held = [device.wrap(np.ascontiguousarray(each)) for each in (result, *arrays)]
        device.launch(module.function(name), 1, count, held)
        found[name] = result
    return found
