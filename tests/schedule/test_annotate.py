"""annotate: notes on loops; every refusal."""

from tests.schedule.checking import check, refused, schedule

TEXT = """
def f(A: Buffer["i32", N], B: Buffer["i32", N, "out"]):
    for i in range(N):
        B[i] = A[i]
"""


def test_a_note_of_one_key_is_replaced() -> None:
    s = schedule(TEXT)
    s.annotate("i", "chunks", 2)
    s.annotate("i", "note", "twice")
    s.annotate("i", "chunks", 3)
    assert 'range(N, chunks=3, note="twice")' in str(s)
    check(s)


def test_a_parallel_loop_takes_notes() -> None:
    s = schedule(TEXT)
    s.parallel("i")
    s.annotate("i", "chunks", 4)
    check(s)


def test_annotate_refused() -> None:
    s = schedule(TEXT)
    with refused(s, "REF001"):
        s.annotate("j", "note", 1)
    with refused(s, "ARG001"):
        s.annotate("i", "no key", 1)
    with refused(s, "ARG001"):
        s.annotate("i", "note", 1.5)  # type: ignore[arg-type]
    with refused(s, "ARG001"):
        s.annotate("i", "prefetch", "B")
    with refused(s, "ARG001"):
        s.annotate("i", "prefetch", 1)
    with refused(s, "ARG001"):
        s.annotate("i", "prefetch_offset", 0)
    with refused(s, "ARG001"):
        s.annotate("i", "prefetch_offset", "A")


def test_a_loop_prefetches_what_it_reads() -> None:
    s = schedule(TEXT)
    s.annotate("i", "prefetch", "A")
    s.annotate("i", "prefetch_offset", 2)
    assert 'range(N, prefetch="A", prefetch_offset=2)' in str(s)
    check(s)
