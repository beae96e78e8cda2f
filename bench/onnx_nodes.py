"""ONNX's own tests of its operators, through the importer: passed, refused, wrong or crashed.

    python -m bench.onnx_nodes                      all tests of bench/onnx_nodes.txt
    python -m bench.onnx_nodes --only 'attention*'  those whose names fit
    python -m bench.onnx_nodes --log nodes.jsonl    keep results, and go on where the log ends
    python -m bench.onnx_nodes --json nodes.json    the counts and reasons as data
    python -m bench.onnx_nodes --list               write the list anew from the installed package

Each test is a model, its inputs and the results to have, in the package `onnx`. It is compiled with
its inputs as examples, run in a process that is stopped when it takes too long, and compared as
ONNX's own runner does. Two kinds of outcome are counted beside "passed" and "wrong":

* "by value": a shape depends on an input, such as that of a reshape, and the network is compiled
  for the value in the example.
* "rounding": results are off by more than the test's tolerance, but by at most two units in the
  last place of the greatest result. For f16 the tolerance is about one unit of each, and the
  expected results come from NumPy, which rounds after each step where we compute in f32.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import multiprocessing
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

LIST = Path(__file__).with_name("onnx_nodes.txt")
VERDICTS = ("passed", "by value", "rounding", "refused", "wrong", "crashed")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a test, with the reason where it did not pass."""

    name: str
    verdict: str
    reason: str
    seconds: float


# One test ---------------------------------------------------------------------------------------


def outcome_of(case: Any, scheduler: str) -> Outcome:
    """Compile and run a test in this process."""
    from tensorc.errors import TensorcError
    from tensorc.graph.compile import compile_network
    from tensorc.graph.onnx_network import load
    from tensorc.target import Target

    start = time.perf_counter()
    inputs, expected = (tuple(map(as_array, arrays)) for arrays in case.data_sets[0])
    verdict = "passed"
    try:
        imported = load(case.model, inputs)
        verdict = "by value" if imported.fixed else verdict
        found = compile_network(imported, Target.parse("cpu"), scheduler)(*inputs)
        reason = difference(found, expected, case.rtol, case.atol)
        if reason:
            beyond = difference(found, expected, case.rtol, case.atol, units=2)
            verdict = "wrong" if beyond else "rounding"
    except TensorcError as error:
        verdict, reason = "refused", shortened(str(error))
    except Exception as error:  # noqa: BLE001 - a crash is what is looked for
        verdict, reason = "crashed", f"{type(error).__name__}: {error}"[:300]
    return Outcome(case.name, verdict, reason, round(time.perf_counter() - start, 3))


def shortened(message: str) -> str:
    """The first problem of an error, without its place."""
    lines = message.splitlines()
    return (lines[1].strip() if len(lines) > 1 else message).partition(" (once")[0][:200]


def as_array(given: Any) -> Any:
    """An input or result of a test; it may be stored as in a file."""
    import onnx

    return onnx.numpy_helper.to_array(given) if isinstance(given, onnx.TensorProto) else given


def difference(
    found: Any, expected: Sequence[Any], rtol: float, atol: float, units: int = 0
) -> str:
    """How results differ from those of a test, by the rules of ONNX's runner; empty if they do not.

    `units` in the last place of the greatest element are allowed in any case.
    """
    given = found if isinstance(found, tuple) else (found,)
    if len(given) != len(expected):
        return f"{len(given)} results, expected {len(expected)}"
    for position, (ours, theirs) in enumerate(zip(given, map(np.asarray, expected), strict=True)):
        if (ours.shape, ours.dtype) != (theirs.shape, theirs.dtype):
            return f"result {position}: {ours.dtype}{ours.shape}, not {theirs.dtype}{theirs.shape}"
        relative, absolute = rtol, atol
        if ours.dtype.name == "bfloat16":
            relative, ours, theirs = 2.0**-6, ours.astype("f4"), theirs.astype("f4")
        if units and ours.dtype.kind == "f" and ours.size:
            largest = np.abs(theirs[np.isfinite(theirs)], dtype="f8").max(initial=0.0)
            absolute = max(atol, units * float(np.finfo(ours.dtype).eps) * largest)
        try:
            np.testing.assert_allclose(ours, theirs, relative, absolute)
        except AssertionError as error:
            return f"result {position}: " + " ".join(str(error).split())[:200]
    return ""


# All of them ------------------------------------------------------------------------------------


def all_cases() -> Mapping[str, Any]:
    """The tests of the installed package by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        return {case.name: case for case in load_model_tests(kind="node")}


def _serve(pipe: Connection, cases: Mapping[str, Any], scheduler: str) -> None:
    warnings.simplefilter("ignore")
    while True:
        name = pipe.recv()
        pipe.send(outcome_of(cases[name], scheduler))


def outcomes(
    names: Sequence[str], cases: Mapping[str, Any], scheduler: str, seconds: float
) -> Iterator[Outcome]:
    """The outcomes of tests, each with a limit in seconds."""
    context = multiprocessing.get_context("fork")
    worker: Any = None
    for name in names:
        if name not in cases:
            yield Outcome(name, "crashed", "the installed onnx has no such test", 0.0)
            continue
        if worker is None:
            pipe, theirs = context.Pipe()
            worker = context.Process(target=_serve, args=(theirs, cases, scheduler), daemon=True)
            worker.start()
            theirs.close()
        pipe.send(name)
        reason = f"more than {seconds:g} s"
        try:
            if pipe.poll(seconds):
                yield pipe.recv()
                continue
        except EOFError:
            worker.join()
            reason = f"the process ended with {worker.exitcode}"
        worker.kill()
        worker.join()
        worker = None
        yield Outcome(name, "crashed", reason, seconds)
    if worker is not None:
        worker.kill()
        worker.join()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="*", help="a pattern of names")
    parser.add_argument("--scheduler", default="default", choices=("default", "none"))
    parser.add_argument("--seconds", type=float, default=120, help="the limit for one test")
    parser.add_argument("--log", type=Path, help="a file of outcomes, one a line")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    cases = all_cases()
    if options.list:
        write_list(cases)
        return 0
    names = [name for name in listed() if fnmatch.fnmatch(name.removeprefix("test_"), options.only)]
    known = read_log(options.log)
    found = [known[name] for name in names if name in known]
    rest = [name for name in names if name not in known]
    for outcome in outcomes(rest, cases, options.scheduler, options.seconds):
        found.append(outcome)
        if options.log:
            with options.log.open("a") as log:
                log.write(json.dumps(asdict(outcome)) + "\n")
        if outcome.verdict in ("wrong", "crashed"):
            print(f"{outcome.verdict}: {outcome.name}: {outcome.reason}", file=sys.stderr)
    print(summary(found))
    if options.json:
        options.json.write_text(json.dumps(as_data(found), indent=1) + "\n")
    return int(any(one.verdict in ("wrong", "crashed") for one in found))


def listed() -> list[str]:
    """The tests to run; the list was made before the importer was."""
    lines = LIST.read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def write_list(cases: Mapping[str, Any]) -> None:
    import onnx

    head = f"# The tests of operators in onnx {onnx.__version__}: {len(cases)}"
    LIST.write_text("\n".join([head, *sorted(cases)]) + "\n")


def read_log(path: Path | None) -> dict[str, Outcome]:
    if path is None or not path.is_file():
        return {}
    each = (Outcome(**json.loads(line)) for line in path.read_text().splitlines() if line)
    return {one.name: one for one in each}


# The table --------------------------------------------------------------------------------------


def as_data(found: Sequence[Outcome]) -> dict[str, Any]:
    counts = Counter(one.verdict for one in found)
    return {
        "counts": {verdict: counts[verdict] for verdict in VERDICTS},
        "outcomes": [asdict(one) for one in found],
    }


def summary(found: Sequence[Outcome]) -> str:
    counts = Counter(one.verdict for one in found)
    total = max(len(found), 1)
    lines = [f"{one:9}{counts[one]:6}{100 * counts[one] / total:7.1f} %" for one in VERDICTS]
    lines.append(f"{'all':9}{len(found):6}   {sum(one.seconds for one in found):.0f} s")
    reasons = Counter(one.reason for one in found if one.verdict == "refused")
    lines += ["", "refused because"]
    lines += [f"{count:6}  {reason}" for reason, count in reasons.most_common()]
    lines += [
        f"{one.verdict}: {one.name}: {one.reason}"
        for one in found
        if one.verdict in ("wrong", "crashed")
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
