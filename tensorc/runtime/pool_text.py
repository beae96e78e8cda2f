"""The thread pool's native part, as LLVM text.

The protocol. One word, `state`, holds everything that decides who may touch a region's variables:

    bit 0         open: the region accepts workers
    bits 1..15    running: workers inside it, the caller not counted
    bits 16..31   epoch: the number of regions opened so far, modulo 65536

* The caller takes `busy`, writes the region's variables, opens it by one addition to `state`, wakes
  sleepers, and works on the region as worker 0.
* A worker joins by a compare-and-swap that adds 1 to `running` of an open state; the sum is its
  index. It leaves by a subtraction. So a region has left nothing behind once it is closed and
  `running` is 0, and a worker that comes late, or never, holds nobody up.
* Indices of the loop are divided into shares, one for each worker, and taken from the `next` of
  their share in runs of one length: a sixteenth of a share, at least one. A thread begins with the
  share of its own number (of its worker index where there is none), so that in loop after loop it
  finds in its cache what it used or made before, and goes on with those of others. It leaves only
  when none has any left, which makes its own index safe to give to a later one: that one finds
  nothing to run.
* After a failure no further run of its share, and none of a later share, is handed out, and its own
  run ends. All below were handed out before, or still are, so the lowest failing index, which is
  the one reported, does not depend on timing.
* Whoever waits spins for a bounded time and then sleeps on the word that will change. It offers its
  processor to others now and then: the thread it waits for may need just that one. `sleeping` and
  `waiting` tell the other side that a system call is needed; each is written before the word is
  read, and read after the word is written, both sequentially consistent.

A thread's own word (`thread_get`, `thread_set`) is 0, or the most workers it may use (its limit),
with its worker index plus 1 in the upper half while it runs a region. A thread that has declared no
limit runs alone: nobody knows how many workers its scratch memory is for.
"""

from __future__ import annotations

from tensorc.codegen.hook import HOOK
from tensorc.runtime.pool_system import replaced, system_text

__all__ = ["pool_text"]

MOST_SHARES = 64
"""More workers than this have shares together."""

# Every variable that threads race for has two cache lines: x86 fetches them in pairs.
_VARIABLES = """
@state = internal global [32 x i32] zeroinitializer, align 128
@next = internal global [{shares} x [16 x i64]] zeroinitializer, align 128
@done = internal global [32 x i32] zeroinitializer, align 128
@waiting = internal global [32 x i32] zeroinitializer, align 128
@sleeping = internal global [32 x i32] zeroinitializer, align 128
@busy = internal global [32 x i32] zeroinitializer, align 128
@failure_lock = internal global [32 x i32] zeroinitializer, align 128
@key = internal global i64 0, align 128
@spins = internal global i32 0
@threads = internal global i32 0
@born = internal global i32 0
@stopping = internal global i32 0
@fn = internal global ptr null
@ctx = internal global ptr null
@n = internal global i64 0
@participants = internal global i32 0
@failed_index = internal global i64 0
@failed_code = internal global i32 0
"""

_CONTROL = """
define void @tensorc_pool_reset(i64 %key, i32 %spins) nounwind {
  store i64 %key, ptr @key
  store i32 %spins, ptr @spins
  store i32 0, ptr @state
  store i32 0, ptr @waiting
  store i32 0, ptr @sleeping
  store i32 0, ptr @busy
  store i32 0, ptr @failure_lock
  store i32 0, ptr @threads
  store i32 0, ptr @born
  store i32 0, ptr @stopping
  call void @thread_set(i64 0)
  ret void
}
define void @tensorc_pool_threads(i32 %count) nounwind {
  store atomic i32 %count, ptr @threads seq_cst, align 4
  ret void
}
define void @tensorc_pool_limit(i32 %workers) nounwind {
  %word = zext i32 %workers to i64
  call void @thread_set(i64 %word)
  ret void
}
define void @tensorc_pool_stop() nounwind {
  store atomic i32 0, ptr @threads seq_cst, align 4
  store atomic i32 1, ptr @stopping seq_cst, align 4
  %old = atomicrmw add ptr @state, i32 65536 seq_cst
  call void @wake(ptr @state, i32 2147483647)
  ret void
}
define void @tensorc_pool_resume() nounwind {
  store atomic i32 0, ptr @stopping seq_cst, align 4
  ret void
}
define void @tensorc_pool_spin(i32 %count) nounwind {
entry:
  br label %loop
loop:
  %i = phi i32 [0, %entry], [%next, %loop]
  %word = load atomic i32, ptr @state acquire, align 4
  call void @pause(i32 %i)
  %next = add i32 %i, 1
  %more = icmp ult i32 %next, %count
  br i1 %more, label %loop, label %exit
exit:
  ret void
}
"""

_REGION = """
define internal i64 @shares() alwaysinline nounwind {
  %workers = load atomic i32, ptr @participants monotonic, align 4
  %workers.wide = zext i32 %workers to i64
  %shares = call i64 @llvm.umin.i64(i64 %workers.wide, i64 {shares})
  ret i64 %shares
}
define internal void @fail(i64 %i, i32 %code, i64 %share, i64 %shares) cold noinline nounwind {
entry:
  br label %lock
lock:
  %taken = cmpxchg ptr @failure_lock, i32 0, i32 1 acquire monotonic
  %mine = extractvalue { i32, i1 } %taken, 1
  br i1 %mine, label %locked, label %lock
locked:
  %lowest = load i64, ptr @failed_index
  %lower = icmp slt i64 %i, %lowest
  br i1 %lower, label %record, label %unlock
record:
  store i64 %i, ptr @failed_index
  store i32 %code, ptr @failed_code
  br label %unlock
unlock:
  store atomic i32 0, ptr @failure_lock release, align 4
  %n = load i64, ptr @n
  br label %end
end:
  %later = phi i64 [%share, %unlock], [%later.next, %end]
  %counter = getelementptr [16 x i64], ptr @next, i64 %later
  %old = atomicrmw umax ptr %counter, i64 %n monotonic
  %later.next = add i64 %later, 1
  %more = icmp ult i64 %later.next, %shares
  br i1 %more, label %end, label %exit
exit:
  ret void
}
define internal void @run(i32 %worker, i32 %number) nounwind {
entry:
  %fn = load ptr, ptr @fn
  %ctx = load ptr, ptr @ctx
  %n = load i64, ptr @n
  %shares = call i64 @shares()
  %size.least = udiv i64 %n, %shares
  %longer = urem i64 %n, %shares
  %sixteenth = lshr i64 %size.least, 4
  %length = call i64 @llvm.umax.i64(i64 %sixteenth, i64 1)
  %number.wide = zext i32 %number to i64
  %worker.wide = zext i32 %worker to i64
  %has.share = icmp ult i64 %number.wide, %shares
  %of.worker = urem i64 %worker.wide, %shares
  %own = select i1 %has.share, i64 %number.wide, i64 %of.worker
  br label %visit
visit:
  %share = phi i64 [%own, %entry], [%share.next, %empty]
  %visited = phi i64 [1, %entry], [%visited.next, %empty]
  %counter = getelementptr [16 x i64], ptr @next, i64 %share
  %is.longer = icmp ult i64 %share, %longer
  %one = zext i1 %is.longer to i64
  %size = add i64 %size.least, %one
  %longer.before = call i64 @llvm.umin.i64(i64 %share, i64 %longer)
  %least.before = mul i64 %share, %size.least
  %before = add i64 %least.before, %longer.before
  br label %take
take:
  %first = atomicrmw add ptr %counter, i64 %length acq_rel
  %left = icmp ult i64 %first, %size
  br i1 %left, label %begin, label %empty
empty:
  %share.up = add i64 %share, 1
  %last = icmp eq i64 %share.up, %shares
  %share.next = select i1 %last, i64 0, i64 %share.up
  %visited.next = add i64 %visited, 1
  %others = icmp ult i64 %visited, %shares
  br i1 %others, label %visit, label %exit
begin:
  %behind = add i64 %first, %length
  %end.inside = call i64 @llvm.umin.i64(i64 %behind, i64 %size)
  %start = add i64 %before, %first
  %end = add i64 %before, %end.inside
  br label %call
call:
  %i = phi i64 [%start, %begin], [%i.next, %done.one]
  %code = call i32 %fn(ptr %ctx, i64 %i, i32 %worker)
  %failed = icmp ne i32 %code, 0
  br i1 %failed, label %failure, label %done.one
done.one:
  %i.next = add i64 %i, 1
  %more = icmp ult i64 %i.next, %end
  br i1 %more, label %call, label %take
failure:
  call void @fail(i64 %i, i32 %code, i64 %share, i64 %shares)
  br label %take
exit:
  ret void
}
define internal i32 @serial(ptr %fn, ptr %ctx, i64 %n, i32 %worker) nounwind {
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %continue]
  %code = call i32 %fn(ptr %ctx, i64 %i, i32 %worker)
  %failed = icmp ne i32 %code, 0
  br i1 %failed, label %exit, label %continue
continue:
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %exit
exit:
  ret i32 %code
}
"""

_WORKER = """
define void @tensorc_pool_worker() nounwind {
entry:
  %born.before = atomicrmw add ptr @born, i32 1 monotonic
  %number = add i32 %born.before, 1
  br label %look
look:
  %spun = phi i32 [0, %entry], [%spun.next, %spin], [0, %woken], [0, %left]
  %seen = phi i32 [0, %entry], [%seen, %spin], [%seen, %woken], [%epoch, %left]
  %stop = load atomic i32, ptr @stopping monotonic, align 4
  %stops = icmp ne i32 %stop, 0
  br i1 %stops, label %exit, label %examine
examine:
  %now = load atomic i32, ptr @state seq_cst, align 4
  %open.bit = and i32 %now, 1
  %open = icmp ne i32 %open.bit, 0
  %epoch = lshr i32 %now, 16
  %new = icmp ne i32 %epoch, %seen
  %joinable = and i1 %open, %new
  br i1 %joinable, label %room, label %idle
room:
  %inside.bits = and i32 %now, 65534
  %inside = lshr i32 %inside.bits, 1
  %worker = add i32 %inside, 1
  %places = load atomic i32, ptr @participants monotonic, align 4
  %free = icmp slt i32 %worker, %places
  br i1 %free, label %join, label %idle
join:
  %wanted = add i32 %now, 2
  %swap = cmpxchg ptr @state, i32 %now, i32 %wanted acq_rel monotonic
  %joined = extractvalue { i32, i1 } %swap, 1
  br i1 %joined, label %inside.region, label %idle
inside.region:
  ; Epochs repeat: what was read before joining may belong to another region of this number.
  %places.now = load atomic i32, ptr @participants monotonic, align 4
  %counts = icmp slt i32 %worker, %places.now
  br i1 %counts, label %work, label %leave
work:
  %worker.next = add i32 %worker, 1
  %upper = zext i32 %worker.next to i64
  %word = shl i64 %upper, 32
  call void @thread_set(i64 %word)
  call void @run(i32 %worker, i32 %number)
  br label %leave
leave:
  %old = atomicrmw sub ptr @state, i32 2 seq_cst
  %old.low = and i32 %old, 65535
  %last = icmp eq i32 %old.low, 2
  br i1 %last, label %report, label %left
report:
  %count = atomicrmw add ptr @done, i32 1 seq_cst
  %sleeper = load atomic i32, ptr @waiting seq_cst, align 4
  %asleep = icmp ne i32 %sleeper, 0
  br i1 %asleep, label %rouse, label %left
rouse:
  call void @wake(ptr @done, i32 1)
  br label %left
left:
  br label %look
idle:
  %spins = load i32, ptr @spins
  %patient = icmp ult i32 %spun, %spins
  br i1 %patient, label %spin, label %sleep
spin:
  call void @pause(i32 %spun)
  %spun.next = add i32 %spun, 1
  br label %look
sleep:
  %one.more = atomicrmw add ptr @sleeping, i32 1 seq_cst
  call void @wait(ptr @state, i32 %now)
  %one.less = atomicrmw sub ptr @sleeping, i32 1 seq_cst
  br label %woken
woken:
  br label %look
exit:
  ret void
}
"""

_HOOK_TEXT = """
define i32 @{hook}(ptr %fn, ptr %ctx, i64 %n) {
entry:
  %any = icmp sgt i64 %n, 0
  br i1 %any, label %who, label %nothing
nothing:
  ret i32 0
who:
  %word = call i64 @thread_get()
  %upper = lshr i64 %word, 32
  %worker.next = trunc i64 %upper to i32
  %nested = icmp ne i32 %worker.next, 0
  %worker = sub i32 %worker.next, 1
  br i1 %nested, label %alone, label %size
size:
  %limit = and i64 %word, 4294967295
  %threads = load atomic i32, ptr @threads acquire, align 4
  %workers = add i32 %threads, 1
  %workers.wide = zext i32 %workers to i64
  %most = call i64 @llvm.umin.i64(i64 %limit, i64 %workers.wide)
  %places.wide = call i64 @llvm.umin.i64(i64 %most, i64 %n)
  %places = trunc i64 %places.wide to i32
  %parallel = icmp ugt i32 %places, 1
  br i1 %parallel, label %take, label %alone
take:
  %taken = cmpxchg ptr @busy, i32 0, i32 1 acquire monotonic
  %mine = extractvalue { i32, i1 } %taken, 1
  %inside.word = or i64 %limit, 4294967296
  br i1 %mine, label %open, label %crowded
alone:
  %index = phi i32 [%worker, %who], [0, %size]
  %alone.code = call i32 @serial(ptr %fn, ptr %ctx, i64 %n, i32 %index)
  ret i32 %alone.code
crowded:
  call void @thread_set(i64 %inside.word)
  %crowded.code = call i32 @serial(ptr %fn, ptr %ctx, i64 %n, i32 0)
  call void @thread_set(i64 %limit)
  ret i32 %crowded.code
open:
  store ptr %fn, ptr @fn
  store ptr %ctx, ptr @ctx
  store i64 %n, ptr @n
  store atomic i32 %places, ptr @participants monotonic, align 4
  store i64 9223372036854775807, ptr @failed_index
  store i32 0, ptr @failed_code
  %shares = call i64 @shares()
  br label %clear
clear:
  %share = phi i64 [0, %open], [%share.next, %clear]
  %counter = getelementptr [16 x i64], ptr @next, i64 %share
  store atomic i64 0, ptr %counter monotonic, align 8
  %share.next = add i64 %share, 1
  %more = icmp ult i64 %share.next, %shares
  br i1 %more, label %clear, label %announced
announced:
  call void @thread_set(i64 %inside.word)
  %before = atomicrmw add ptr @state, i32 65537 seq_cst
  %sleepers = load atomic i32, ptr @sleeping seq_cst, align 4
  %asleep = icmp ne i32 %sleepers, 0
  br i1 %asleep, label %rouse, label %work
rouse:
  %others = sub i32 %places, 1
  call void @wake(ptr @state, i32 %others)
  br label %work
work:
  call void @run(i32 0, i32 0)
  %closed = atomicrmw sub ptr @state, i32 1 seq_cst
  br label %look
look:
  %spun = phi i32 [0, %work], [%spun.next, %spin]
  %now = load atomic i32, ptr @state acquire, align 4
  %inside = and i32 %now, 65534
  %empty = icmp eq i32 %inside, 0
  br i1 %empty, label %finish, label %patience
patience:
  %spins = load i32, ptr @spins
  %patient = icmp ult i32 %spun, %spins
  br i1 %patient, label %spin, label %announce
spin:
  call void @pause(i32 %spun)
  %spun.next = add i32 %spun, 1
  br label %look
announce:
  store atomic i32 1, ptr @waiting seq_cst, align 4
  br label %recheck
recheck:
  %count = load atomic i32, ptr @done seq_cst, align 4
  %still = load atomic i32, ptr @state seq_cst, align 4
  %still.inside = and i32 %still, 65534
  %over = icmp eq i32 %still.inside, 0
  br i1 %over, label %awake, label %sleep
sleep:
  call void @wait(ptr @done, i32 %count)
  br label %recheck
awake:
  store atomic i32 0, ptr @waiting seq_cst, align 4
  br label %finish
finish:
  call void @thread_set(i64 %limit)
  %code = load i32, ptr @failed_code
  store atomic i32 0, ptr @busy release, align 4
  ret i32 %code
}
declare i64 @llvm.umin.i64(i64, i64)
declare i64 @llvm.umax.i64(i64, i64)
"""


def pool_text(architecture: str, system: str) -> str:
    """The module for an architecture of `Target` and a system of `platform.system()`.

    It defines the hook and `tensorc_pool_` reset, threads, limit, stop, resume, spin and worker.
    """
    pool = "".join((_VARIABLES, _CONTROL, _REGION, _WORKER, _HOOK_TEXT))
    names = {"hook": HOOK, "shares": str(MOST_SHARES)}
    return system_text(architecture, system) + replaced(pool, names)
