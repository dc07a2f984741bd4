"""How much room the limits leave to one claim, and whose turn it is where claims are fair."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import Final, Self, TypeAlias

from detent.stores import limits
from detent.stores.limits import Limit, Used
from detent.stores.shapes import Fair, LimitKind, Named, Passed, Want

Met: TypeAlias = tuple[Limit, Used, int]
"""A limit, what has started under it, and how many jobs under it are in hands."""
_QUEUE: Final = LimitKind.QUEUE.value
_KEY: Final = LimitKind.KEY.value


def names_of(tenant: str, queue: str, key: str | None) -> list[Named]:
    """The limits that jobs of this queue and key stand under, if they exist."""
    names = [(tenant, _QUEUE, queue)]
    return [*names, (tenant, _KEY, key)] if key else names


class Quotas:
    """The limits over one claim; each is read when it is first met."""

    def __init__(self, now: int, read: Callable[[Named], Met | None]) -> None:
        self._now = now
        self._read = read
        self._met: dict[Named, Met | None] = {}
        self._spent: set[Named] = set()
        self._kept_back: list[Sequence[Named]] = []

    def has_room(self, names: Sequence[Named]) -> bool:
        """Whether one more job may start that stands under these limits."""
        if not self._full(names):
            return True
        self._kept_back.append(names)
        return False

    def spend(self, names: Sequence[Named]) -> None:
        """One job that stands under these limits starts."""
        for name in names:
            found = self._use(name)
            if found is not None:
                limit, used, active = found
                self._met[name] = (limit, limits.spent(limit, used, 1, self._now), active + 1)
                self._spent.add(name)

    @property
    def used(self) -> dict[Named, Used]:
        """What is used by now of the limits that something was started under."""
        return {name: met[1] for name in sorted(self._spent) if (met := self._met[name])}

    @property
    def free_at(self) -> int | None:
        """When time alone lets the first of those in that had no room."""
        free = [self._free_at(names) for names in self._kept_back]
        return min((at for at in free if at is not None), default=None)

    @property
    def passed(self) -> tuple[Passed, ...]:
        """Whom these limits kept back."""
        return tuple(
            sorted(
                {
                    _passed(full, names)
                    for names in self._kept_back
                    for full in names
                    if self._full([full])
                }
            )
        )

    def copied(self) -> Self:
        """The same room, before whatever comes next."""
        one = copy(self)
        mine = {"_met": dict(self._met), "_spent": set(self._spent)}
        vars(one).update(mine, _kept_back=list(self._kept_back))
        return one

    def _free_at(self, names: Sequence[Named]) -> int | None:
        """When all that keeps it back is over; `None` if time alone does not do it."""
        ends = [limits.free_at(*one, self._now) for one in self._full(names)]
        return max((end for end in ends if end is not None), default=None) if all(ends) else None

    def _full(self, names: Sequence[Named]) -> list[Met]:
        """The limits among these that keep jobs back."""
        met = [one for name in names if (one := self._use(name)) is not None]
        return [one for one in met if not limits.room(*one, self._now)]

    def _use(self, name: Named) -> Met | None:
        if name not in self._met:
            self._met[name] = self._read(name)
        return self._met[name]


def _passed(full: Named, names: Sequence[Named]) -> Passed:
    told = {kind: name for _, kind, name in names}
    return Passed(LimitKind(full[1]), told[_QUEUE], told.get(_KEY, ""))


class Turns:
    """Who was served when. Without fairness everybody always was at the same time."""

    def __init__(self, want: Want, now: int, turns: dict[Named, int]) -> None:
        self._want = want
        self._now = now
        self._turns = turns
        self._served: set[Named] = set()
        self._last: int | None = None

    def of(self, queue: str, key: str | None) -> int:
        """When this queue or key was served last; 0 for never."""
        return self._turns.get(self._name(queue, key), 0) if self._want.fair else 0

    def serve(self, queue: str, key: str | None) -> None:
        """It is served now, after all others."""
        if self._want.fair:
            name = self._name(queue, key)
            self._turns[name] = self._last = max(self._now, self._latest() + 1)
            self._served.add(name)

    def _latest(self) -> int:
        """When anybody was served last."""
        return max(self._turns.values(), default=0)

    def _name(self, queue: str, key: str | None) -> Named:
        fair = self._want.fair
        return self._want.tenant, str(fair), queue if fair is Fair.QUEUES else key or ""
