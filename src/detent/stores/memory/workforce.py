"""Worker instances: who is trusted, who is gone, and what happened to each."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from detent.lifecycle import job as j
from detent.stores.api import Death, Key, Life, WorkerRow
from detent.stores.memory.tables import Tables
from detent.stores.workers import LATE_US, is_believed, newest

__all__ = ["Workforce"]


class Workforce:
    """Everything that changes the rows of workers, and their histories."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def beat(self, workers: Sequence[WorkerRow], now: int) -> list[bool]:
        alive = {row.id for row in newest(workers).values() if self._beat(row, now)}
        return [row.id in alive for row in workers]

    def _beat(self, row: WorkerRow, now: int) -> bool:
        known = self._tables.workers.get(row.id)
        if known is None and row.renews:
            return False
        if known is None:
            known = WorkerRow(row.id, row.alive_until, who=row.who)
        if not known.lost:
            self._tables.workers[row.id] = self._renewed(known, row, now)
        return not known.lost

    def _renewed(self, known: WorkerRow, row: WorkerRow, now: int) -> WorkerRow:
        if 0 < known.beat_at - now <= LATE_US:
            return known
        return replace(known, alive_until=row.alive_until, state=row.state, beat_at=now)

    def declare_lost(self, workers: Sequence[str], now: int) -> list[bool]:
        """What is unknown or marked already is lost as well."""
        return [self._is_over(one, now) for one in workers]

    def _is_over(self, worker: str, now: int) -> bool:
        row = self._tables.workers.get(worker)
        if row is not None and not row.lost and row.alive_until <= now:
            self._end(row, now, None)
        return row is None or row.lost or row.alive_until <= now

    def bury(self, deaths: Sequence[Death], now: int) -> list[bool]:
        return [self._bury(death, now) for death in deaths]

    def _bury(self, death: Death, now: int) -> bool:
        row = self._tables.workers.get(death.id)
        if row is None or row.lost:
            return True
        if not is_believed(row.who, death):
            return False
        self._end(row, now, death)
        return True

    def _end(self, row: WorkerRow, now: int, death: Death | None) -> None:
        self._tables.workers[row.id] = replace(row, lost=True, ended_at=now, death=death)

    def ship(self, lives: Sequence[Life]) -> list[bool]:
        return [self._ship(life) for life in lives]

    def _ship(self, life: Life) -> bool:
        tables, key = self._tables, (life.instance.tenant, life.instance.id)
        stored = tables.instances.get(key)
        if stored is None and tables.events.get(key):
            return False  # Somebody else's name.
        if life.version != (stored.version if stored else 0):
            return False
        tables.instances[key] = life.instance
        tables.record(life.events)
        return True

    def forget(self, before: int, limit: int) -> int:
        """The oldest ends first."""
        rows = self._over(before)[: max(limit, 0)]
        for row in rows:
            del self._tables.workers[row.id]
        keys = self._told(before)[: max(limit, 0)]
        for key in keys:
            del self._tables.instances[key]
            self._tables.forget_events(key)
        return len(rows) + len(keys)

    def _over(self, before: int) -> list[WorkerRow]:
        ended = [(row.ended_at, row) for row in self._tables.workers.values()]
        over = [(at, row.id, row) for at, row in ended if at is not None and at < before]
        held = {job.holder for job in self._held()}
        return [row for _, name, row in sorted(over, key=lambda one: one[:2]) if name not in held]

    def _held(self) -> list[j.Job]:
        jobs = [stored.job for stored in self._tables.jobs.values()]
        return [job for job in jobs if job.lease is not None and not job.wire]

    def _told(self, before: int) -> list[Key]:
        """The instances that ended before then and whose histories are sealed."""
        ended = [(one.ended_at, key) for key, one in self._tables.instances.items()]
        over = sorted((at, key) for at, key in ended if at is not None and at < before)
        return [key for _, key in over if self._tables.is_sealed(key)]
