"""Which jobs a worker asks for next: as many as can start at once, tenants in turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping

import msgspec

from detent.engine.identity import Identity
from detent.engine.keyless import Shut
from detent.lifecycle.event import By
from detent.runtime.executors.means import Kind
from detent.runtime.worker.settings import Settings
from detent.stores.api import Want

WANT_MAX = 100
"""How many jobs one claim asks for, of a worker with no more than twice as many slots."""
MANY_MAX = 500
"""Of one with more slots half of them, up to so many: one half runs while another is claimed."""
FEW = 16
"""So many where the last claim did not get all: a lease that is not needed takes time as well."""


class Wish(msgspec.Struct, frozen=True):
    """A claim to be made. `is_sync`: it may bring jobs that need a thread or a process."""

    lane: tuple[str, tuple[str, ...]]
    want: Want
    is_sync: bool

    @property
    def size(self) -> int:
        """How many jobs it may bring."""
        return len(self.want.leases)


class Wishes:
    """Remembers whose turn it is, and where there was nothing.

    A lane is a tenant and some types. While every free slot can take any job there is one lane per
    tenant; when threads and processes are scarce, the types that need them have their own.
    """

    def __init__(
        self, settings: Settings, by: By, kinds: Mapping[str, Kind], identity: Identity
    ) -> None:
        self._settings = settings
        self._by = by
        self._identity = identity
        types = kinds if settings.types is None else [t for t in settings.types if t in kinds]
        self._all = tuple(types)
        self._light = tuple(one for one in types if kinds[one] is Kind.ASYNC)
        self._heavy = tuple(one for one in types if kinds[one] is not Kind.ASYNC)
        self._turns = deque(settings.tenants)
        self._dry: set[tuple[str, tuple[str, ...]]] = set()
        self._most = max(WANT_MAX, min(settings.slots // 2, MANY_MAX))
        self._poor: set[tuple[str, tuple[str, ...]]] = set()
        self.shut = Shut()
        """Types that are left to others, for lack of a key."""

    def next(self, free: int, sync_free: int) -> Wish | None:
        """The next claim, or nothing when no lane could have a job that could start."""
        for tenant in list(self._turns):
            self._turns.rotate(-1)
            for lane, size in self._lanes(min(free, self._most), sync_free):
                types = self.shut.left(lane)
                if types and size > 0 and not self._is_dry(tenant, types):
                    most = min(size, FEW) if (tenant, types) in self._poor else size
                    want = self._want(tenant, types, most)
                    return Wish((tenant, types), want, lane is not self._light)
        return None

    def brought(self, wish: Wish, number: int) -> None:
        """How many jobs there were: where all were granted there may be more of them.

        So there may be where nobody has asked yet: who starts often finds what has piled up.
        """
        if number == wish.size:
            self._poor.discard(wish.lane)
        else:
            self._poor.add(wish.lane)

    def dry(self, wish: Wish) -> None:
        """There was nothing; it is not asked for again until something may have come."""
        self._dry.add(wish.lane)

    def wet(self) -> None:
        """Something may have come."""
        self._dry.clear()

    def _lanes(self, size: int, sync_free: int) -> Iterator[tuple[tuple[str, ...], int]]:
        if not self._heavy:
            yield self._light, size if self._light else 0
        elif sync_free >= size:
            yield self._all, size
        else:
            yield self._heavy, sync_free
            yield self._light, size if self._light else 0

    def _is_dry(self, tenant: str, types: tuple[str, ...]) -> bool:
        return (tenant, types) in self._dry or (tenant, self._all) in self._dry

    def _want(self, tenant: str, types: tuple[str, ...], size: int) -> Want:
        name, settings = self._identity.id(), self._settings
        return Want(
            command_id=name,
            by=self._by,
            holder=self._by.id,
            leases=tuple(f"{name}.{number}" for number in range(size)),
            queues=settings.served,
            tenant=tenant,
            types=types,
            fair=settings.fair,
        )
