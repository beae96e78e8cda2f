"""What the thread pool asks of the system, as LLVM text: to sleep, to wake, to pause while it
waits, and a word of each thread's own."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["replaced", "system_symbols", "system_text"]

_PAUSE = {
    "x86_64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
    "aarch64": ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"),
}
_FUTEX_NUMBER = {"x86_64": 202, "aarch64": 98, "riscv64": 98}

# Linux sleeps in the futex system call (operations 128 and 129: wait and wake, within a process).
_FUTEX = """
declare i64 @syscall(i64, ...)
define internal void @wait(ptr %word, i32 %seen) nounwind {
  call i64 (i64, ...) @syscall(i64 {number}, ptr %word, i32 128, i32 %seen, ptr null)
  ret void
}
define internal void @wake(ptr %word, i32 %count) nounwind {
  call i64 (i64, ...) @syscall(i64 {number}, ptr %word, i32 129, i32 %count)
  ret void
}
"""
# Elsewhere a sleeper looks again every half millisecond, and need not be woken.
_NANOSLEEP = """
@half_millisecond = internal constant [2 x i64] [i64 0, i64 500000]
declare i32 @nanosleep(ptr, ptr)
define internal void @wait(ptr %word, i32 %seen) nounwind {
  call i32 @nanosleep(ptr @half_millisecond, ptr null)
  ret void
}
define internal void @wake(ptr %word, i32 %count) nounwind {
  ret void
}
"""
_WINDOWS_SLEEP = """
declare void @Sleep(i32)
define internal void @wait(ptr %word, i32 %seen) nounwind {
  call void @Sleep(i32 1)
  ret void
}
define internal void @wake(ptr %word, i32 %count) nounwind {
  ret void
}
"""
# A key of POSIX has 4 or 8 bytes; as an argument both are one register.
_THREAD_WORD = """
declare ptr @{get}(i64)
declare i32 @{set}(i64, ptr)
define internal i64 @thread_get() nounwind {
  %key = load i64, ptr @key
  %value = call ptr @{get}(i64 %key)
  %word = ptrtoint ptr %value to i64
  ret i64 %word
}
define internal void @thread_set(i64 %word) nounwind {
  %key = load i64, ptr @key
  %value = inttoptr i64 %word to ptr
  call i32 @{set}(i64 %key, ptr %value)
  ret void
}
"""

# One round of waiting; every 32nd (some microseconds) asks the system for other threads to run.
_PAUSE_ROUND = """
declare i32 @{yield}()
define internal void @pause(i32 %round) nounwind {
entry:
  {pause}
  %low = and i32 %round, 31
  %due = icmp eq i32 %low, 31
  br i1 %due, label %offer, label %exit
offer:
  call i32 @{yield}()
  br label %exit
exit:
  ret void
}
"""


def system_symbols(architecture: str, system: str) -> tuple[str, str, str, str]:
    """The C functions that the text calls: to sleep, to yield, to get and set a thread's word."""
    if system == "Windows":
        return ("Sleep", "SwitchToThread", "TlsGetValue", "TlsSetValue")
    sleeper = "syscall" if system == "Linux" and architecture in _FUTEX_NUMBER else "nanosleep"
    return (sleeper, "sched_yield", "pthread_getspecific", "pthread_setspecific")


def system_text(architecture: str, system: str) -> str:
    """Definitions of `wait`, `wake`, `pause`, `thread_get` and `thread_set`."""
    sleeper, offer, get, put = system_symbols(architecture, system)
    sleep = {"syscall": _FUTEX, "nanosleep": _NANOSLEEP, "Sleep": _WINDOWS_SLEEP}[sleeper]
    declaration, pause = _PAUSE.get(architecture, ("", ""))
    names = {
        "number": str(_FUTEX_NUMBER.get(architecture)),
        "yield": offer,
        "get": get,
        "set": put,
        "pause": pause,
    }
    return replaced("".join((declaration, sleep, _THREAD_WORD, _PAUSE_ROUND)), names)


def replaced(text: str, names: Mapping[str, str]) -> str:
    """The text with each `{name}` replaced."""
    for name, value in names.items():
        text = text.replace(f"{{{name}}}", value)
    return text
