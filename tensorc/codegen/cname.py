"""Names of a program as names of C: any text becomes an identifier that is free to use."""

from __future__ import annotations

import re
from collections.abc import Container

_UNFIT = re.compile(r"[^A-Za-z0-9_]")

# Keywords of C23 and C++23, those that GCC and MSVC add, types of <stdint.h> and <stddef.h>, and
# the macros without parameters of the headers that many programs include.
_WORDS = frozenset(
    re.findall(
        r"\w+",
        """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t
char32_t class co_await co_return co_yield compl concept const const_cast consteval constexpr
constinit continue decltype default delete do double dynamic_cast else enum explicit export extern
false float for friend goto if import inline int long module mutable namespace new noexcept not
not_eq nullptr operator or or_eq private protected public register reinterpret_cast requires
restrict return short signed sizeof static static_assert static_cast struct switch template this
thread_local throw true try typedef typeid typename typeof typeof_unqual union unsigned using
virtual void volatile wchar_t while xor xor_eq far interface near i386 linux unix
int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t size_t ptrdiff_t intptr_t
uintptr_t complex imaginary errno stderr stdin stdout BUFSIZ EOF FALSE HUGE_VAL I INFINITY NAN NULL
OVERFLOW RAND_MAX TRUE UNDERFLOW
""",
    )
)
_MATHS = """
acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1 fabs fdim
floor fma fmax fmin fmod frexp hypot ilogb j0 j1 jn ldexp lgamma llrint llround log log10 log1p log2
logb lrint lround modf nan nearbyint nextafter pow remainder remquo rint round scalbn sin sinh sqrt
tan tanh tgamma trunc y0 y1 yn
"""
# Functions of the C library and of POSIX, which a global function of such a name would replace.
_LIBRARY = frozenset(
    re.findall(
        r"\w+",
        """
abort abs accept access alarm aligned_alloc asctime assert atexit atof atoi atol atoll bcmp bcopy
bind bsearch bzero calloc clock close connect ctime difftime div dup environ exec exit fclose feof
ferror fflush fgetc fgetpos fgets fopen fork fprintf fputc fputs fread free freopen fscanf fseek
ftell fwrite getc getchar getenv gets getpid gmtime index isalnum isalpha isdigit isfinite isinf
isnan isnormal isspace kill labs ldiv link listen llabs lldiv localtime longjmp lseek main malloc
max mblen memchr memcmp memcpy memmove memset min mktime mmap open pause perror pipe posix_memalign
printf putc putchar puts qsort raise rand random read realloc recv remove rename rewind rindex
scanf select send setbuf setjmp setlocale setvbuf sigaction signal sleep snprintf socket sprintf
srand sscanf stat strcat strchr strcmp strcpy strerror strlen strncpy strstr strtod strtof strtol
strtoul sync system time tmpfile tmpnam truncate ungetc unlink vfprintf vprintf vsnprintf vsprintf
wait write
""",
    )
) | {name + end for name in re.findall(r"\w+", _MATHS) for end in ("", "f", "l")}


def c_name(name: str, taken: Container[str] = (), *, linked: bool = False) -> str:
    """`name` as a C identifier that is no keyword, no common macro and not in `taken`.

    `layer1.weight` becomes layer1_weight, `1234` _1234, `double` double_, and a second `x` x_2.
    A name that the linker will see (`linked`) is no function of the C library either, and none of
    those that start with `tensorc_`.
    """
    made = _UNFIT.sub(_spelt, name) or "_"
    if made[0].isdigit():
        made = f"_{made}"
    if made.startswith("__") or (made[0] == "_" and made[1:2].isupper()):
        # Reserved for the compiler and its library.
        made = f"t{made}"
    if made in _WORDS or (linked and (made in _LIBRARY or made.startswith("tensorc_"))):
        made = f"{made}_"
    if made not in taken:
        return made
    number = 2
    while f"{made}_{number}" in taken:
        number += 1
    return f"{made}_{number}"


def _spelt(match: re.Match[str]) -> str:
    character = match[0]
    return "_" if character.isascii() else f"u{ord(character):04x}"
