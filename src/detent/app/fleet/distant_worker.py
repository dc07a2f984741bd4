"""How one worker of a distant fleet reaches its server: its requests and its heartbeats."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from detent.app.detent import Detent
from detent.app.fleet.orders import Told
from detent.runtime.beating import Beating, Hearing
from detent.runtime.remote.client import Client
from detent.runtime.remote.office import RemoteOffice
from detent.stores.api import Who, WorkerRow


class Distant:
    """One worker's way to the server, in the loop of the bridge: what it asks, and that it lives.

    `lapsed` is called when the server has not heard of us for so long that others may get our jobs.
    `proven` is told again and again until when they will not.
    """

    look_s = 2.0
    """How often it asks the server about the jobs that it runs."""

    def __init__(self, app: Detent, told: Told, instance: str) -> None:
        assert told.server is not None  # noqa: S101 - else nobody makes one
        places = {name: one.secret for name, one in app.handlers.items()}
        self._client = Client(told.server)
        self.office = RemoteOffice(self._client, instance, told.settings, places)
        self._beats: asyncio.Task[None] | None = None

    async def begin(
        self, lapsed: Callable[[], None], proven: Callable[[float], None]
    ) -> RemoteOffice:
        """Return when the server knows us; a server that is away is waited for."""
        instance = self.office.instance
        hearing = Hearing(
            lapsed=lambda _: lapsed(),
            lost=lambda _: lapsed(),
            proven=lambda _, until: proven(until),
        )
        beating = Beating(self.office, hearing)
        beating.add(WorkerRow(instance, 0, who=Who(supervisor=instance), state="running"))
        self._beats = asyncio.create_task(beating.run())
        await beating.registered(instance)
        return self.office

    async def end(self) -> None:
        """Stop the heartbeats and close the connections."""
        if self._beats is not None:
            self._beats.cancel()
            await asyncio.wait([self._beats])
        self._client.close()
