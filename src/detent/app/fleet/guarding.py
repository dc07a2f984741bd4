"""Watches the file of a store: it must stay the one that was opened.

Whoever has a file open can go on writing to it after it was deleted, and nobody else will ever see
that. A fleet whose file was deleted or replaced ends with an error instead.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Final

from detent import stores
from detent.errors import StoreBroken

_log = logging.getLogger("detent.fleet")
_LOOK_S: Final = 2.0
_LOOKS: Final = 2
"""A look may fall between the two steps of somebody who puts the same file back."""


async def guard(url: str) -> None:
    """Raise when the file is not there any more, or another one is; for ever where there is none.

    To be called when the store is open.
    """
    path = stores.file_of(url)
    await (asyncio.Event().wait() if path is None else gone(path))
    raise StoreBroken(
        f"The file {path} was deleted or replaced while it was in use: what is written there now,"
        " nobody will see. Put the right one in its place, and start again",
        path=str(path),
    )


async def mind(folder: Path) -> None:
    """Say so when the state folder has gone. That is no reason to end: the jobs are elsewhere."""
    await gone(folder / "lock")
    _log.error(
        "the state folder %s was deleted or replaced: what workers write is kept no more, and who"
        " starts after a crash will not know of them. Start this fleet again when it suits you",
        folder,
    )
    await asyncio.Event().wait()


async def gone(path: Path, look_s: float = _LOOK_S) -> None:
    """Come back when the file that is there now is there no more."""
    known, missed = _identity(path), 0
    while missed < _LOOKS:
        await asyncio.sleep(look_s)
        missed = 0 if _identity(path) == known else missed + 1


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
