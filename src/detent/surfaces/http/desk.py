"""What the operations of every surface are given: the engine, the settings and the time."""

from __future__ import annotations

from typing import Any

import msgspec

from detent.engine.engine import Engine
from detent.surfaces.http.caller import CallerRules
from detent.surfaces.http.exchange import Reply, Settings
from detent.surfaces.http.service import Service


class HttpDesk:
    """The engine of a server. Each surface adds how it is asked and how it answers."""

    def __init__(self, service: Service, settings: Settings) -> None:
        self.service = service
        self.settings = settings
        self.caller_rules = CallerRules()

    @property
    def engine(self) -> Engine:
        """There only while the server runs."""
        return self.service.engine

    def now(self) -> int:
        """The time of the store."""
        return self.engine.store.now()


def json_reply(value: Any, status: int = 200, headers: tuple[tuple[str, str], ...] = ()) -> Reply:
    """The value as JSON."""
    return Reply(status, msgspec.json.encode(value), headers=headers)
