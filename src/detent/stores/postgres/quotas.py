"""How much room the limits leave to one claim, and whose turn it is where claims are fair."""

from __future__ import annotations

from collections.abc import Collection
from copy import copy

from detent.stores import limits
from detent.stores.api import Fair, LimitKind, Want
from detent.stores.limits import Limit, Used
from detent.stores.postgres.arrays import columns
from detent.stores.postgres.connection import Connection
from detent.stores.postgres.lanes import Lane

__all__ = ["Quotas", "Turns"]

_Name = tuple[str, str]
_Met = tuple[Limit, Used, int]


class Quotas:
    """The limits over some lanes, and what a claim has used of them."""

    def __init__(self, tenant: str, now: int) -> None:
        self._tenant = tenant
        self._now = now
        self._met: dict[_Name, _Met] = {}
        self._spent: set[_Name] = set()
        self._kept_back: list[Lane] = []

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
            limit, used = Limit(*numbers[:4]), Used(*numbers[4:])
            self._met[kind, name] = (limit, used, held.get((kind, name), 0))

    def copied(self) -> Quotas:
        """The same room, before whatever comes next."""
        one = copy(self)
        mine = {"_met": dict(self._met), "_spent": set(self._spent)}
        vars(one).update(mine, _kept_back=list(self._kept_back))
        return one

    def has_room(self, lane: Lane) -> bool:
        """Whether one more job of this lane may start."""
        if not self._full(lane):
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

    def _full(self, lane: Lane) -> list[_Met]:
        """The limits that keep jobs of this lane back."""
        met = [self._met[name] for name in _names(lane) if name in self._met]
        return [one for one in met if not limits.room(*one, self._now)]

    def spend(self, lane: Lane) -> None:
        """One job of this lane starts."""
        for name in _names(lane):
            if name in self._met:
                limit, used, active = self._met[name]
                self._met[name] = (limit, limits.spent(limit, used, 1, self._now), active + 1)
                self._spent.add(name)

    async def save(self, connection: Connection) -> None:
        """Write what was used."""
        rows = []
        for name in sorted(self._spent):
            used = self._met[name][1]
            rows.append((*name, used.period_at, used.starts, used.last_at))
        if rows:
            names = ("kinds", "names", "period_ats", "starts", "last_ats")
            told = columns(names, rows)
            await connection.fetch("limits_used", tenant=self._tenant, **told)


def _names(lane: Lane) -> list[_Name]:
    """The limits that jobs of this lane stand under, if they exist."""
    names = [(LimitKind.QUEUE.value, lane.queue)]
    return [*names, (LimitKind.KEY.value, lane.key)] if lane.key else names


class Turns:
    """Who was served when. Without fairness everybody always was at the same time."""

    def __init__(self, want: Want, now: int) -> None:
        self._tenant = want.tenant
        self._fair = want.fair
        self._now = now
        self._turns: dict[str, int] = {}
        self._latest = 0
        self._served: set[str] = set()

    async def ask(self, connection: Connection, lanes: Collection[Lane]) -> None:
        """When the queues or keys of these lanes were served last."""
        if self._fair is None:
            return
        names = sorted({self._name(lane) for lane in lanes})
        told = {"tenant": self._tenant, "fair": self._fair.value}
        rows = await connection.fetch("served", **told, names=names)
        self._turns = {row[0]: row[1] for row in rows}
        row = await connection.fetch_row("served_latest")
        self._latest = 0 if row is None else row[0]

    def copied(self) -> Turns:
        """The same turns, before whatever comes next."""
        one = copy(self)
        vars(one).update(_turns=dict(self._turns), _served=set(self._served))
        return one

    def of(self, lane: Lane) -> int:
        """When the queue or key of this lane was served last; 0 for never."""
        return 0 if self._fair is None else self._turns.get(self._name(lane), 0)

    def serve(self, lane: Lane) -> None:
        """It is served now, after all others."""
        if self._fair is not None:
            self._latest = max(self._now, self._latest + 1)
            self._turns[self._name(lane)] = self._latest
            self._served.add(self._name(lane))

    async def save(self, connection: Connection) -> None:
        """Write who was served."""
        if self._fair is None or not self._served:
            return
        rows = [(name, self._turns[name]) for name in sorted(self._served)]
        told = {"tenant": self._tenant, "fair": self._fair.value}
        await connection.fetch("served_put", **told, **columns(("names", "turns"), rows))

    def _name(self, lane: Lane) -> str:
        return lane.queue if self._fair is Fair.QUEUES else lane.key
