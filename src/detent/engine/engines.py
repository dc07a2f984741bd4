"""Engines: programs elsewhere that jobs are pushed to, each under an id of its own.

An engine comes as a boot: one run of its program. What it holds hangs on one row per boot that has
come in (`holder`), trusted for as long as every worker is. A small record under the engine's id
says which boot that is and at which seat, the connection that it speaks on; it is moved by
compare-and-set, so that of two programs under one id one is let in, on however many servers.

Whoever comes back in time with the same boot goes on with the jobs it presents; the rest is lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from detent.engine.coalesce import Coalescer
from detent.engine.commands import TRIES_MAX, Beside, Change, Commands
from detent.engine.identity import Identity
from detent.engine.paging import all_records
from detent.errors import EngineInUse, StoreBusy
from detent.lifecycle import job as j
from detent.lifecycle.event import By
from detent.lifecycle.machine import Actor
from detent.lifecycle.profile import HEARTBEAT_LEASE_US, PROFILES
from detent.lifecycle.views.engines import holder_of
from detent.lifecycle.worker.table import WorkerState
from detent.stores.api import (
    Committed,
    Death,
    Failure,
    Key,
    Own,
    Record,
    Store,
    Stored,
    Unit,
    Who,
    WorkerRow,
    key_of,
)

KIND: Final = "engine"
TRUST_US: Final = HEARTBEAT_LEASE_US
"""How long an engine may be silent, or away, before all that it has is lost."""
HELD_MAX: Final = 10_000
_SUPERVISOR: Final = "engines"
"""Whose word it is that an engine is gone: any server may know."""
_STATE: Final = WorkerState.RUNNING.value
_SYSTEM = By(Actor.SYSTEM, "engines")


class Seated(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Who comes: which run of it, where it speaks, and what it takes. An empty seat is left."""

    boot: str
    seat: str
    types: tuple[str, ...]
    queues: tuple[str, ...]
    capacity: int
    holder: str = ""
    at: int = 0


class Entered(msgspec.Struct, frozen=True):
    """An engine that was let in: whom the history calls its holder, and what it goes on with."""

    holder: str
    held: tuple[Stored, ...] = ()
    lost: tuple[str, ...] = ()


class Engines:
    """Lets engines in and out, and answers for what they held."""

    def __init__(
        self, store: Store, coalescer: Coalescer, identity: Identity, commands: Commands
    ) -> None:
        self._store = store
        self._coalescer = coalescer
        self._identity = identity
        self._commands = commands

    async def enter(self, key: Key, coming: Seated, presented: Mapping[str, str]) -> Entered:
        """Let it in, or raise `EngineInUse`; `presented` are the jobs it has, with their leases."""
        for _ in range(TRIES_MAX):
            record, before = await self._known(key)
            holder = await self._holder(key, before, coming)
            seated = replace(coming, holder=holder, at=self._store.now())
            if await self._put(key, seated, 0 if record is None else record.version):
                return await self._resumed(holder, presented)
        raise StoreBusy(f"Engine {key[1]} was changed by others {TRIES_MAX} times", id=key[1])

    async def leave(self, key: Key, seat: str) -> None:
        """Its connection is gone: from now on it has its time to come back."""
        record, before = await self._known(key)
        if record is None or before is None or before.seat != seat:
            return
        await self.beat([before.holder])
        await self._put(key, replace(before, seat=""), record.version)

    async def beat(self, holders: Sequence[str]) -> Sequence[bool]:
        """They are there; false for one that was given up, and must come in anew."""
        now = self._store.now()
        rows = [WorkerRow(one, now + TRUST_US, state=_STATE, renews=True) for one in holders]
        return await self._store.beat(rows, now=now) if rows else ()

    async def seats(self, keys: Sequence[Key]) -> list[str]:
        """Where each of them speaks now."""
        found = await self._store.record([(KIND, *key) for key in keys]) if keys else ()
        return ["" if one is None else _read(one).seat for one in found]

    async def queues(self, key: Key) -> tuple[str, ...]:
        """What an engine of that id takes from, or took from when it was last there."""
        _, before = await self._known(key)
        return () if before is None else before.queues

    async def types(self, tenant: str) -> frozenset[str]:
        """What engines of a tenant have said that they take, whether they are there or not."""
        found = await all_records(self._store, KIND, tenant)
        return frozenset(name for one in found for name in _read(one).types)

    async def hand_back(self, jobs: Sequence[Stored], reason: str) -> list[j.Answer]:
        """Offer elsewhere what was offered and not begun; it costs the jobs nothing."""
        back = [
            Change(
                key_of(one.job), j.HandBack(lease=one.job.lease), _SYSTEM, reason=reason, known=one
            )
            for one in jobs
        ]
        return await self._commands.carry_out(back)

    # --- inside ---------------------------------------------------------------------------------

    async def _known(self, key: Key) -> tuple[Record | None, Seated | None]:
        [record] = await self._store.record([(KIND, *key)])
        return record, None if record is None else _read(record)

    async def _holder(self, key: Key, before: Seated | None, coming: Seated) -> str:
        """The row it goes on with, or a new one; what stood in its way is gone afterwards."""
        if before is not None and before.boot == coming.boot:
            [is_alive] = await self.beat([before.holder])
            if is_alive:
                return before.holder
        elif before is not None:
            await self._replace(key, before)
        holder, now = holder_of(key[1], self._identity.id()), self._store.now()
        who = Who(
            supervisor=_SUPERVISOR,
            started_at=now,
            slots=coming.capacity,
            queues=coming.queues,
            types=coming.types,
            tenants=(key[0],),
        )
        await self._store.beat([WorkerRow(holder, now + TRUST_US, who=who, state=_STATE)], now=now)
        return holder

    async def _replace(self, key: Key, before: Seated) -> None:
        now = self._store.now()
        if not before.seat:
            await self._store.bury([Death(before.holder, _SUPERVISOR)], now=now)
            return
        [is_over] = await self._store.declare_lost([before.holder], now=now)
        if not is_over:
            why = f"An engine {key[1]} is connected already, as another run of its program"
            fix = "Stop that one, or give this one an engineId of its own"
            raise EngineInUse(f"{why}. {fix}", id=key[1])

    async def _put(self, key: Key, seated: Seated, version: int) -> bool:
        data = msgspec.json.encode(seated).decode()
        record = Record(KIND, key[1], version + 1, data, tenant=key[0])
        [outcome] = await self._coalescer.commit([Unit(self._identity.id(), puts=(record,))])
        return isinstance(outcome, Committed | Own)

    async def _resumed(self, holder: str, presented: Mapping[str, str]) -> Entered:
        held = await self._store.held_by(holder, HELD_MAX)
        kept = tuple(one for one in held if presented.get(one.job.id) == one.job.lease)
        names = {one.job.id for one in kept}
        gone = [one for one in held if one.job.id not in names]
        await self._commands.carry_out([self._lost(one, holder) for one in gone])
        return Entered(holder, kept, tuple({*presented} - names))

    def _lost(self, stored: Stored, holder: str) -> Change:
        """The engine is back, and does not know of the job: nobody will ever end it."""
        job, why = stored.job, "the engine came back without it"
        code = PROFILES[job.profile].code(job.state, "lose")
        failure = Failure(job.attempt, self._store.now(), code, why, "lost")
        command: j.Report = j.Lose(lease=job.lease)
        if job.state is j.JobState.PENDING:
            # Its lease is not over, so nobody but the engine itself can say no to the offer.
            command = j.Refuse(lease=job.lease, code=code)
        by, beside = By(Actor.WORKER, holder), Beside(failure=failure)
        return Change(key_of(job), command, by, why, beside, known=stored, delay_us=0)


def _read(record: Record) -> Seated:
    return msgspec.json.decode(record.data or "", type=Seated)
