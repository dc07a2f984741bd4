"""The ends of workers whose jobs a server keeps: told to it, and told again while it is away."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from detent.app.fleet.orders import LOST
from detent.errors import DetentError
from detent.runtime.beating import Pace, boot_clock
from detent.runtime.remote.client import Client
from detent.runtime.remote.office import tell_gone
from detent.stores.api import WorkerRow

_log = logging.getLogger("detent.fleet")
_STOPPED: Final = (0, LOST, -signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT)
"""How one ends that is told to, or is killed for it. A crash is a handler's, outage or not."""
_TRIES: Final = 300
"""How often a server that is away is told of an end: later nothing depends on it."""


class Graves:
    """Tells the server who has ended. That they live, they tell themselves."""

    def __init__(
        self,
        client: Client,
        tenants: Sequence[str],
        *,
        clock: Callable[[], float] = boot_clock,
        again_s: float = 2.0,
    ) -> None:
        self._client = client
        self._tenants = tenants
        self._clock = clock
        self._again_s = again_s
        self._proven: dict[str, float] = {}
        self._late: set[asyncio.Task[None]] = set()
        self._lapsed: set[str] = set()
        self._told = asyncio.Event()
        self._told.set()

    def add(self, row: WorkerRow) -> None:
        """Nothing: a worker tells its server of itself."""

    async def registered(self, instance: str) -> None:
        """Return at once: a worker begins when its server has heard it."""

    def tell(self, instance: str, state: str) -> None:
        """Nothing: a worker tells its server its state."""

    def proven(self, instance: str, until: float) -> None:
        """Until then, by the clock of this host, nobody else will be given its jobs."""
        self._proven[instance] = until

    async def gone(
        self,
        instance: str,
        cause: str,  # noqa: ARG002 - the server knows no causes
        exit_code: int | None,
        *,
        crowded: bool,  # noqa: ARG002
    ) -> bool:
        """What it held is free at once; unheard, as soon as its leases are over.

        One that ended because the server was away is told of again, before they are: that spares
        its jobs a loss.
        """
        if has_lapsed := self._has_lapsed(instance, exit_code):
            self._lapsed.add(instance)
            self._told.clear()
        try:
            await tell_gone(self._client, instance, self._tenants, has_lapsed=has_lapsed)
        except DetentError as error:
            _log.warning("the end of worker %s could not be told: %s", instance, error)
            if has_lapsed:
                task = asyncio.create_task(self._tell_later(instance))
                self._late.add(task)
                task.add_done_callback(self._late.discard)
            return False
        self._heard(instance)
        return True

    @property
    def untold(self) -> Sequence[str]:
        """Who had lapsed, and of whose end the server has not heard: it will charge the jobs."""
        return tuple(self._lapsed)

    async def buried(self) -> None:
        """Return when the server has heard of all of them."""
        await self._told.wait()

    async def close(self) -> None:
        """Nobody is told anything more."""
        for task in self._late:
            task.cancel()
        await asyncio.gather(*self._late, return_exceptions=True)

    def _has_lapsed(self, instance: str, exit_code: int | None) -> bool:
        """Whether it stopped itself, or was stopped, for nobody renewed it.

        The code alone says nothing: any handler can end its worker with any.
        """
        until = self._proven.pop(instance, None)
        is_late = until is not None and self._clock() >= until - Pace().margin_s
        return is_late and exit_code in _STOPPED

    def _heard(self, instance: str) -> None:
        self._lapsed.discard(instance)
        if not self._lapsed:
            self._told.set()

    async def _tell_later(self, instance: str) -> None:
        for _ in range(_TRIES):
            await asyncio.sleep(self._again_s)
            with suppress(DetentError):
                await tell_gone(self._client, instance, self._tenants, has_lapsed=True)
                break
        self._heard(instance)
