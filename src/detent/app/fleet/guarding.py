"""A store that is a file: whether it is still the one that was opened.

Whoever has a file open can go on writing to it after it was deleted, and nobody else will ever see
that. A fleet whose file was deleted or replaced ends with an error instead.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from detent import stores
from detent.errors import StoreBroken

__all__ = ["guard"]

_LOOK_S: Final = 2.0
_LOOKS: Final = 2
"""A look may fall between the two steps of somebody who puts the same file back."""


async def guard(url: str) -> None:
    """Raise when the file is not there any more, or another one is; for ever where there is none.

    To be called when the store is open.
    """
    path = stores.file_of(url)
    known = None if path is None else _identity(path)
    missed = 0
    while missed < _LOOKS:
        await asyncio.sleep(_LOOK_S)
        missed = 0 if path is None or _identity(path) == known else missed + 1
    raise StoreBroken(
        f"The file {path} was deleted or replaced while it was in use: what is written there now,"
        " nobody will see. Put the right one in its place, and start again",
        path=str(path),
    )


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
