"""What everything here needs: the engine, who asks, and the way to tell somebody something."""

from __future__ import annotations

from typing import Any, Final, Protocol

from detent.surfaces.engines.gauges import Gauges
from detent.surfaces.http.desk import HttpDesk
from detent.surfaces.http.exchange import Settings
from detent.surfaces.http.service import Service

ENGINE: Final = "/engine"
EVENTS: Final = "/events"


class Sockets(Protocol):
    """The way to whoever is connected."""

    async def tell(self, namespace: str, sid: str, event: str, data: Any) -> None:
        """Send one of them an event."""
        ...

    async def part(self, namespace: str, sid: str) -> None:
        """Let go of one of them."""
        ...

    def waiting(self, namespace: str, sid: str) -> int:
        """How much of what was sent to it is not on its way yet."""
        ...


class Desk(HttpDesk):
    """Who asks for what in the words of this surface, and how it is answered."""

    def __init__(self, service: Service, settings: Settings) -> None:
        super().__init__(service, settings)
        self.gauges = Gauges()
        self.sockets: Sockets
