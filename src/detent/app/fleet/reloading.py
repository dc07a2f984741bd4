"""Development: workers are started anew when a file of the program changes."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

from detent.errors import DetentError

if TYPE_CHECKING:
    from detent.app.fleet.fleet import Fleet

_log = logging.getLogger("detent.fleet")
_LOOK_S: Final = 0.5
_SKIPPED: Final = frozenset(("node_modules", "__pycache__", "site-packages"))
_FILES_MAX: Final = 10_000


class Reloading:
    """While it is entered, the Python files of the program are watched, as they were at first.

    Those are all below the working directory, and below that of the program if it is elsewhere. It
    is made before any worker is, or what changes while they start would never be noticed.
    """

    def __init__(self, fleet: Fleet, *, is_on: bool) -> None:
        self._fleet = fleet
        self._is_on = is_on
        self._folders = _folders(fleet.orders.told.reference, Path(fleet.orders.home or ""))
        self._known = self._seen() if is_on else {}
        self._task: asyncio.Task[None] | None = None

    def __enter__(self) -> Reloading:
        if self._is_on:
            self._task = asyncio.create_task(self._watch())
        return self

    def __exit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            seen = await asyncio.to_thread(self._seen)
            if seen != self._known:
                self._known = seen
                await self._reload()

    async def _reload(self) -> None:
        """Whoever still runs a job goes when that is done: no change is to wait for it."""
        try:
            await self._fleet.reload(patient=False)
            _log.warning("the program has changed; all workers run the new one")
        except DetentError as error:
            _log.error("who could not be replaced stays as it was: %s", error)
        except Exception:
            _log.exception("the program has changed, and could not be started anew")

    def _seen(self) -> dict[Path, int]:
        """When each file was last changed."""
        seen: dict[Path, int] = {}
        been: set[tuple[int, int]] = set()
        for path in chain.from_iterable(python_files(folder, been) for folder in self._folders):
            try:
                seen[path] = path.stat().st_mtime_ns
            except OSError:
                continue
            if len(seen) >= _FILES_MAX:
                break
        return seen


def _folders(reference: str, here: Path) -> list[Path]:
    place = reference.partition(":")[0]
    # A module was imported to know the store, so it is known where it is.
    file = place if place.endswith(".py") else getattr(sys.modules.get(place), "__file__", None)
    there = here if file is None else (here / file).resolve().parent
    return [here] if there.is_relative_to(here) else [here, there]


def python_files(folder: Path, been: set[tuple[int, int]]) -> Iterator[Path]:
    """The Python files below a folder; links may lead back to where it has `been`."""
    try:
        status = folder.stat()
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError:
        return
    place = (status.st_dev, status.st_ino)
    if place in been:
        return
    been.add(place)
    for entry in entries:
        if entry.name.startswith(".") or entry.name in _SKIPPED:
            continue
        if _is_folder(entry):
            yield from python_files(Path(entry.path), been)
        elif entry.name.endswith(".py"):
            yield Path(entry.path)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """One of ours: neither an environment, nor one that we may not look at."""
    try:
        return entry.is_dir() and not Path(entry.path, "pyvenv.cfg").exists()
    except OSError:
        return False
