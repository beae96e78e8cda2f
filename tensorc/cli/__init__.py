"""The command line: `tensorc run|tasks|tune|compile|show|check|replay|explain|bench|...`."""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """The entry point of the console script."""
    try:
        import tensorc.cli.searches  # noqa: F401
        from tensorc.cli.train import app
    except ModuleNotFoundError as missing:
        if missing.name not in ("typer", "rich"):
            raise
        raise SystemExit(
            f"tensorc: the command line needs {missing.name}: pip install 'tensorc[cli]'"
        ) from None
    app()
