"""A fleet whose jobs are kept by a server: the same tree of workers, without a database.

Each worker holds its jobs itself, by heartbeats from the thread of its bridge, and stops them when
these do not arrive. The supervisor speaks to the server only to say who has ended. What an operator
wants of a worker comes with the answers to its heartbeats; upkeep and schedules are the server's.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

import msgspec

from detent.app.detent import Detent
from detent.app.fleet.awaiting import reached
from detent.app.fleet.fleet import Fleet
from detent.app.fleet.graves import Graves
from detent.app.fleet.orders import Orders
from detent.engine.access import ALL_QUEUES
from detent.runtime.remote.address import Server
from detent.runtime.remote.client import Client
from detent.runtime.supervisor.spec import Spec

_log = logging.getLogger("detent.fleet")
_WORKER: Final = "worker-"


class _Told(msgspec.Struct, frozen=True):
    key_queues: tuple[str, ...] = ALL_QUEUES


class DistantFleet(Fleet):
    """Entered, its workers are up; left, they are down. It ends when the server ends them all."""

    def __init__(self, app: Detent, orders: Orders, server: Server) -> None:
        super().__init__(app, orders)
        self._client = Client(server)
        self._none_left = asyncio.Event()

    async def _open(self) -> None:
        """A server that refuses us is no reason to start; one that is away may come.

        Workers ask it again what their key is for: it may have another word by then.
        """
        await reached(lambda: self.app.bridge.reach(self._asked()), "server")

    async def _asked(self) -> None:
        for tenant in self.orders.told.settings.tenants:
            told = await self._client.post("/workers/wait", {}, _Told, tenant=tenant)
            self.orders.told.settings.serving(self.app.queues, told.key_queues)

    def _keepers(self) -> list[Spec]:
        return []

    async def _begin(self) -> None:
        self._graves = Graves(self._client, self.orders.told.settings.tenants)
        self.members.join(self._graves, self.app.bridge)
        self.members.worn = self._relieve
        self.members.told = self._told
        self.members.proved = self._graves.proven
        self._beside = [asyncio.create_task(_until(self._none_left), name="workers")]

    def _told(self, instance: str, directive: str) -> None:
        """The server wants a worker to end: then it does, and none takes its place."""
        for live, slot in tuple(self.supervisor.lives.items()):
            if live.id == instance and directive == "terminate":
                _log.info("worker %s ends: the server says so", instance)
                work = self._dismiss(slot.spec.name)
                self.supervisor.tasks.run(work, f"dismissing {instance}")

    async def _dismiss(self, name: str) -> None:
        await self.supervisor.remove(name)
        if not any(one.startswith(_WORKER) for one in self.supervisor.slots):
            self._none_left.set()

    async def _last_words(self) -> None:
        await self.members.buried()

    async def _end(self) -> None:
        await super()._end()
        if self._beside:
            await self.app.bridge.reach(self._graves.close())
        await self.app.bridge.reach(_closed(self._client))


async def _until(event: asyncio.Event) -> None:
    await event.wait()


async def _closed(client: Client) -> None:
    client.close()
