"""The one hook through which generated code runs a loop in parallel.

    int tensorc_parallel_for(int (*fn)(void *ctx, int64_t i, int32_t worker), void *ctx, int64_t n)

calls `fn(ctx, i, worker)` for every i in [0, n), in any order and at the same time, where no two
calls that overlap have the same `worker`. It returns 0, or else the result of the first call, in
the order of i, that was not 0; later calls may then be left out.

Code in this process is linked to the thread pool of `tensorc.runtime.parallel`. An object file that
leaves the process carries `SERIAL_HOOK`, which any other definition at link time replaces.
"""

from __future__ import annotations

__all__ = ["HOOK", "HOOK_DECLARATION", "SERIAL_HOOK"]

HOOK = "tensorc_parallel_for"
HOOK_DECLARATION = f"declare i32 @{HOOK}(ptr, ptr, i64)\n"

# One thread is worker 0 of every loop, nested ones included.
SERIAL_HOOK = f"""\
define weak i32 @{HOOK}(ptr %fn, ptr %ctx, i64 %n) nounwind {{
entry:
  %any = icmp sgt i64 %n, 0
  br i1 %any, label %loop, label %success
loop:
  %i = phi i64 [0, %entry], [%next, %continue]
  %code = call i32 %fn(ptr %ctx, i64 %i, i32 0)
  %failed = icmp ne i32 %code, 0
  br i1 %failed, label %failure, label %continue
continue:
  %next = add nuw nsw i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %success
failure:
  ret i32 %code
success:
  ret i32 0
}}
"""
