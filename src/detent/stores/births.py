"""New jobs that differ in little, kept as columns; what they share is kept once.

A store reads them as units like any others, or takes the columns where it can write these at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from detent.lifecycle.job import JobState
from detent.lifecycle.job.stamping import Stamp
from detent.stores.legal import is_storable
from detent.stores.shapes import Body, New, Unit
from detent.stores.uniform import Uniform

SAMPLE_AT: Final = 1_000
_PLACE: Final = 987_654_321


class Mould:
    """What jobs that differ in their arguments alone have in common; one is told by its identity.

    Whoever is born of it has an id that was made for it: it names the command as well, and nothing
    can be in its way.
    """

    __slots__ = ("_after", "_stamp", "tenant", "type")

    def __init__(self, stamp: Stamp, body: Body) -> None:
        self._stamp = stamp
        self._after = (body.meta, body.tags, body.retry, body.schema, body.key)
        self.type = body.type
        self.tenant = stamp.tenant

    def unit(self, job_id: str, at: int, place: int, payload: str) -> Unit:
        """What the lifecycle would have decided about such a job."""
        stamp = self._stamp
        born = stamp.born(job_id, job_id, at, place)
        body = Body(self.type, payload, *self._after)
        return Unit(job_id, (), (New(born.job, born.events, body, stamp.wake_at(at)),))


Own: TypeAlias = tuple[str, int, int, str]
"""The id, the moment, the place and the payload of one job."""
Birth: TypeAlias = tuple[Mould, str, int, int, str]
"""The same, after the mould that it is born of."""


class Births(Uniform[Birth]):
    """Units that are a new job each."""

    __slots__ = ()

    def unit(self, row: Birth) -> Unit:
        """What the lifecycle would have decided."""
        mould, job_id, at, place, payload = row
        return mould.unit(job_id, at, place, payload)

    @property
    def lengths(self) -> list[int]:
        """Of their payloads."""
        return [len(row[4]) for row in self.rows]

    @property
    def ids(self) -> list[str]:
        """The ids of the jobs, in order."""
        return [row[1] for row in self.rows]

    @staticmethod
    def joined(parts: Sequence[Sequence[Unit]]) -> Sequence[Unit]:
        """All units in order; by the column if all of them are."""
        if len(parts) == 1:
            return parts[0]
        rows: list[Birth] = []
        for part in parts:
            if not isinstance(part, Births):
                return [unit for one in parts for unit in one]
            rows += part.rows
        return Births(rows)


def by_mould(rows: Iterable[Birth]) -> dict[Mould, list[Own]]:
    """What is their own, by what they share."""
    found: dict[Mould, list[Own]] = {}
    for mould, job_id, at, place, payload in rows:
        found.setdefault(mould, []).append((job_id, at, place, payload))
    return found


def sample(mould: Mould) -> New | None:
    """One of them, born at `SAMPLE_AT`, whose fields go for all but for what is their own.

    Nothing if that is not all: only those are alike that are available from their first moment,
    stand alone, and have names that every database can keep.
    """
    unit = mould.unit("any", SAMPLE_AT, _PLACE, "[]")
    new = unit.new[0]
    job, events = new.job, new.events
    moments = (job.created_at, job.state_at, job.last_at, job.enqueued_at, job.ready_at)
    more = (job.run_at, job.expires_at, job.rerun_of, job.workflow, job.step, new.unique)
    is_alike = (
        job.state is JobState.AVAILABLE
        and job.version == len(events) == 1
        and {*moments, events[0].at} == {SAMPLE_AT}
        and not any(more)
        and new.idempotency is None
        and not new.body.tags
    )
    return new if is_alike and is_storable(unit) else None


def around_place(told: str) -> tuple[str, str]:
    """What a text about the sample says before and after the number of its place."""
    before, after = told.split(f'"place":{_PLACE}')
    return f'{before}"place":', after
