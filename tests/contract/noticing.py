"""Writes down where each planted bug is noticed: `python -m tests.contract.noticing`.

What is written is only where to look first; a bug that is noticed elsewhere is noticed too.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import msgspec

from tests.contract.test_planted import BUGS, FILE, NOT_BY_CHANCE, Place, differs, noticed_by


def place_of(bug: str) -> Place:
    """The first promise that it breaks, and the first seed that shows it."""
    with tempfile.TemporaryDirectory() as folder:
        seed = None if bug in NOT_BY_CHANCE else differs(BUGS[bug], Path(folder))
    return Place(noticed_by(BUGS[bug]), seed or 0)


if __name__ == "__main__":
    places = {bug: place_of(bug) for bug in sorted(BUGS)}
    FILE.write_bytes(msgspec.json.format(msgspec.json.encode(places)) + b"\n")
