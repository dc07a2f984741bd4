"""How much room the limits leave to one claim, and whose turn it is where claims are fair."""

from __future__ import annotations

from detent.stores import quotas
from detent.stores.api import LimitKind, Named, Want
from detent.stores.limits import Limit, Used
from detent.stores.quotas import Met, Quotas, names_of
from detent.stores.sqlite.spots import Lane
from detent.stores.sqlite.transaction import Transaction

_HELD = {LimitKind.QUEUE: "held_in_queue", LimitKind.KEY: "held_of_key"}


class Limits(Quotas):
    """The limits as they stand in the tables."""

    def __init__(self, tx: Transaction, now: int) -> None:
        super().__init__(now, self._stored)
        self._tx = tx

    def of(self, lane: Lane) -> list[Named]:
        """Those that the jobs of a lane stand under; mostly there are none at all."""
        return names_of(lane.tenant, lane.queue, lane.key) if self._tx.known.has_limits else []

    def save(self) -> None:
        """Write what was used."""
        for name, used in self.used.items():
            self._tx.execute("limit_use", used.period_at, used.starts, used.last_at, *name)

    def _stored(self, name: Named) -> Met | None:
        row = self._tx.execute("limit", *name).fetchone()
        if row is None:
            return None
        held = self._tx.execute(_HELD[LimitKind(name[1])], name[0], name[2]).fetchone()
        return Limit(*row[:4]), Used(*row[4:]), held[0]


class Turns(quotas.Turns):
    """The turns as they stand in the tables; each is read when it is first asked about."""

    def __init__(self, tx: Transaction, want: Want, now: int) -> None:
        super().__init__(want, now, {})
        self._tx = tx

    def of(self, queue: str, key: str | None) -> int:
        if self._want.fair is None:
            return 0
        name = self._name(queue, key)
        if name not in self._turns:
            row = self._tx.execute("served", *name).fetchone()
            self._turns[name] = 0 if row is None else row[0]
        return self._turns[name]

    def save(self) -> None:
        """Write who was served."""
        for name in self._served:
            self._tx.execute("served_put", *name, self._turns[name])

    def _latest(self) -> int:
        if self._last is None:
            found = self._tx.execute("served_latest", self._want.tenant, str(self._want.fair))
            self._last = int(found.fetchone()[0])
        return self._last
