"""How many bytes wait in a queue that may hold only so many.

Nobody counts them with every job: the mark of the queue (`engine/entering.py`) knows how many there
were when they were counted last, and how many have come since. That is never too little of what
came this way. They are counted anew when it is too much, when something else is set about
the queue, and once a minute, for jobs come by other ways too.
"""

from __future__ import annotations

import time
from typing import Final

import msgspec

from detent.stores.api import Key, Record, Store
from detent.surfaces.ojs.configs import Config

MARK: Final = "ojs-mark"
AGAIN_US: Final = 60_000_000
_TIRED_S: Final = 0.5
"""How long a queue that was too full stays so for those who ask again, if nobody has come in."""
_SEEN_MAX: Final = 1_000


class _Mark(msgspec.Struct, frozen=True, omit_defaults=True):
    """How much the queue held, counted when, and under which settings."""

    weight: int | None = None
    at: int = 0
    under: int = 0


def marked(key: Key, mark: Record | None, config: Config, weight: int | None, now: int) -> Record:
    """The mark as it is when somebody has come in, and the queue weighs so much."""
    before = _read(mark)
    at = before.at if _holds(before, config, now) else now
    after = _Mark() if weight is None else _Mark(weight, at, config.created_at)
    version = 1 if mark is None else mark.version + 1
    return Record(MARK, key[1], version, msgspec.json.encode(after).decode(), tenant=key[0])


class Weighing:
    """Knows how much the queues of a store hold."""

    def __init__(self) -> None:
        self._seen: dict[Key, tuple[int, float, int]] = {}

    async def weight(
        self, store: Store, key: Key, mark: Record | None, config: Config, adding: int
    ) -> int | None:
        """How much it holds; `None` where it may hold any amount."""
        if config.max_bytes is None:
            return None
        before, version = _read(mark), 0 if mark is None else mark.version
        if _holds(before, config, store.now()) and before.weight is not None:
            if before.weight + adding <= config.max_bytes:
                return before.weight
            seen_version, seen_at, seen = self._seen.get(key, (-1, 0.0, 0))
            if seen_version == version and time.monotonic() - seen_at < _TIRED_S:
                return seen
        found = await store.weight(*key)
        if len(self._seen) >= _SEEN_MAX:
            self._seen.clear()
        self._seen[key] = (version, time.monotonic(), found)
        return found


def _read(mark: Record | None) -> _Mark:
    data = None if mark is None else mark.data
    return _Mark() if data is None else msgspec.json.decode(data, type=_Mark)


def _holds(mark: _Mark, config: Config, now: int) -> bool:
    """Whether what was counted then still says something."""
    return mark.under == config.created_at and 0 <= now - mark.at < AGAIN_US
