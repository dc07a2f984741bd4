"""Statistics by period, from the newest jobs: as many as one look may take.

What was forgotten or erased is not told any more; whether there were more jobs than were looked at
is said (`is_partial`). The exact counts by state are the store's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from detent.engine.caching import Remembered
from detent.lifecycle.job import Job
from detent.lifecycle.job.table import JobState
from detent.stores.api import Key, key_of
from detent.stores.select import Filter, Page
from detent.surfaces.http.exchange import Call, Reply
from detent.surfaces.ojs.desk import Desk
from detent.surfaces.ojs.faults import invalid
from detent.surfaces.ojs.reading import need_queue
from detent.surfaces.ojs.wire import instant, span, told

SEEN_MAX: Final = 5_000
"""How many jobs are looked at."""
PERIODS_MAX: Final = 1_000
_PAGE: Final = 500
_USUAL: Final = 24
_MINUTE_US: Final = 60_000_000
_WORDS: Final = {
    "minute": _MINUTE_US,
    "1m": _MINUTE_US,
    "5m": 5 * _MINUTE_US,
    "15m": 15 * _MINUTE_US,
    "hour": 60 * _MINUTE_US,
    "1h": 60 * _MINUTE_US,
    "day": 1_440 * _MINUTE_US,
    "1d": 1_440 * _MINUTE_US,
}


class _Times(NamedTuple):
    """What is asked for: from then on, up to then, in steps of so long."""

    since: int
    until: int
    period_us: int

    @property
    def starts(self) -> range:
        return range(self.since, self.until, self.period_us)

    def which(self, at: int | None) -> int | None:
        """In which of the periods it was, if in any."""
        if at is None or not self.since <= at < self.until:
            return None
        return (at - self.since) // self.period_us


class Series:
    """Looks back over the newest jobs, not more often than anybody can read it."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._known: Remembered[tuple[str, str | None], Sequence[Job]] = Remembered(
            self._newest, desk.now
        )

    async def history(self, call: Call) -> Reply:
        """How many jobs came and ended in each period, and how long they had waited."""
        queue = call.query.get("queue") or None
        if queue is not None:
            self._desk.need_queue(call, need_queue(queue))
        word = call.query.get("period") or "hour"
        times = _times(call, _period(word), self._desk.now())
        seen = await self._known.get((self._desk.tenant(call), queue))
        mine = [job for job in seen if call.who.may_use(job.queue)]
        body = {"period": word, "data": _data(mine, times), "is_partial": len(seen) >= SEEN_MAX}
        return self._desk.reply(body)

    async def _newest(self, key: tuple[str, str | None]) -> Sequence[Job]:
        chosen, found = Filter(tenant=key[0], queue=key[1]), list[Job]()
        after: Key | None = None
        while len(found) < SEEN_MAX:
            page = await self._desk.engine.store.find(chosen, Page(_PAGE, after))
            found += [one.job for one in page]
            if len(page) < _PAGE:
                break
            after = key_of(page[-1].job)
        return found


def _period(word: str) -> int:
    return _WORDS.get(word) or max(span("period", word), _MINUTE_US)


def _times(call: Call, period_us: int, now: int) -> _Times:
    """The periods end on the round: those of an hour at the full hour."""
    query = call.query
    until = instant("until", query["until"], now)[0] if query.get("until") else now
    until += -until % period_us
    usual = until - _USUAL * period_us
    since = instant("since", query["since"], now)[0] if query.get("since") else usual
    since -= since % period_us
    if not 0 < (until - since) // period_us <= PERIODS_MAX:
        raise invalid(f"since and until must be 1 to {PERIODS_MAX} periods apart", field="since")
    return _Times(since, until, period_us)


def _data(jobs: Iterable[Job], times: _Times) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [
        {"timestamp": told(at), "processed": 0, "failed": 0, "enqueued": 0} for at in times.starts
    ]
    waits: list[list[int]] = [[] for _ in rows]
    for job in jobs:
        came, ended = times.which(job.created_at), times.which(job.ended_at)
        if came is not None:
            rows[came]["enqueued"] += 1
        if ended is not None and job.state in (JobState.COMPLETED, JobState.DISCARDED):
            rows[ended]["processed"] += 1
            rows[ended]["failed"] += job.state is JobState.DISCARDED
            if job.started_at is not None:
                waits[ended].append(max(job.started_at - (job.enqueued_at or 0), 0))
    for row, some in zip(rows, waits, strict=True):
        row["latency_p50_ms"], row["latency_p99_ms"] = _share(some, 50), _share(some, 99)
    return rows


def _share(lengths_us: Sequence[int], percent: int) -> float:
    """So many of a hundred were not longer."""
    if not lengths_us:
        return 0.0
    return round(sorted(lengths_us)[(len(lengths_us) - 1) * percent // 100] / 1_000, 3)
