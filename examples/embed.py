"""A kernel without Python: an object file and a header, called from a C program.

Usage: python examples/embed.py [FOLDER]
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import tensorc as tc

PROGRAM = """\
#include <stdio.h>
#include "saxpy.h"

int main(void) {
    enum { N = 5 };
    float x[N] = {1, 2, 3, 4, 5}, y[N] = {10, 20, 30, 40, 50};
    if (saxpy(2.0f, x, y, N) != 0) return 1;
    for (int i = 0; i < N; i++) printf("%g\\n", y[i]);
    return 0;
}
"""


@tc.func
def saxpy(a: tc.f32, X: tc.Buffer["f32", "N"], Y: tc.Buffer["f32", "N", "inout"]):
    for i in range(N):
        Y[i] = a * X[i] + Y[i]


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
    s = tc.Schedule(saxpy)
    s.vectorize(s.split("i", 16)[1])
    kernel, header = tc.build(s).save(folder / "saxpy.o")
    print(header.read_text())
    (folder / "main.c").write_text(PROGRAM)
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        sys.exit(f"no C compiler was found; {kernel}, {header} and main.c are in {folder}")
    command = [compiler, "-std=c99", "main.c", kernel.name, "-o", "main"]
    subprocess.run(command, cwd=folder, check=True)
    done = subprocess.run(["./main"], cwd=folder, check=True, capture_output=True, text=True)
    print(done.stdout)


if __name__ == "__main__":
    main()
