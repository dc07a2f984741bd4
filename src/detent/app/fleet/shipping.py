"""The journal of a fleet, sent to its store as it grows: there everybody can see it.

The journal is the truth and goes on while the store is away. What was sent is remembered by a
cursor in the journal itself; sent twice, it is there once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from detent.complaining import Complaint
from detent.engine.engine import Engine
from detent.errors import BadHistory, BadJournal, StoreError
from detent.lifecycle.event import Event
from detent.runtime.bridge import Bridge
from detent.runtime.supervisor.supervisor import Supervisor

_log = logging.getLogger("detent.fleet")
_CURSOR: Final = "store"
_BATCH: Final = 500
_RETRY_S: Final = 1.0
_PAUSE_S: Final = 0.05
"""Moves come in bursts, and share a shipment."""


class Shipping:
    """One journal on its way to one store."""

    def __init__(self, supervisor: Supervisor, engine: Engine, bridge: Bridge) -> None:
        self._tree = supervisor.tree
        self._engine = engine
        self._bridge = bridge
        # Asked for before anything happens: nothing is pruned that was not sent.
        self._sent = self._tree.journal.cursor(_CURSOR)

    async def run(self) -> None:
        """Send whatever is new, until called off."""
        news = asyncio.Event()
        complaint = Complaint(_log, "the journal cannot be shipped")
        forget = self._tree.listen(news.set)
        try:
            while True:
                news.clear()
                try:
                    await self.ship()
                    complaint.end()
                    await news.wait()
                    await asyncio.sleep(_PAUSE_S)
                except (StoreError, BadJournal) as error:
                    # A disk that is full has room again one day, as a store that is away is back.
                    if isinstance(error, StoreError) and not error.retryable:
                        raise
                    complaint.say(str(error))
                    await asyncio.sleep(_RETRY_S)
        finally:
            forget()

    async def ship(self) -> None:
        """Everything that has not been sent yet."""
        while entries := self._tree.journal.read(self._sent, _BATCH):
            events = [entry.event for entry in entries if entry.event is not None]
            if events:
                await self._send(events)
            self._sent = entries[-1].seq
            self._tree.journal.move_cursor(_CURSOR, self._sent)

    async def _send(self, events: Sequence[Event]) -> None:
        """To a store that has heard what was sent before; if it has not, from the beginning.

        It may be another store than the last fleet had, or one that was put back to an earlier day.
        """
        try:
            await self._bridge.reach(self._engine.workers.ship(events))
        except BadHistory:
            for instance in dict.fromkeys(event.record for event in events):
                await self._send_whole(instance)

    async def _send_whole(self, instance: str) -> None:
        try:
            events = self._tree.journal.history(instance)
            await self._bridge.reach(self._engine.workers.ship(events))
        except BadHistory as error:
            _log.warning("the store knows something else, and stays with it: %s", error)
