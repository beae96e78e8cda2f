"""Loop bodies in LLVM text, and the memory in which they leave traces."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence

from tensorc.codegen.hook import HOOK, HOOK_DECLARATION
from tensorc.codegen.jit import compile_module
from tensorc.target import Target

SIZE = 512
HOOK_TYPE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
YIELD = "SwitchToThread" if sys.platform == "win32" else "sched_yield"

# A context is [SIZE x i32] counts, [SIZE x i32] workers, [SIZE x i32] codes, in this order.
BODIES = (
    HOOK_DECLARATION
    + f"""
declare i32 @{YIELD}()
define void @trace(ptr %ctx, i64 %i, i32 %worker) nounwind {{
  %count = getelementptr i32, ptr %ctx, i64 %i
  %old = atomicrmw add ptr %count, i32 1 monotonic
  %place = getelementptr i32, ptr %count, i64 {SIZE}
  store i32 %worker, ptr %place
  ret void
}}
define i32 @count(ptr %ctx, i64 %i, i32 %worker) nounwind {{
  call void @trace(ptr %ctx, i64 %i, i32 %worker)
  ret i32 0
}}
; Returns its own entry of the codes.
define i32 @fail(ptr %ctx, i64 %i, i32 %worker) nounwind {{
  call void @trace(ptr %ctx, i64 %i, i32 %worker)
  call i32 @{YIELD}()
  %count = getelementptr i32, ptr %ctx, i64 %i
  %place = getelementptr i32, ptr %count, i64 {2 * SIZE}
  %code = load i32, ptr %place
  ret i32 %code
}}
; Fails if another call with the same worker is under way; the codes are the flags. Yields, so that
; all threads get their turn on however few processors.
define i32 @exclusive(ptr %ctx, i64 %i, i32 %worker) nounwind {{
entry:
  call void @trace(ptr %ctx, i64 %i, i32 %worker)
  %flags = getelementptr i32, ptr %ctx, i64 {2 * SIZE}
  %wide = zext i32 %worker to i64
  %flag = getelementptr i32, ptr %flags, i64 %wide
  %taken = atomicrmw xchg ptr %flag, i32 1 seq_cst
  br label %delay
delay:
  %k = phi i32 [0, %entry], [%k.next, %delay]
  call i32 @{YIELD}()
  %k.next = add i32 %k, 1
  %more = icmp slt i32 %k.next, 20
  br i1 %more, label %delay, label %exit
exit:
  store atomic i32 0, ptr %flag seq_cst, align 4
  ret i32 %taken
}}
; Runs 16 inner indices per outer one.
define i32 @inner(ptr %ctx, i64 %i, i32 %worker) nounwind {{
  call void @trace(ptr %ctx, i64 %i, i32 %worker)
  call i32 @{YIELD}()
  ret i32 0
}}
define i32 @nest(ptr %ctx, i64 %i, i32 %worker) nounwind {{
  %first = mul i64 %i, 16
  %part = getelementptr i32, ptr %ctx, i64 %first
  %code = call i32 @{HOOK}(ptr @inner, ptr %part, i64 16)
  %place = getelementptr i32, ptr %part, i64 {SIZE}
  %inner.worker = load i32, ptr %place
  %differs = icmp ne i32 %inner.worker, %worker
  %mismatch = zext i1 %differs to i32
  %result = or i32 %code, %mismatch
  ret i32 %result
}}
; Waits until both indices have started.
define i32 @meet(ptr %ctx, i64 %i, i32 %worker) nounwind {{
entry:
  call void @trace(ptr %ctx, i64 %i, i32 %worker)
  %other = sub i64 1, %i
  %count = getelementptr i32, ptr %ctx, i64 %other
  br label %look
look:
  %there = load atomic i32, ptr %count acquire, align 4
  %missing = icmp eq i32 %there, 0
  br i1 %missing, label %look, label %exit
exit:
  ret i32 0
}}
define i32 @nest.meet(ptr %ctx, i64 %i, i32 %worker) nounwind {{
  %code = call i32 @{HOOK}(ptr @meet, ptr %ctx, i64 2)
  ret i32 %code
}}
define i32 @forever(ptr %ctx, i64 %i, i32 %worker) nounwind {{
entry:
  br label %loop
loop:
  %any = load volatile i32, ptr %ctx
  br label %loop
}}
"""
)


def yield_address() -> int:
    library = ctypes.CDLL("kernel32" if sys.platform == "win32" else None)
    return ctypes.cast(getattr(library, YIELD), ctypes.c_void_p).value or 0


class Visits:
    """One context: how often each index ran, on which worker, and what it is told to return."""

    def __init__(self, codes: Sequence[int]):
        self._memory = (ctypes.c_int32 * (3 * SIZE))()
        self._memory[2 * SIZE : 2 * SIZE + len(codes)] = list(codes)
        self.address = ctypes.addressof(self._memory)

    @property
    def counts(self) -> list[int]:
        return self._memory[:SIZE]

    @property
    def workers(self) -> list[int]:
        return self._memory[SIZE : 2 * SIZE]


class Loops:
    """The bodies, linked to a hook."""

    def __init__(self, hook: int):
        symbols = {HOOK: hook, YIELD: yield_address()}
        self._code = compile_module(BODIES, Target.parse("cpu"), symbols=symbols)

    def body(self, name: str) -> int:
        return self._code.address(name)

    def visits(self, codes: Sequence[int] = ()) -> Visits:
        return Visits(codes)
