"""Named SQL statements, read once from the files beside this module.

    -- name: job_head
    SELECT ...

A statement is looked up by its name; there is no other way to SQL in this package.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator
from importlib.resources import files
from typing import Any, Final

from detent.stores.migrations import read
from detent.stores.sqlite.legality import fill

__all__ = ["MIGRATIONS", "NUMBERED", "SQL", "numbered", "split"]

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_HERE = files(__package__)


def split(script: str) -> Iterator[str]:
    """The statements of a script one by one; the body of a trigger stays in one piece."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _statements() -> dict[str, str]:
    found: dict[str, str] = {}
    for file in sorted((_HERE / "sql").iterdir(), key=lambda one: one.name):
        _, *parts = _NAME.split(file.read_text("utf-8"))
        for name, text in zip(parts[::2], parts[1::2], strict=True):
            if name in found:
                raise ValueError(f"two statements are called {name}")
            found[name] = fill(text.strip())
    return found


SQL: Final = _statements()
NUMBERED: Final = frozenset(name for name, text in SQL.items() if re.search(r"\?\d", text))
"""Those whose parameters have numbers, because some are needed twice."""
_NUMBERS: Final = tuple(map(str, range(1, 100)))
MIGRATIONS: Final = read(_HERE / "migrations")


def numbered(values: Iterable[Any]) -> dict[str, Any]:
    """The parameters of such a statement; from Python 3.14 on they cannot be told as a sequence."""
    return dict(zip(_NUMBERS, values, strict=False))
