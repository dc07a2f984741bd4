"""Whether work flows: who is alive, who knows what waits, who looks after what time asks for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from detent.engine import marking, schedule
from detent.engine.doctor.sight import Sight
from detent.engine.hurdles import takes
from detent.engine.paging import all_records
from detent.engine.telling import counted, told_at, told_span
from detent.lifecycle.job.table import ENDED, JobState
from detent.stores.api import Stored
from detent.stores.checks import Check, fine, notice, warning
from detent.stores.select import Filter, Page

_NAMED: Final = 5
_LATE_US: Final = 60_000_000
"""Upkeep looks several times a second, and grants at most a lease's length after a gap."""
_LOOKED: Final = Page(500, look=20_000)


async def workers(sight: Sight) -> list[Check]:
    """Who is alive, and whether anybody takes what waits."""
    return [_alive(sight), _known(sight)]


def _alive(sight: Sight) -> Check:
    alive, waiting = sight.alive, sight.number(JobState.AVAILABLE)
    hosts = {row.who.process.host for row in alive if row.who and row.who.process}
    where = f" on {counted(len(hosts), 'host')}" if hosts else ""
    found = f"{counted(len(alive), 'worker')} alive{where}, {counted(waiting, 'job')} available"
    start = "detent worker starts some; who fetches over HTTP is not seen here"
    if not alive:
        why = "nothing that waits is run, and nobody fires what is due"
        return (warning if sight.kinds else notice)("workers", found, why, start)
    if len(alive) == 1:
        why = "while it is restarted, or stuck, nothing is run"
        return notice("workers", found, why, "start a second one, best on another machine")
    return fine("workers", found)


def _known(sight: Sight) -> Check:
    alive = sight.alive
    if not alive or any(row.who is None for row in alive):
        return fine("types", "nobody is there who would tell what it takes")
    lost = [kind for kind in sight.kinds if not any(takes(row, *kind) for row in alive)]
    if not lost:
        return fine("types", "workers take every type that was seen waiting")
    named = [f"{one.type} in queue {one.queue}" for one in sorted(lost)[:_NAMED]]
    more = f" and {len(lost) - _NAMED} more" if len(lost) > _NAMED else ""
    why = "these jobs wait until somebody comes who takes them"
    mend = "import the module that declares it where workers start, or name its queue: --queue"
    if sight.locked:
        mend += "; of types with secrets, give workers the key in DETENT_SECRET_KEYS"
    return warning("types", f"nobody takes {', '.join(named)}{more}", why, mend)


async def upkeep(sight: Sight) -> list[Check]:
    """Whether somebody looks after what time asks for, and what was left lying."""
    mark = await marking.read(sight.engine.store)
    return [_watched(sight, mark.at), await _leases(sight), await _schedules(sight)]


def _watched(sight: Sight, last: int) -> Check:
    live = sum(one.count for one in sight.counts if one.state not in ENDED)
    silent = sight.now - last
    if last and abs(silent) <= _LATE_US:
        return fine("upkeep", f"somebody looked {told_span(max(silent, 0))} ago")
    if last > sight.now:
        found = f"the last look was at {told_at(last)}, which is still to come"
        why = "a clock was wrong, or is: what is due comes too late, or too early"
        return warning("upkeep", found, why, "see that all machines keep time by NTP")
    found = f"nobody has looked since {told_at(last)}" if last else "nobody has looked yet"
    why = "retries, schedules, deadlines and lost leases wait until somebody does"
    mend = "let one worker run with upkeep, which is usual"
    return (warning if live else notice)("upkeep", found, why, mend)


async def _leases(sight: Sight) -> Check:
    """Workers and wire holders whose time is over for long, and nobody has said so."""
    store, before = sight.engine.store, sight.now - _LATE_US
    gone = [row.id for row in await store.overdue(now=before, limit=_NAMED)]
    active = await store.find(Filter(state=JobState.ACTIVE), _LOOKED)
    over = await _over([one for one in active if one.job.wire], sight, before)
    if not gone and not over:
        return fine("leases", "none is over for long")
    found = ", ".join([*(f"worker {one}" for one in gone), *(f"job {one}" for one in over)])
    why = "their jobs are in nobody's hands and are not given to others"
    mend = "let one worker run with upkeep; if one does, look at its log"
    return warning("leases", f"over, and not taken back: {found}", why, mend)


async def _over(held: Sequence[Stored], sight: Sight, before: int) -> list[str]:
    leases = await sight.engine.store.leases([one.job.lease or "" for one in held])
    told = zip(held, leases, strict=True)
    # One whose row is gone has just ended.
    return [one.job.id for one, row in told if row is not None and row.until < before][:_NAMED]


async def _schedules(sight: Sight) -> Check:
    kept = [
        schedule.read(record)
        for tenant in sight.tenants
        for record in await all_records(sight.engine.store, schedule.KIND, tenant)
    ]
    # One that is paused, or was removed, waits for nothing.
    due = [(one.plan.name, one.next_at) for one in kept if one.next_at is not None]
    late = [f"{name} since {told_at(at)}" for name, at in due if at < sight.now - _LATE_US]
    if not late:
        return fine("schedules", f"none of {len(due)} is late")
    why = "a slot that nobody fires is made up for later, or never, as its catch_up says"
    mend = "let one worker run with upkeep; detent schedules list says what is due"
    return warning("schedules", f"late: {', '.join(late[:_NAMED])}", why, mend)
