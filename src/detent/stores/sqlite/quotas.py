"""How much room the limits leave to one claim, and whose turn it is where claims are fair."""

from __future__ import annotations

from detent.stores import limits
from detent.stores.api import Fair, LimitKind
from detent.stores.limits import Limit, Used
from detent.stores.sqlite.spots import Lane
from detent.stores.sqlite.transaction import Transaction

__all__ = ["Quotas", "Turns"]

_Name = tuple[str, str, str]
_HELD = {LimitKind.QUEUE: "held_in_queue", LimitKind.KEY: "held_of_key"}


class Quotas:
    """The limits that a claim has met so far, and what it has used of them."""

    def __init__(self, tx: Transaction, now: int) -> None:
        self._tx = tx
        self._now = now
        self._met: dict[_Name, tuple[Limit, Used, int] | None] = {}
        self._spent: set[_Name] = set()
        self._kept_back: list[Lane] = []

    def has_room(self, lane: Lane) -> bool:
        """Whether one more job of this lane may start."""
        if not self._tx.known.has_limits or not self._full(lane):
            return True
        self._kept_back.append(lane)
        return False

    @property
    def free_at(self) -> int | None:
        """When time alone lets the first of those in that had no room."""
        free = [self._free_at(lane) for lane in self._kept_back]
        return min((at for at in free if at is not None), default=None)

    def _free_at(self, lane: Lane) -> int | None:
        ends = [limits.free_at(*one, self._now) for one in self._full(lane)]
        return max((end for end in ends if end is not None), default=None) if all(ends) else None

    def _full(self, lane: Lane) -> list[tuple[Limit, Used, int]]:
        """The limits that keep jobs of this lane back."""
        met = [one for name in _names(lane) if (one := self._use(name)) is not None]
        return [one for one in met if not limits.room(*one, self._now)]

    def spend(self, lane: Lane) -> None:
        """One job of this lane starts."""
        for name in _names(lane) if self._tx.known.has_limits else ():
            found = self._use(name)
            if found is not None:
                limit, used, active = found
                self._met[name] = (limit, limits.spent(limit, used, 1, self._now), active + 1)
                self._spent.add(name)

    def save(self) -> None:
        """Write what was used."""
        for name in self._spent:
            found = self._met[name]
            if found is not None:
                used = found[1]
                self._tx.execute("limit_use", used.period_at, used.starts, used.last_at, *name)

    def _use(self, name: _Name) -> tuple[Limit, Used, int] | None:
        if name not in self._met:
            self._met[name] = self._read(name)
        return self._met[name]

    def _read(self, name: _Name) -> tuple[Limit, Used, int] | None:
        row = self._tx.execute("limit", *name).fetchone()
        if row is None:
            return None
        held = self._tx.execute(_HELD[LimitKind(name[1])], name[0], name[2]).fetchone()
        return Limit(*row[:4]), Used(*row[4:]), held[0]


def _names(lane: Lane) -> list[_Name]:
    """The limits that jobs of this lane stand under, if they exist."""
    names: list[_Name] = [(lane.tenant, LimitKind.QUEUE.value, lane.queue)]
    return [*names, (lane.tenant, LimitKind.KEY.value, lane.key)] if lane.key else names


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
