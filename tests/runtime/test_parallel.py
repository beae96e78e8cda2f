"""The thread pool: every index once, no worker twice at a time, failures, nesting, forks, exits."""

from __future__ import annotations

import contextvars
import ctypes
import pickle
import platform
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorc import config
from tensorc.codegen.elf import symbols_of
from tensorc.codegen.hook import HOOK, HOOK_DECLARATION, SERIAL_HOOK
from tensorc.codegen.jit import CompiledModule, compile_module
from tensorc.errors import ArgumentError, LimitError
from tensorc.runtime import parallel
from tensorc.runtime.pool_text import pool_text
from tensorc.target import Target
from tests.runtime.loops import BODIES, HOOK_TYPE, SIZE, YIELD, Loops, Visits, yield_address

THREADS = (1, 2, 3, 4)
# Only a method that ends the process ends a hang in machine code.
pytestmark = pytest.mark.timeout(120, method="thread")


@pytest.fixture(scope="module")
def loops() -> Loops:
    return Loops(parallel.address())


@given(st.integers(-2, 300), st.sampled_from(THREADS))
def test_every_index_runs_once(loops: Loops, count: int, threads: int) -> None:
    with config.scope(num_threads=threads):
        visits = loops.visits()
        assert parallel.parallel_for(loops.body("count"), visits.address, count) == 0
    ran = max(count, 0)
    assert list(visits.counts) == [1] * ran + [0] * (SIZE - ran)
    assert all(0 <= worker < threads for worker in visits.workers[:ran])


def test_a_thousand_loops(loops: Loops) -> None:
    draw = random.Random(1)
    with config.scope(num_threads=4):
        for repeat in range(1000):
            count = draw.randint(0, 40)
            visits = loops.visits()
            assert parallel.parallel_for(loops.body("count"), visits.address, count) == 0
            assert list(visits.counts[: count + 1]) == [1] * count + [0]
            if repeat % 100 == 0:
                time.sleep(0.002)  # long enough for the threads to fall asleep


@given(st.lists(st.sampled_from((0, 0, 0, 0, 0, 3, -7)), max_size=60), st.sampled_from(THREADS))
def test_the_first_failure_in_loop_order_is_reported(
    loops: Loops, codes: list[int], threads: int
) -> None:
    first = next((index for index, code in enumerate(codes) if code), len(codes))
    with config.scope(num_threads=threads):
        for _ in range(5):
            visits = loops.visits(codes)
            result = parallel.parallel_for(loops.body("fail"), visits.address, len(codes))
            assert result == [*codes, 0][first]
    ran = min(first + 1, len(codes))
    assert list(visits.counts[:ran]) == [1] * ran
    assert set(visits.counts[ran:]) <= {0, 1}
    # The pool is usable after a failure.
    again = loops.visits()
    assert parallel.parallel_for(loops.body("count"), again.address, 5) == 0


def test_few_indices_are_taken_after_a_failure(loops: Loops) -> None:
    with config.scope(num_threads=4):
        for _ in range(20):
            visits = loops.visits([9] * SIZE)
            assert parallel.parallel_for(loops.body("fail"), visits.address, SIZE) == 9
            # Who fails goes on in the first share, where one more failure ends the loop.
            assert 1 <= sum(visits.counts) <= 1 + 2 * 3


BODY = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32)


@pytest.mark.parametrize("count", [2, 7, 32, 100])
def test_a_thread_begins_with_its_own_share(count: int) -> None:
    begun: dict[int, list[int]] = {0: [], 1: []}
    began = threading.Event(), threading.Event()

    def visit(context: object, index: int, worker: int) -> int:
        begun[worker].append(index)
        began[worker].set()
        # Each goes on when the other one has begun, which may be asleep.
        return 0 if began[1 - worker].wait(60) else 1

    body = BODY(visit)
    with config.scope(num_threads=2):
        address = ctypes.cast(body, ctypes.c_void_p).value
        assert address is not None
        assert parallel.parallel_for(address, 0, count) == 0
    assert [begun[0][0], begun[1][0]] == [0, (count + 1) // 2]
    assert sorted(begun[0] + begun[1]) == list(range(count))


def test_a_worker_runs_one_index_at_a_time(loops: Loops) -> None:
    parallel.prepare(4)
    for threads in (2, 3, 4) * 30:
        with config.scope(num_threads=threads):
            visits = loops.visits()
            assert parallel.parallel_for(loops.body("exclusive"), visits.address, 64) == 0
        assert sum(visits.counts) == 64
        assert set(visits.workers) <= set(range(threads))


def test_a_nested_loop_stays_on_its_worker(loops: Loops) -> None:
    with config.scope(num_threads=4):
        for _ in range(50):
            visits = loops.visits()
            assert parallel.parallel_for(loops.body("nest"), visits.address, 16) == 0
            assert list(visits.counts[:256]) == [1] * 256
            for outer in range(16):
                assert len(set(visits.workers[16 * outer : 16 * outer + 16])) == 1


def test_a_loop_within_a_loop_of_one_index_is_parallel(loops: Loops) -> None:
    with config.scope(num_threads=2):
        visits = loops.visits()
        assert parallel.parallel_for(loops.body("nest.meet"), visits.address, 1) == 0
    assert sorted(visits.workers[:2]) == [0, 1]


def test_workers_take_part(loops: Loops) -> None:
    """Indices that each wait for the other to start can only be run by two threads."""
    with config.scope(num_threads=2):
        visits = loops.visits()
        assert parallel.parallel_for(loops.body("meet"), visits.address, 2) == 0
    assert sorted(visits.workers[:2]) == [0, 1]


def test_the_number_of_threads_is_read_at_each_call(
    loops: Loops, monkeypatch: pytest.MonkeyPatch
) -> None:
    for threads in (3, 1, 2):
        monkeypatch.setenv("TENSORC_NUM_THREADS", str(threads))
        assert parallel.prepare() == threads
        visits = loops.visits()
        parallel.parallel_for(loops.body("count"), visits.address, SIZE)
        assert set(visits.workers) <= set(range(threads))


def test_a_thread_that_declared_nothing_runs_alone(loops: Loops) -> None:
    parallel.prepare(4)
    hook = HOOK_TYPE(parallel.address())
    visits = loops.visits()
    thread = threading.Thread(target=hook, args=(loops.body("count"), visits.address, SIZE))
    thread.start()
    thread.join()
    assert set(visits.counts) == {1}
    assert set(visits.workers) == {0}


def test_many_python_threads_at_once(loops: Loops) -> None:
    wrong: list[int] = []

    def caller(seed: int) -> None:
        draw = random.Random(seed)
        for _ in range(200):
            visits = loops.visits()
            name, count, ran = draw.choice((("count", 40, 40), ("nest", 16, 256), ("fail", 1, 1)))
            with config.scope(num_threads=draw.choice(THREADS)):
                code = parallel.parallel_for(loops.body(name), visits.address, count)
            if code or list(visits.counts[: ran + 1]) != [1] * ran + [0]:
                wrong.append(seed)

    threads = [threading.Thread(target=caller, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_loop_body_may_be_a_python_function() -> None:
    seen: list[int] = []

    @ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32)
    def body(context: int | None, index: int, worker: int) -> int:
        seen.append(index)
        return 0

    with config.scope(num_threads=3):
        address = ctypes.cast(body, ctypes.c_void_p).value
        assert address is not None
        assert parallel.parallel_for(address, 0, 30) == 0
    assert sorted(seen) == list(range(30))


def test_threads_end_and_start_again(loops: Loops) -> None:
    def alive() -> int:
        return sum(thread.name.startswith("tensorc-") for thread in threading.enumerate())

    for _ in range(5):
        parallel.prepare(4)
        assert alive() >= 3
        parallel.stop()
        assert alive() == 0
        visits = loops.visits()
        assert parallel.parallel_for(loops.body("count"), visits.address, 40) == 0
        assert sum(visits.counts) == 40


def test_threads_end_while_others_run_loops(loops: Loops) -> None:
    wrong: list[int] = []
    running = True

    def caller() -> None:
        while running:
            visits = loops.visits()
            code = parallel.parallel_for(loops.body("exclusive"), visits.address, 20)
            if code or sum(visits.counts) != 20:
                wrong.append(code)

    with config.scope(num_threads=3):
        threads = [threading.Thread(target=contextvars.copy_context().run, args=(caller,))]
        threads += [threading.Thread(target=contextvars.copy_context().run, args=(caller,))]
    for thread in threads:
        thread.start()
    for _ in range(50):
        parallel.stop()
        time.sleep(0.001)
    running = False
    for thread in threads:
        thread.join()
    assert wrong == []
    test_workers_take_part(loops)


def test_idle_threads_use_no_processor(loops: Loops) -> None:
    visits = loops.visits()
    with config.scope(num_threads=4):
        parallel.parallel_for(loops.body("count"), visits.address, 40)
    used, start = time.process_time(), time.perf_counter()
    time.sleep(0.3)
    assert time.process_time() - used < 0.25 * (time.perf_counter() - start)


def test_bad_counts_are_refused() -> None:
    for count in (0, -1, config.MAX_THREADS + 1):
        with pytest.raises(ArgumentError, match="4096"):
            parallel.prepare(count)


def test_refused_threads_are_an_error(loops: Loops, monkeypatch: pytest.MonkeyPatch) -> None:
    parallel.stop()

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(LimitError, match=r"worker thread 1 of 2.*at most 1") as caught:
        parallel.prepare(3)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    monkeypatch.undo()
    assert parallel.prepare(3) == 3
    visits = loops.visits()
    assert parallel.parallel_for(loops.body("meet"), visits.address, 2) == 0


# --- other systems, and objects that leave the process ------------------------------------------


@pytest.fixture
def polling() -> Iterator[parallel._Pool]:
    """The pool as it is on a system without futexes."""
    if platform.system() == "Windows":
        pytest.skip("has no nanosleep")
    pool = parallel._Pool("FreeBSD")
    yield pool
    assert pool.finish()


def test_sleep_without_futex(polling: parallel._Pool) -> None:
    loops = Loops(polling.hook)
    polling.prepare(3)
    for repeat in range(60):
        visits = loops.visits()
        body = loops.body("meet" if repeat % 3 == 0 else "count")
        count = 2 if repeat % 3 == 0 else 20
        assert polling.loop(body, visits.address, count) == 0
        assert sum(visits.counts) == count
        if repeat % 10 == 0:
            time.sleep(0.003)


@pytest.mark.parametrize(
    ("text", "system"),
    [
        ("cpu:x86-64-v2;triple=x86_64-pc-windows-msvc", "Windows"),
        ("cpu:generic;triple=aarch64-linux-gnu", "Linux"),
        ("cpu:apple-m1;triple=arm64-apple-macosx", "Darwin"),
        ("cpu:generic;triple=riscv64-linux-gnu", "Linux"),
    ],
)
def test_the_pool_compiles_for_other_systems(text: str, system: str) -> None:
    target = Target.parse(text)
    assembly = compile_module(pool_text(target.architecture, system), target).assembly()
    assert HOOK in assembly


@cache
def serial(text: str = "cpu") -> CompiledModule:
    bodies = BODIES.replace(HOOK_DECLARATION, SERIAL_HOOK)
    return compile_module(bodies, Target.parse(text), symbols={YIELD: yield_address()})


@given(st.lists(st.sampled_from((0, 0, 0, 5, -7)), max_size=20))
def test_the_serial_hook_agrees(codes: list[int]) -> None:
    module, visits = serial(), Visits(codes)
    first = next((index for index, code in enumerate(codes) if code), len(codes))
    hook = HOOK_TYPE(module.address(HOOK))
    assert hook(module.address("fail"), visits.address, len(codes)) == [*codes, 0][first]
    ran = min(first + 1, len(codes))
    assert list(visits.counts[: len(codes)]) == [1] * ran + [0] * (len(codes) - ran)


def test_the_serial_hook_is_weak() -> None:
    module = serial("cpu:x86-64-v2;triple=x86_64-linux-gnu")
    table = symbols_of(module.object_bytes())
    assert table is not None
    assert table.undefined == (YIELD,)
    assert HOOK in table.defined
    assert f".weak\t{HOOK}" in module.assembly()
    for triple in ("x86_64-pc-windows-msvc", "arm64-apple-macosx", "wasm32-unknown-unknown"):
        assert HOOK in serial(f"cpu:generic;triple={triple}").assembly()


# --- processes ----------------------------------------------------------------------------------

PROLOGUE = """
import os, sys, threading, time
from tensorc import config
from tensorc.runtime import parallel
from tests.runtime.loops import Loops
config.num_threads = 4
loops = Loops(parallel.address())
def right(body="count", count=40):
    visits = loops.visits()
    code = parallel.parallel_for(loops.body(body), visits.address, count)
    return code == 0 and list(visits.counts[: count + 1]) == [1] * count + [0]
assert right()
"""


def run(script: str) -> str:
    """The output of a script in a process of its own, which must end by itself, in order."""
    # Python warns of a fork beside threads, which is just what these scripts are about.
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", PROLOGUE + script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


needs_fork = pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")

FORK = """
for _ in range(20):
    child = os.fork()
    if child == 0:
        alone = not any(t.name.startswith("tensorc") for t in threading.enumerate())
        fine = alone and all(right() for _ in range(20)) and right("meet", 2)
        os._exit(0 if fine else 1)
    assert right()
    assert os.waitpid(child, 0)[1] == 0
"""


@needs_fork
def test_a_child_makes_its_own_threads() -> None:
    run(FORK)


@needs_fork
def test_fork_while_another_thread_is_in_a_loop() -> None:
    run(
        """
busy = True
def keep_busy():
    while busy:
        assert right(count=400)
threads = [threading.Thread(target=keep_busy) for _ in range(2)]
for thread in threads:
    thread.start()
"""
        + FORK
        + """
busy = False
for thread in threads:
    thread.join()
"""
    )


@needs_fork
def test_grandchildren_and_multiprocessing() -> None:
    script = """
import multiprocessing
def work(_):
    child = os.fork()
    if child == 0:
        os._exit(0 if right() else 1)
    return right() and os.waitpid(child, 0)[1] == 0
with multiprocessing.get_context("fork").Pool(2) as pool:
    print(all(pool.map(work, range(10))))
"""
    assert run(script) == "True\n"


def test_the_first_use_from_many_threads() -> None:
    script = """
import threading
from tensorc.runtime import parallel
gate = threading.Barrier(8)
found = []
def ask():
    gate.wait()
    found.append((parallel.address(), parallel.prepare(2)))
threads = [threading.Thread(target=ask) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(found), len(set(found)))
"""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "8 1\n"


def test_exit_with_sleeping_and_with_spinning_threads() -> None:
    run("time.sleep(0.1)")
    run("")


def test_exit_runs_late_loops_alone() -> None:
    script = """
import atexit
atexit._clear()
def late():
    parallel._pool().finish()
    visits = loops.visits()
    code = parallel.parallel_for(loops.body("count"), visits.address, 40)
    print(code, sum(visits.counts), set(visits.workers[:40]))
atexit.register(late)
"""
    assert run(script) == "0 40 {0}\n"


def test_exit_while_a_daemon_thread_is_in_an_endless_loop() -> None:
    script = """
def endless():
    visits = loops.visits()
    parallel.parallel_for(loops.body("forever"), visits.address, 4)
threading.Thread(target=endless, daemon=True).start()
time.sleep(0.1)
"""
    run(script)


def test_exit_while_daemon_threads_run_loops() -> None:
    script = """
def endless():
    while True:
        right()
for _ in range(3):
    threading.Thread(target=endless, daemon=True).start()
time.sleep(0.1)
"""
    run(script)


def test_import_starts_nothing() -> None:
    script = "import threading, tensorc.runtime.parallel; print(threading.active_count())"
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "1\n"
