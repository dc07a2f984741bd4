"""The few statements that this package sends, read once from the file beside it."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Final

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


def _statements() -> dict[str, str]:
    _, *parts = _NAME.split((files(__package__) / "call.sql").read_text("utf-8"))
    return {name: text.strip() for name, text in zip(parts[::2], parts[1::2], strict=True)}


SQL: Final = _statements()
