"""Engines that are connected here, and the jobs that each of them has."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from detent.lifecycle.job import Job, JobState
from detent.stores.api import Body, Key, Note, Stored, key_of
from detent.surfaces.engines.shown import user_of
from detent.surfaces.engines.wire import Wire
from detent.surfaces.http.caller import Caller

_NOTHING: Final = "{}"


class Peer:
    """The other end of a namespace of a connection, and who calls there."""

    def __init__(self, sid: str, caller: Caller, wire: Wire) -> None:
        self.sid = sid
        self.caller = caller
        self.wire = wire
        self.is_open = True


class Held:
    """A job in an engine's hands, as it was last seen here; what it is about is not kept."""

    def __init__(self, stored: Stored) -> None:
        body = Body(stored.body.type, _NOTHING, _NOTHING, retry=stored.body.retry)
        self.stored = replace(stored, body=body, failures=(), note=None)
        self.lease = stored.job.lease or ""
        self.turn = asyncio.Lock()
        """Messages about one job are answered in the order they came."""
        self.user = user_of(stored.body.meta)
        self.told = stored.job.version if stored.job.state is JobState.ACTIVE else 0
        """The version that subscribers were told of."""
        self.lines = 0
        self.note: Note | None = None

    @property
    def job(self) -> Job:
        """The record."""
        return self.stored.job

    def hear(self, job: Job) -> None:
        """Take in a newer version of the record."""
        if job.version > self.stored.job.version:
            self.stored = replace(self.stored, job=job)


class Link:
    """An engine that is connected and was let in."""

    def __init__(self, peer: Peer, key: Key, holder: str) -> None:
        self.peer = peer
        self.key = key
        self.holder = holder
        self.types: tuple[str, ...] = ()
        self.queues: tuple[str, ...] = ()
        self.capacity = 0
        self.held: dict[str, Held] = {}
        self.is_open = True
        self.heard_at = time.monotonic()
        self.is_fresh = False
        """Whether it was heard of since the last beat that was written for it."""

    @property
    def tenant(self) -> str:
        """Whose engine it is."""
        return self.key[0]

    @property
    def room(self) -> int:
        """How many jobs more it takes."""
        return max(self.capacity - len(self.held), 0) if self.is_open else 0

    @property
    def taste(self) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
        """What it takes: engines that take the same share it."""
        return self.tenant, self.queues, self.types

    def hear(self) -> None:
        """A sign of life."""
        self.heard_at = time.monotonic()
        self.is_fresh = True


class Links:
    """All engines that are connected to this server."""

    def __init__(self) -> None:
        self._by_sid: dict[str, Link] = {}
        self._holding: dict[Key, list[Link]] = {}
        self.bell = asyncio.Event()
        """Rings when an engine may take more than before."""

    def __iter__(self) -> Iterator[Link]:
        return iter(tuple(self._by_sid.values()))

    def __len__(self) -> int:
        return len(self._by_sid)

    def of(self, sid: str) -> Link | None:
        """The engine that speaks on a connection."""
        return self._by_sid.get(sid)

    def named(self, key: Key) -> Link | None:
        """The engine of a name."""
        return next((link for link in self if link.key == key), None)

    def add(self, link: Link) -> None:
        """Add an engine that was let in."""
        self._by_sid[link.peer.sid] = link
        self.bell.set()

    def remove(self, link: Link) -> None:
        """Forget an engine, and the jobs that it held here."""
        link.is_open = False
        if self._by_sid.get(link.peer.sid) is link:
            del self._by_sid[link.peer.sid]
        for name in tuple(link.held):
            self.drop(link, name)

    def hold(self, link: Link, stored: Stored) -> Held:
        """The engine has this job now."""
        held = Held(stored)
        if stored.job.id in link.held:
            self.drop(link, stored.job.id)
        link.held[stored.job.id] = held
        self._holding.setdefault(key_of(stored.job), []).append(link)
        return held

    def drop(self, link: Link, name: str) -> None:
        """The engine has done with the job, or is to have."""
        held = link.held.pop(name, None)
        if held is None:
            return
        key = key_of(held.job)
        left = [one for one in self._holding.get(key, ()) if one is not link]
        if left:
            self._holding[key] = left
        else:
            self._holding.pop(key, None)
        self.bell.set()

    def holding(self, key: Key) -> Sequence[Link]:
        """Who has the job, as far as is known here."""
        return tuple(self._holding.get(key, ()))


def cancel_of(held: Held, code: str, why: str | None = None) -> dict[str, str]:
    """What an engine that is to stop is told: which run, and why."""
    reason = f"{code}: {why}" if why else code
    return {"jobId": held.job.id, "lease": held.lease, "reason": reason}
