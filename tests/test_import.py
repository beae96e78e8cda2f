"""`import tensorc` is cheap and pulls in nothing; the IR needs no numpy; all public names exist."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import subprocess
import sys
import time
from pathlib import Path

import tensorc
import tensorc.ir

HEAVY = ("numpy", "islpy", "torch", "cupy", "llvmlite", "hypothesis")
BUDGET = 0.150  # seconds over a bare interpreter


def run(code: str) -> str:
    """The output of `code` in a fresh interpreter that treats every warning as an error."""
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def loaded_after(statement: str) -> list[str]:
    code = f"import sys\n{statement}\nprint(*(n for n in {HEAVY} if n in sys.modules))"
    return run(code).split()


def seconds(code: str) -> float:
    start = time.perf_counter()
    run(code)
    return time.perf_counter() - start


def test_import_pulls_in_nothing() -> None:
    assert loaded_after("import tensorc") == []
    assert loaded_after("import tensorc; dir(tensorc); tensorc.config.num_threads") == []


def test_the_check_sees_what_is_imported() -> None:
    assert loaded_after("import numpy") == ["numpy"]


def test_import_cost() -> None:
    # Best of alternating runs: a busy machine only ever adds time, to both alike.
    run("import tensorc")
    bare, package = [], []
    for _ in range(10):
        bare.append(seconds("pass"))
        package.append(seconds("import tensorc"))
        if min(package) - min(bare) <= BUDGET and len(bare) >= 3:
            return
    assert min(package) - min(bare) <= BUDGET


def test_ir_needs_none_of_the_libraries() -> None:
    names = [
        module.name
        for module in pkgutil.iter_modules(tensorc.ir.__path__, "tensorc.ir.")
        if module.name != "tensorc.ir.interp"
    ]
    assert "tensorc.ir.nodes" in names
    small = ["tensorc.errors", "tensorc.dtype", "tensorc.config"]
    assert loaded_after("import " + ", ".join(names + small)) == []


def names_for_type_checkers() -> dict[str, str]:
    """The names imported under TYPE_CHECKING in `tensorc/__init__.py`, and their modules."""
    tree = ast.parse(Path(tensorc.__file__).read_text(encoding="utf-8"))
    found: dict[str, str] = {}
    for block in tree.body:
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING":
            for line in block.body:
                assert isinstance(line, ast.ImportFrom), "one form of import, please"
                assert line.module is not None
                for alias in line.names:
                    name = alias.name
                    assert alias.asname == name, "only `name as name` is public to mypy --strict"
                    whole = line.module == "tensorc"
                    found[name] = f"tensorc.{alias.name}" if whole else line.module
    return found


def test_lazy_names_are_what_type_checkers_see() -> None:
    assert names_for_type_checkers() == tensorc._MODULE_OF


def test_every_public_name_exists() -> None:
    for name, path in tensorc._MODULE_OF.items():
        module = importlib.import_module(path)
        expected = module if path == f"tensorc.{name}" else getattr(module, name)
        assert getattr(tensorc, name) is expected
        assert name in dir(tensorc)


def test_only_public_names_are_listed() -> None:
    import tensorc.errors

    assert set(dir(tensorc)) == {*tensorc._MODULE_OF, "__version__"}


def test_a_type_checker_knows_which_names_exist(tmp_path: Path) -> None:
    """As a user's checker sees the package: what exists is typed, what does not is reported."""
    program = tmp_path / "program.py"
    program.write_text(
        "import tensorc as tc\n"
        "reveal_type(tc.Target.parse)\n"
        "tc.no_such_name\n"
        "from tensorc import nor_this\n"
    )
    command = [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", str(program)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=Path(tensorc.__file__).parents[1]
    )
    revealed, unknown, neither, _ = done.stdout.splitlines()
    assert "tensorc.target.Target" in revealed
    assert 'Module has no attribute "no_such_name"' in unknown
    assert 'Module "tensorc" has no attribute "nor_this"' in neither


def test_unknown_name() -> None:
    assert not hasattr(tensorc, "no_such_name")
    assert run("try: from tensorc import nothing\nexcept ImportError: print('refused')") == (
        "refused\n"
    )
