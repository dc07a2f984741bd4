"""How much room the limits leave to one claim, and whose turn it is where claims are fair."""

from __future__ import annotations

from detent.stores.api import Fair, LimitKind, Named
from detent.stores.limits import Limit, Used
from detent.stores.quotas import Met, Quotas, names_of
from detent.stores.sqlite.spots import Lane
from detent.stores.sqlite.transaction import Transaction

__all__ = ["Limits", "Turns"]

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


class Turns:
    """Who was served when. Without fairness everybody always was at the same time."""

    def __init__(self, tx: Transaction, tenant: str, fair: Fair | None, now: int) -> None:
        self._tx = tx
        self._tenant = tenant
        self._fair = fair
        self._now = now
        self._turns: dict[str, int] = {}
        self._latest: int | None = None
        self._served: set[str] = set()

    def of(self, lane: Lane) -> int:
        """When the queue or key of this lane was served last; 0 for never."""
        if self._fair is None:
            return 0
        name = self._name(lane)
        if name not in self._turns:
            row = self._tx.execute("served", self._tenant, self._fair.value, name).fetchone()
            self._turns[name] = 0 if row is None else row[0]
        return self._turns[name]

    def serve(self, lane: Lane) -> None:
        """It is served now, after all others."""
        if self._fair is None:
            return
        if self._latest is None:
            found = self._tx.execute("served_latest", self._tenant, self._fair.value)
            self._latest = found.fetchone()[0]
        self._latest = max(self._now, self._latest + 1)
        self._turns[self._name(lane)] = self._latest
        self._served.add(self._name(lane))

    def save(self) -> None:
        """Write who was served."""
        for name in self._served if self._fair else ():
            where = (self._tenant, self._fair.value, name) if self._fair else ()
            self._tx.execute("served_put", *where, self._turns[name])

    def _name(self, lane: Lane) -> str:
        return lane.queue if self._fair is Fair.QUEUES else lane.key
