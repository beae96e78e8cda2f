"""A condition on data was read as if its arithmetic did not wrap: -u8(1) is 255, not -1.

So an element counted as never read, and its copy was never made.
"""

from tests.schedule.checking import check, refused, schedule

READ = """
def f(D: Buffer["bool", 4, "out"]):
    C = alloc("u8", 4)
    for i in range(4):
        for j in range(4):
            C[j] = 1
            D[j] = select({condition}, C[j] > 0, False)
"""


def test_a_negative_of_an_unsigned_number() -> None:
    s = schedule(READ.format(condition="-(u8(1)) >= 4"))
    with refused(s, "UNS001"):
        s.cache_read("D", "C", at="i", layout=("j",))


def test_a_sum_that_wraps() -> None:
    s = schedule(READ.format(condition="u8(200) + u8(100) < 250"))
    with refused(s, "UNS001"):
        s.cache_read("D", "C", at="i", layout=("j",))


def test_conditions_on_loops_are_read_exactly() -> None:
    s = schedule(READ.format(condition="-j - 1 >= 4"))
    s.cache_read("D", "C", at="i", layout=("j",))
    check(s)
