"""The mark of upkeep in the store: it shows whether leases were watched without a gap.

Whoever has just started cannot know whether everybody else could renew until now. The mark tells:
if somebody's turn was a moment ago, there was no gap. If nobody's was, everybody gets a lease's
length of grace, and its end stands in the mark too, for all of them. A grace is used up by time
that was watched: of a silence between two turns no more counts than would be no gap.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from detent.engine.identity import Identity
from detent.host import host_name
from detent.lifecycle.profile import HEARTBEAT_LEASE_US
from detent.stores.api import Committed, Outcome, Own, Record, Store, Unit

KIND: Final = "upkeep"
ID: Final = "mark"
GAP_US: Final = 3_000_000
"""A longer silence of all of us means that others may have been silenced too."""
_EVERY_US: Final = 1_000_000
_AHEAD_US: Final = 5_000_000
"""Clocks may differ by so much; a mark that is further ahead was made by a clock gone wrong."""
_PRUNE_US: Final = 3_600 * 1_000_000
_SEAL_US: Final = 55 * 1_000_000
"""A little less than the minute after which everybody asks."""
_GRACES: Final = 20
_ATTEMPTS: Final = 3


class Grace(msgspec.Struct, frozen=True):
    """Everybody was trusted from then until then, because nobody had looked for so long."""

    at: int
    until: int
    by: str
    silent_us: int | None = None


class Mark(msgspec.Struct, frozen=True, omit_defaults=True):
    """When anybody's last turn was, until when all are trusted, and the latest graces."""

    at: int = 0
    trusting_until: int = 0
    pruned_at: int = 0
    sealed_at: int = 0
    graces: tuple[Grace, ...] = ()

    def unwatched_us(self, since: int) -> int:
        """How much of the time since then nobody has watched: nobody was there, or it never was.

        As far as the latest graces tell: where somebody looks now and then only, a run that lasts
        through more silences than these is late at last.
        """
        return sum(grace.silent_us or 0 for grace in self.graces if grace.at > since)

    def is_recent(self, now: int) -> bool:
        """Whether somebody has looked so short a time ago that there was no gap."""
        return -_AHEAD_US <= now - self.at <= GAP_US


_decode = msgspec.json.Decoder(Mark).decode


async def read(store: Store) -> Mark:
    """The mark as it stands; a store that nobody has looked after has an empty one."""
    return (await _read(store))[1]


async def _read(store: Store) -> tuple[int, Mark]:
    [record] = await store.record([(KIND, "", ID)])
    if record is None or record.data is None:
        return 0, Mark()
    return record.version, _decode(record.data)


class Marking:
    """One upkeep's view of the mark: it looks once a second, and writes if nobody else has."""

    def __init__(
        self,
        store: Store,
        commit: Callable[[Sequence[Unit]], Awaitable[Sequence[Outcome]]],
        identity: Identity,
    ) -> None:
        self._store = store
        self._commit = commit
        self._identity = identity
        self._looked_at: int | None = None
        self._mark = Mark()
        self.is_set_back = False
        """Whether the turn has found a mark of the future, and is the first who did."""

    async def turn(self, now: int, *, has_gap: bool) -> Mark:
        """The mark for a turn at this instant; `has_gap`: our last was long ago, or never."""
        looked_at, self.is_set_back = self._looked_at, False
        if not has_gap and looked_at is not None and 0 <= now - looked_at < _EVERY_US:
            return self._mark
        for _ in range(_ATTEMPTS):
            version, before = await _read(self._store)
            self._mark, self._looked_at = before, now
            after = _after(before, now, has_gap=has_gap)
            if after is None or await self._put(version, after):
                self._mark = after or before
                self.is_set_back = before.at - now > _AHEAD_US
                break
        return self._mark

    async def may_prune(self, now: int) -> bool:
        """Whether it is our turn to forget workers: once an hour, one of all who look after it."""
        return await self._is_ours("pruned_at", _PRUNE_US, now)

    async def may_seal(self, now: int) -> bool:
        """Whether it is our turn to seal what has happened: once a minute, one of all."""
        return await self._is_ours("sealed_at", _SEAL_US, now)

    async def _is_ours(self, done_at: str, every_us: int, now: int) -> bool:
        if 0 <= now - getattr(self._mark, done_at) < every_us:
            return False
        version, mark = await _read(self._store)
        if 0 <= now - getattr(mark, done_at) < every_us:
            self._mark = mark
            return False
        self._mark = replace(mark, **{done_at: now})
        return await self._put(version, self._mark)

    async def _put(self, version: int, mark: Mark) -> bool:
        record = Record(KIND, ID, version + 1, msgspec.json.encode(mark).decode())
        [outcome] = await self._commit([Unit(self._identity.id(), puts=(record,))])
        return isinstance(outcome, Committed | Own)


def _after(mark: Mark, now: int, *, has_gap: bool) -> Mark | None:
    """The mark that a turn at this instant leaves; `None` if the one that is there is as good."""
    silent = now - mark.at
    if mark.trusting_until > now + HEARTBEAT_LEASE_US + _AHEAD_US:
        # The clock was set back, and nobody is trusted for as long as that.
        return _granting(mark, now, None)
    if mark.is_recent(now):
        return replace(mark, at=now) if silent >= _EVERY_US else None
    if not has_gap:
        return replace(mark, at=now)
    if mark.at <= now and mark.trusting_until > mark.at:
        # A grace was running. What nobody watched of it does not count.
        left_us = mark.trusting_until - mark.at - GAP_US
        return _granting(mark, now, silent, left_us)
    return _granting(mark, now, silent if mark.at else None)


def _granting(mark: Mark, now: int, silent: int | None, us: int = HEARTBEAT_LEASE_US) -> Mark:
    grace = Grace(now, now + us, _name(), silent)
    graces = (*mark.graces, grace)[-_GRACES:]
    return replace(mark, at=now, trusting_until=grace.until, graces=graces)


def _name() -> str:
    return f"{host_name()} {os.getpid()}"
