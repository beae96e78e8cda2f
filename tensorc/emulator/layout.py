"""The memory that compiled kernels, the scheduler in LLVM text and Python share, word by word.

Words are 8 bytes unless said otherwise. Python makes each array with NumPy and reads it by the same
names by which the LLVM texts address it.
"""

from __future__ import annotations

from enum import IntEnum

__all__ = ["Cell", "Context", "Detect", "Found", "Frame", "Log", "Region", "Report", "Status"]

WARP = 32
# A device address is (number of a region) << REGION_SHIFT | offset. Number 0 is never mapped.
REGION_SHIFT = 40
SHARED_REGION, LOCAL_REGION, MODULE_REGION, FIRST_REGION = 1, 2, 3, 4
CELL_BYTES = 64
SLOT_WORDS = 32  # of 4 bytes, per lane: operands from word 0, results from word RESULT
RESULT = 16


class Context(IntEnum):
    """One launch."""

    GRID_X = 0
    GRID_Y = 1
    GRID_Z = 2
    BLOCK_X = 3
    BLOCK_Y = 4
    BLOCK_Z = 5
    THREADS = 6  # of a block
    WARPS = 7
    CTAID_X = 8
    CTAID_Y = 9
    CTAID_Z = 10
    BLOCK = 11  # its linear number
    EPOCH = 12  # counts block barriers and block starts, over all launches of a device
    BLOCK_START = 13  # the epoch at which the block began
    LAUNCH_START = 14
    KEY = 15  # who runs: epoch << 32 | warp clock << 16 | thread
    THREAD = 16
    FRAME = 17  # of the thread that runs
    PARAMETERS = 18
    SHARED = 19
    SHARED_BYTES = 20
    SHARED_CELLS = 21
    SHARED_SHIFT = 22  # log2 of the bytes that a cell stands for
    REGIONS = 23
    REGION_COUNT = 24
    FRAMES = 25
    FRAME_BYTES = 26
    LOCAL_OFFSET = 27  # of local memory in a frame
    CLOCKS = 28  # u16, [warp][lane][lane]: what a lane knows of another's clock; 0 if unused
    SLOTS = 29
    REPORTS = 30
    REPORT_COUNT = 31  # may exceed REPORT_LIMIT, past which reports are counted alone
    LOG = 32
    LOG_COUNT = 33
    LOG_LIMIT = 34
    LOG_FLUSH = 35  # void(void), called when the log is full
    RESUME = 36  # i32(ptr context, ptr frame): runs a thread to its next cut
    OPERATIONS = 37  # void(ptr context, ptr slots, i32 mask)[]: the warp operations
    DETECT = 38
    MULTIPLIER = 39  # odd; the order of threads between two cuts is i * multiplier + addend
    ADDEND = 40
    RANDOM = 41  # 0: the order stays; else the state of a generator
    STEPS = 42  # branches backwards that a thread may take between two cuts
    STATUS = 43  # i32[threads]
    ALIVE = 44  # i32[warps]: lanes that have not returned
    BLOCKS = 45  # the numbers of the blocks in the order of running
    STARTS = 46  # the epoch at which each of them began
    COPIES = 47  # queues of cp.async, one per thread; 0 if the kernel has none
    DYNAMIC_BYTES = 48
    POPCOUNT = 49  # results of bar.red
    ALL = 50
    ANY = 51
    WARP_ORDER = 52  # the least 2^n - 1 that is not below the number of the last warp
    WORDS = 64


class Frame(IntEnum):
    """The head of a thread's frame: words of 4 bytes. Local memory and saved registers follow."""

    STATE = 0  # the cut from which to go on; 0 at the start
    TID_X = 1
    TID_Y = 2
    TID_Z = 3
    THREAD = 4
    MASK = 5  # of the warp operation that is waited for
    OPERATION = 6  # its number; at a barrier what all threads must agree in
    SITE = 7  # of the cut
    VALUE = 8  # the predicate of bar.red
    WHOLE = 9  # 1: the operation needs every lane of the warp, returned or not
    HEAD = 16


class Status(IntEnum):
    """How a thread stopped."""

    RUN = 0
    DONE = 1
    BARRIER = 2
    WARP = 3
    FAULT = 4


class Region(IntEnum):
    """A range of device addresses; the table is indexed by the number in the address."""

    BASE = 0
    BYTES = 1
    WRITABLE = 2  # 0 or BYTES
    CELLS = 3
    SHIFT = 4
    WINDOW = 5  # 1 for shared, 2 for local memory
    WORDS = 8


class Cell(IntEnum):
    """What is remembered of some bytes, in bytes: keys as in Context.KEY, then sites of 4 bytes."""

    WRITE = 0
    READ = 8
    READ_2 = 16
    ATOMIC = 24
    ATOMIC_2 = 32
    WRITE_SITE = 40
    READ_SITE = 44
    READ_2_SITE = 48
    ATOMIC_SITE = 52
    ATOMIC_2_SITE = 56
    # The epoch at which the bytes got a value, 1 from outside of a kernel, 0 never; PENDING while a
    # cp.async is on its way.
    DEFINED = 60


PENDING = 0xFFFFFFFF
REPORT_LIMIT = 64


class Report(IntEnum):
    KIND = 0
    SITE = 1
    OTHER_SITE = 2
    KEY = 3
    OTHER_KEY = 4
    ADDRESS = 5
    BLOCK = 6
    EXTRA = 7
    WORDS = 8


class Found(IntEnum):
    """Kinds of reports."""

    OUT_OF_BOUNDS = 1
    MISALIGNED = 2
    READ_ONLY = 3
    UNINITIALISED = 4
    RACE = 5
    COPY_IN_FLIGHT = 6
    BARRIER_AFTER_EXIT = 7
    BARRIER_DIVERGENCE = 8
    WARP_DIVERGENCE = 9
    SHUFFLE_SOURCE = 10
    TRAP = 11
    STEPS = 12
    COPY_QUEUE = 13
    CLOCK = 14


class Log(IntEnum):
    """One access: epoch << 32 | site << 10 | thread, then the address."""

    WHO = 0
    ADDRESS = 1
    WORDS = 2


class Detect(IntEnum):
    """Bits of Context.DETECT."""

    RACES = 1
    COUNTERS = 2


class Copy(IntEnum):
    """A cp.async on its way; a queue begins with HEAD, TAIL and the number of the open group."""

    HEAD = 0
    TAIL = 1
    GROUP = 2
    FIRST = 4
    TO = 0
    SOURCE = 1  # host address
    SIZES = 2  # bytes to write << 32 | bytes to read
    SITE = 3  # group << 32 | site
    WORDS = 4


COPY_LIMIT = 512
