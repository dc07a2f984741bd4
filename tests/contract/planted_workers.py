"""Bugs about worker instances: who is believed, what is renewed, what is kept."""

# ruff: noqa: ARG002 - a rule that is broken may well forget to look at something

from __future__ import annotations

from msgspec.structs import replace

from detent.stores.api import Death, Key, Life, WorkerRow
from detent.stores.memory import MemoryStore
from detent.stores.memory.tables import Tables


class AnybodyMayBury(MemoryStore):
    def _bury(self, death: Death, now: int) -> bool:
        row = self._all.workers.get(death.id)
        if row is not None and not row.lost:
            self._end(row, now, death)
        return True


class NobodyMayBuryBeforeTime(MemoryStore):
    def _bury(self, death: Death, now: int) -> bool:
        row = self._all.workers.get(death.id)
        is_early = row is not None and not row.lost and now < row.alive_until
        return False if is_early else super()._bury(death, now)


class APidIsEnough(MemoryStore):
    def _bury(self, death: Death, now: int) -> bool:
        row = self._all.workers.get(death.id)
        who = None if row is None else row.who
        if who and who.process and death.process and who.process.pid == death.process.pid:
            death = replace(death, process=who.process)
        return super()._bury(death, now)


class TheLastWordAboutAnEndCounts(MemoryStore):
    def _bury(self, death: Death, now: int) -> bool:
        row = self._all.workers.get(death.id)
        if row is not None and row.lost and row.death is not None:
            self._end(row, now, death)
        return super()._bury(death, now)


class TheExitCauseIsForgotten(MemoryStore):
    def _end(self, row: WorkerRow, now: int, death: Death | None) -> None:
        super()._end(row, now, None)


class TheEndIsAsOldAsTheLease(MemoryStore):
    def _end(self, row: WorkerRow, now: int, death: Death | None) -> None:
        super()._end(row, row.alive_until, death)


class RenewingChangesWhoItIs(MemoryStore):
    def _renewed(self, known: WorkerRow, row: WorkerRow, now: int) -> WorkerRow:
        return replace(super()._renewed(known, row, now), who=row.who)


class RenewingForgetsTheState(MemoryStore):
    def _renewed(self, known: WorkerRow, row: WorkerRow, now: int) -> WorkerRow:
        return replace(super()._renewed(known, row, now), state=known.state or row.state)


class TheBeatIsNotDated(MemoryStore):
    def _renewed(self, known: WorkerRow, row: WorkerRow, now: int) -> WorkerRow:
        return replace(super()._renewed(known, row, now), beat_at=known.beat_at or now)


class LateBeatsTakeBack(MemoryStore):
    def _renewed(self, known: WorkerRow, row: WorkerRow, now: int) -> WorkerRow:
        return super()._renewed(replace(known, beat_at=0), row, now)


class TheForgottenMayComeBack(MemoryStore):
    def _beat(self, row: WorkerRow, now: int) -> bool:
        return super()._beat(replace(row, renews=False), now)


class HandsThatHoldJobsAreForgotten(MemoryStore):
    async def forget_workers(self, *, before: int, now: int, limit: int = 1_000) -> int:
        jobs, self._all.jobs = self._all.jobs, {}
        gone = await super().forget_workers(before=before, now=now, limit=limit)
        self._all.jobs = jobs
        return gone


class TheTrustedAreForgotten(MemoryStore):
    async def forget_workers(self, *, before: int, now: int, limit: int = 1_000) -> int:
        rows = self._all.workers
        ended = {name: replace(row, ended_at=row.beat_at) for name, row in rows.items()}
        self._all.workers = {name: row if row.lost else ended[name] for name, row in rows.items()}
        gone = await super().forget_workers(before=before, now=now, limit=limit)
        self._all.workers = {name: rows[name] for name in self._all.workers}
        return gone


class LivesAreForgottenBeforeTheyAreSealed(Tables):
    def is_sealed(self, key: Key) -> bool:
        return key in self.instances or super().is_sealed(key)


class LivesOfTheLivingAreForgotten(MemoryStore):
    async def forget_workers(self, *, before: int, now: int, limit: int = 1_000) -> int:
        lives = self._all.instances
        self._all.instances = {key: replace(x, ended_at=x.last_at) for key, x in lives.items()}
        gone = await super().forget_workers(before=before, now=now, limit=limit)
        self._all.instances = {key: lives[key] for key in self._all.instances}
        return gone


class ALifeMayBeToldTwice(MemoryStore):
    def _ship(self, life: Life) -> bool:
        key = (life.instance.tenant, life.instance.id)
        stored = self._all.instances.get(key)
        if stored is not None and stored.version > life.version:
            return True
        return super()._ship(life)


class ALifeMayHaveAGap(MemoryStore):
    def _ship(self, life: Life) -> bool:
        stored = self._all.instances.get((life.instance.tenant, life.instance.id))
        if stored is not None and stored.version < life.version:
            life = replace(life, version=stored.version)
        return super()._ship(life)


class TheHeadStaysBehind(MemoryStore):
    def _ship(self, life: Life) -> bool:
        key = (life.instance.tenant, life.instance.id)
        before = self._all.instances.get(key)
        is_taken = super()._ship(life)
        if is_taken and before is not None:
            self._all.instances[key] = before
        return is_taken


class AnyNameIsTaken(MemoryStore):
    def _ship(self, life: Life) -> bool:
        tables, key = self._all, (life.instance.tenant, life.instance.id)
        if key in tables.instances:
            return super()._ship(life)
        tables.instances[key] = life.instance
        tables.record(life.events)
        return True
