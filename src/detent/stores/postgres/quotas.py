"""How much room the limits leave to one claim, and whose turn it is where claims are fair."""

from __future__ import annotations

from collections.abc import Collection
from copy import copy

from detent.stores import quotas
from detent.stores.api import Named, Want
from detent.stores.limits import Limit, Used
from detent.stores.postgres.arrays import columns
from detent.stores.postgres.connection import Connection
from detent.stores.postgres.lanes import Lane
from detent.stores.quotas import Met, Quotas, names_of


class Limits(Quotas):
    """The limits over some lanes, read at once."""

    def __init__(self, tenant: str, now: int) -> None:
        self._limits: dict[Named, Met] = {}
        super().__init__(now, self._limits.get)
        self._tenant = tenant

    async def ask(self, connection: Connection, lanes: Collection[Lane]) -> None:
        """Lock the limits, then count who is in hands: nobody else can start meanwhile."""
        queues = sorted({lane.queue for lane in lanes})
        keys = sorted({lane.key for lane in lanes if lane.key})
        told = {"tenant": self._tenant, "queues": queues, "keys": keys}
        rows = await connection.fetch("limits_locked", **told)
        if not rows:
            return
        found = await connection.fetch("in_hands", **told)
        held = {(kind, name): count for kind, name, count in found}
        for kind, name, *numbers in rows:
            met = Limit(*numbers[:4]), Used(*numbers[4:]), held.get((kind, name), 0)
            self._limits[self._tenant, kind, name] = met

    def of(self, lane: Lane) -> list[Named]:
        """Those that the jobs of a lane stand under; mostly there are none at all."""
        return names_of(lane.tenant, lane.queue, lane.key) if self._limits else []

    async def save(self, connection: Connection) -> None:
        """Write what was used."""
        used = self.used.items()
        rows = [(*name[1:], one.period_at, one.starts, one.last_at) for name, one in used]
        if rows:
            names = ("kinds", "names", "period_ats", "starts", "last_ats")
            told = columns(names, rows)
            await connection.fetch("limits_used", tenant=self._tenant, **told)


class Turns(quotas.Turns):
    """The turns of some lanes, read at once."""

    def __init__(self, want: Want, now: int) -> None:
        super().__init__(want, now, {})

    async def ask(self, connection: Connection, lanes: Collection[Lane]) -> None:
        """When the queues or keys of these lanes were served last."""
        if self._want.fair is None:
            return
        names = {name[2]: name for name in (self._name(one.queue, one.key) for one in lanes)}
        told = {"tenant": self._want.tenant, "fair": self._want.fair.value}
        rows = await connection.fetch("served", **told, names=sorted(names))
        self._turns = {names[row[0]]: row[1] for row in rows}
        row = await connection.fetch_row("served_latest")
        self._last = 0 if row is None else row[0]

    def copied(self) -> Turns:
        """The same turns, before whatever comes next."""
        one = copy(self)
        vars(one).update(_turns=dict(self._turns), _served=set(self._served))
        return one

    async def save(self, connection: Connection) -> None:
        """Write who was served."""
        if self._want.fair is None or not self._served:
            return
        rows = [(name[2], self._turns[name]) for name in sorted(self._served)]
        told = {"tenant": self._want.tenant, "fair": self._want.fair.value}
        await connection.fetch("served_put", **told, **columns(("names", "turns"), rows))

    def _latest(self) -> int:
        return self._last or 0
