"""Jobs that the store counts as ours, and of which we know nothing, go back.

A worker that lives keeps all that it holds. So nobody would ever end a job whose end was told to a
database that has lost it since: another server took over without the last seconds of the first, or
a backup was restored. The same holds for a claim or an end that could not be told in the end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Set
from typing import Final

from detent.engine.returning import returned
from detent.errors import StoreError
from detent.runtime.running import Runner
from detent.stores.api import Holding

_log = logging.getLogger(__name__)
_JOBS_MAX: Final = 500
_WHY: Final = "its worker does not have it: what that said of it is not in this database"


class Straying:
    """Looks now and then, in the loop of the store. `known` are the leases that we know of."""

    def __init__(self, runner: Runner, known: Set[str]) -> None:
        store = runner.engine.store
        self._store = store if isinstance(store, Holding) else None
        self._engine = runner.engine
        self._by = runner.by
        self._known = known
        self._look_s = runner.stray_s

    async def run(self) -> None:
        """Look after look, until called off."""
        while self._store is not None:
            await asyncio.sleep(self._look_s)
            try:
                await self.look()
            except StoreError as error:
                _log.warning("nobody looks for jobs that went astray: %s", error)

    async def look(self) -> None:
        """Give back what is ours by mistake."""
        if self._store is None:
            return
        held = await self._store.held_by(self._by.id, _JOBS_MAX, tuple(self._known))
        # Those claimed since are known by now. Those that have ended since are so under their
        # lease, which the store does not let anybody give back any more.
        stray = [one for one in held if one.job.lease not in self._known]
        if not stray:
            return
        _log.warning("%d jobs are given back: %s", len(stray), _WHY)
        await self._engine.carry_out([returned(one, self._by, _WHY) for one in stray])
