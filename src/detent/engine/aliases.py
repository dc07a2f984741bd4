"""Running a job again under the id that it was known by: a new record, and an alias to it.

The ended record stays as it is. The alias has the first id of the chain as its key and names the
newest record; a second small record leads back from that one to the id that is shown. New job and
both records are one unit, so two that ask at once cannot both be answered with a job.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from detent.engine.asks import Ask, born
from detent.engine.coalesce import Coalescer
from detent.engine.commands import TRIES_MAX
from detent.engine.identity import Identity
from detent.engine.rerunning import refused, rerun_ask, unrepeatable
from detent.engine.secrets import Secrets
from detent.errors import StoreBusy, Unstorable
from detent.lifecycle import job as j
from detent.lifecycle.event import By
from detent.lifecycle.job import Job
from detent.lifecycle.machine import Refusal
from detent.lifecycle.profile import PROFILES, Again
from detent.stores.api import (
    Committed,
    Key,
    New,
    Own,
    Record,
    StaleRecord,
    Store,
    Stored,
    Unit,
    key_of,
)

NEWEST: Final = "alias"
SHOWN: Final = "alias-of"


class _Alias(msgspec.Struct, frozen=True):
    """Where a shown id leads, or from a record back to the id that is shown."""

    id: str


class Aliases:
    """Leads from ids that are shown to records, and back."""

    def __init__(
        self, store: Store, coalescer: Coalescer, identity: Identity, secrets: Secrets
    ) -> None:
        self._store = store
        self._coalescer = coalescer
        self._identity = identity
        self._secrets = secrets

    async def newest(self, keys: Sequence[Key]) -> list[Key]:
        """The records that these ids stand for, in order."""
        found = await self._store.record([(NEWEST, *key) for key in keys]) if keys else []
        return [
            key if record is None else (key[0], _read(record))
            for key, record in zip(keys, found, strict=True)
        ]

    async def shown(self, jobs: Sequence[Job]) -> list[str]:
        """The ids that these records are shown under, in order."""
        again = [job for job in jobs if job.rerun_of is not None]
        if not again:
            return [job.id for job in jobs]
        found = await self._store.record([(SHOWN, *key_of(job)) for job in again])
        names = {
            key_of(job): _read(record)
            for job, record in zip(again, found, strict=True)
            if record is not None
        }
        return [names.get(key_of(job), job.id) for job in jobs]

    async def rerun(
        self, key: Key, by: By, reason: str, change: Ask | None = None
    ) -> Stored | Refusal:
        """A new job like the one that this id stands for, under the same id; or why there is none.

        `change` is the job that is to run instead, if not just the same.
        """
        for _ in range(TRIES_MAX):
            [alias] = await self._store.record([(NEWEST, *key)])
            name = key[1] if alias is None else _read(alias)
            [stored] = await self._store.get([(key[0], name)])
            refusal = unrepeatable(stored, by) or _barred(stored, by)
            if refusal is not None or stored is None:
                return refusal or refused("unknown_job", None, by, "no such job")
            made = self._made(change or rerun_ask(stored, reason), by, name)
            if isinstance(made, Refusal):
                return made
            if await self._commit(key, alias, made):
                return Stored(made.job, made.body, made.wake_at)
        raise StoreBusy(f"{key[1]} was run again by others {TRIES_MAX} times", id=key[1])

    def _made(self, ask: Ask, by: By, name: str) -> New | Refusal:
        ask, job_id = msgspec.structs.replace(ask, rerun_of=name), self._identity.id()
        ctx = j.Context(by, self._identity.id(), place=self._identity.place(), reason=ask.reason)
        return born(self._secrets.sealed(ask, job_id), job_id, self._store.now(), ctx)

    async def _commit(self, key: Key, alias: Record | None, new: New) -> bool:
        tenant, name = key
        version = 1 if alias is None else alias.version + 1
        to = Record(NEWEST, name, version, _written(new.job.id), tenant=tenant)
        back = Record(SHOWN, new.job.id, 1, _written(name), tenant=tenant)
        unit = Unit(new.events[0].command_id, new=(new,), puts=(to, back))
        [outcome] = await self._coalescer.commit([unit])
        if isinstance(outcome, Committed | Own):
            return True
        if isinstance(outcome, StaleRecord):
            return False
        raise Unstorable(f"{name} cannot be run again: {outcome}", id=name)


def _barred(stored: Stored | None, by: By) -> Refusal | None:
    """Members of workflows ended with their workflow, and not every profile knows this way."""
    if stored is None:
        return None
    if stored.job.workflow is not None:
        why = "it is part of a workflow, which has seen its end"
        return refused("workflow_member", stored, by, why)
    if PROFILES[stored.job.profile].again is not Again.ALIAS:
        why = f"a job of profile {stored.job.profile} is run again as a job of its own"
        return refused("no_alias", stored, by, why)
    return None


def _read(record: Record) -> str:
    return msgspec.json.decode(record.data or "", type=_Alias).id


def _written(name: str) -> str:
    return msgspec.json.encode(_Alias(name)).decode()
