"""What a long run has found so far: kept in a log, where the next run goes on."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Self


@dataclass(slots=True)
class Kept:
    """A base of totals: counters, and what else JSON has."""

    def save(self, log: Path) -> None:
        """Write all as JSON; a stop in between leaves the file before."""
        record = {field.name: getattr(self, field.name) for field in fields(self)}
        fresh = log.with_name(f"{log.name}.new")
        fresh.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        fresh.replace(log)

    @classmethod
    def load(cls, log: Path | None) -> Self:
        """What `save` wrote; nothing where there is no such file."""
        if log is None or not log.exists():
            return cls()
        record = json.loads(log.read_text(encoding="utf-8"))
        return cls(**{k: Counter(v) if isinstance(v, dict) else v for k, v in record.items()})
