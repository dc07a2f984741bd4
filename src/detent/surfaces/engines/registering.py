"""Engines come, go on where they were, beat, and go."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any, Final
from weakref import WeakValueDictionary

from detent.engine.access import Scope
from detent.engine.engines import TRUST_US, Entered, Seated
from detent.lifecycle.views import CANCELLED_CODE
from detent.stores.api import Key, key_of
from detent.surfaces.engines.desk import ENGINE, Desk
from detent.surfaces.engines.faults import Fault
from detent.surfaces.engines.links import Link, Links, Peer, cancel_of
from detent.surfaces.engines.messages import Heartbeat, Register

_log = logging.getLogger(__name__)

QUEUE: Final = "engines"
"""Where jobs for engines are, unless somebody says otherwise."""
BEAT_MS: Final = 5_000
"""How often an engine is to say that it lives; three times in vain and it is lost."""
_TURN_S: Final = 1.0


class Registering:
    """Who is there, and for how long they are trusted."""

    def __init__(self, desk: Desk, links: Links) -> None:
        self._desk = desk
        self._links = links
        self._turns: WeakValueDictionary[Key, asyncio.Lock] = WeakValueDictionary()

    # --- coming and going -----------------------------------------------------------------------

    async def register(self, peer: Peer, asked: Register) -> dict[str, Any]:
        """Let an engine in; what it goes on with and what it has lost is told."""
        peer.caller.need_scope(Scope.WORK)
        queues = tuple(dict.fromkeys(asked.queues or (QUEUE,)))
        peer.caller.need_queue(*queues)
        if self._desk.service.stopping.is_set():
            raise Fault("UNAVAILABLE", "this server is about to stop; try another, or again soon")
        key, before = (peer.caller.tenant, asked.engine_id), self._links.of(peer.sid)
        if before is not None and before.key != key:
            why = f"this connection is engine {before.key[1]}; use one connection per engine"
            raise Fault("ENGINE_IN_USE", why, field="engineId")
        if peer.caller.is_bound:
            # Coming in under the id of an engine that is away ends what that one held.
            peer.caller.need_queue(*await self._desk.engine.engines.queues(key))
        turn = self._turns.setdefault(key, asyncio.Lock())
        async with turn:
            return await self._registered(peer, key, asked, queues)

    async def _registered(
        self, peer: Peer, key: Key, asked: Register, queues: tuple[str, ...]
    ) -> dict[str, Any]:
        types = tuple(dict.fromkeys(asked.job_types))
        coming = Seated(
            boot=asked.boot_id,
            seat=peer.sid,
            types=types,
            queues=queues,
            capacity=asked.capacity,
        )
        presented = {one.job_id: one.lease for one in asked.resume}
        entered = await self._desk.engine.engines.enter(key, coming, presented)
        link = await self._linked(peer, key, entered)
        link.types, link.queues, link.capacity = types, queues, asked.capacity
        if not peer.is_open:
            await self.leave(peer)
        await self._remind(link)
        _log.info("engine %s is here as %s", key[1], link.holder)
        return {
            "engineId": key[1],
            "resumed": list(link.held),
            "lost": list(entered.lost),
            "heartbeatMs": BEAT_MS,
            "trustMs": TRUST_US // 1_000,
        }

    async def _remind(self, link: Link) -> None:
        """What was called off while it was away, it cannot have heard of."""
        for held in tuple(link.held.values()):
            if held.job.cancel_at is not None:
                told = cancel_of(held, CANCELLED_CODE)
                await self._desk.sockets.tell(ENGINE, link.peer.sid, "cancel", told)

    async def _linked(self, peer: Peer, key: Key, entered: Entered) -> Link:
        """The link of this connection; one that the engine had before is cut."""
        before = self._links.named(key)
        if before is not None:
            self._links.remove(before)
            if before.peer.sid != peer.sid:
                await self._desk.sockets.part(ENGINE, before.peer.sid)
        link = Link(peer, key, entered.holder)
        for stored in entered.held:
            self._links.hold(link, stored)
        self._links.add(link)
        return link

    async def leave(self, peer: Peer) -> None:
        """The connection is gone; the clock begins."""
        link = self._links.of(peer.sid)
        if link is None:
            return
        self._links.remove(link)
        _log.info("engine %s has disconnected", link.key[1])
        await self._desk.engine.engines.leave(link.key, peer.sid)

    # --- signs of life --------------------------------------------------------------------------

    async def heartbeat(self, link: Link, beat: Heartbeat) -> dict[str, Any]:
        """It lives; of the jobs it names it is told which are not its own any more."""
        return {"gone": [name for name in beat.jobs if name not in link.held]}

    async def run(self) -> None:
        """Write down signs of life and notes, and let go of those who are silent."""
        while await self._desk.service.pause(_TURN_S):
            await self._beat([link for link in self._links if link.is_fresh])
            await self._note()
            await self._let_go()

    async def _beat(self, links: list[Link]) -> None:
        for link in links:
            link.is_fresh = False
        alive = await self._desk.engine.engines.beat([link.holder for link in links])
        for link, is_alive in zip(links, alive, strict=True):
            if not is_alive:
                _log.warning("engine %s was given up; it must register anew", link.key[1])
                await self._cut(link)

    async def _note(self) -> None:
        told = [held for link in self._links for held in link.held.values() if held.note]
        notes = [(key_of(held.job), held.lease, held.note) for held in told if held.note]
        for held in told:
            held.note = None
        if notes:
            await self._desk.engine.store.note(notes, now=self._desk.now())

    async def _let_go(self) -> None:
        """Of the silent, and of those who speak with another server by now."""
        links = list(self._links)
        seats = await self._desk.engine.engines.seats([link.key for link in links])
        late = time.monotonic() - TRUST_US / 1e6
        for link, seat in zip(links, seats, strict=True):
            if seat != link.peer.sid or link.heard_at < late:
                await self._cut(link)

    async def _cut(self, link: Link) -> None:
        self._links.remove(link)
        await self._desk.sockets.part(ENGINE, link.peer.sid)
