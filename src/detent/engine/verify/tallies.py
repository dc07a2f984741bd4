"""The tally of every step against its jobs, on a store that may move all the time.

A tally is read after a look at the end of the feed. What had happened to a job until there is in
it, what happened later may be: so every job stood somewhere between, and the tally must be what
jobs can add up to that stand there. Where nothing moves that is one number.

Of an ended workflow some jobs may be forgotten, which its tallies are not told. They may count
ended jobs that nobody finds; how many is noted, for the feed must then lack events of so many.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import astuple

from detent.engine.paging import job_pages
from detent.engine.verify.feed import end_of
from detent.engine.verify.finding import Check, Finding
from detent.errors import BadHistory, StoreCorrupt
from detent.lifecycle import job as j
from detent.lifecycle import workflow as w
from detent.lifecycle.job import Job
from detent.lifecycle.workflow import Flow, Tally
from detent.lifecycle.workflow.tally import NOTHING
from detent.stores.api import Fed, Key, ReadStore, Stored, key_of
from detent.stores.select import Filter

_PAGE = 500
_ATTEMPTS = 3
_EVENTS_MIN = 2
"""The shortest life that has ended: it was made, and it ended."""
_KEPT = 100


class Forgotten(NamedTuple):
    """A step that counts ended jobs which are not there any more, if they were forgotten."""

    jobs: int
    finding: Finding


class _Range(NamedTuple):
    """The least and the most that the jobs of a step can add up to."""

    low: Tally = NOTHING
    high: Tally = NOTHING


class Tallies:
    """Recounts the jobs of workflows, and remembers how many must have been forgotten."""

    def __init__(self, store: ReadStore) -> None:
        self._store = store
        self._forgotten = 0
        self._excused: list[Finding] = []
        self._end = 0

    async def misfits(self, flow: Flow) -> list[Finding]:
        """What is wrong with the tallies of this workflow."""
        found: list[Finding] = []
        try:
            if await self._is_right(flow):
                return []
            for _ in range(_ATTEMPTS):
                found = await self._found_in(key_of(flow.workflow))
                if not found:
                    break
        except StoreCorrupt:
            return []  # A job of it cannot be read, which is said elsewhere.
        return found

    async def _found_in(self, key: Key) -> list[Finding]:
        """What is wrong with the tallies as they are now, with every doubt in their favour."""
        self._end = await end_of(self._store.feed, self._end)
        [flow] = await self._store.flows([key])
        if flow is None:
            return []
        found, forgotten = _judged(flow, await self._ranges(key, self._end))
        if not found:
            self._excuse(forgotten)
        return found

    def findings(self, missing: int) -> list[Finding]:
        """The steps that count too much, if the feed lacks too few events to explain it."""
        return self._excused if self._forgotten * _EVENTS_MIN > missing else []

    def _excuse(self, forgotten: Sequence[Forgotten]) -> None:
        self._forgotten += sum(one.jobs for one in forgotten)
        room = max(_KEPT - len(self._excused), 0)
        self._excused += [one.finding for one in forgotten[:room]]

    async def _is_right(self, flow: Flow) -> bool:
        """Whether the jobs as they are now add up to what was read just before: mostly so."""
        counted: defaultdict[str, Tally] = defaultdict(Tally)
        async for page in self._pages(key_of(flow.workflow)):
            for stored in page:
                counted[stored.job.step or ""] += w.delta(None, stored.job)
        return counted == flow.tallies

    def _pages(self, key: Key) -> AsyncIterator[Sequence[Stored]]:
        return job_pages(self._store, Filter(tenant=key[0], workflow=key[1]), _PAGE)

    async def _ranges(self, key: Key, before: int) -> dict[str, _Range]:
        ranges: defaultdict[str, _Range] = defaultdict(_Range)
        async for page in self._pages(key):
            histories = await self._store.histories([key_of(one.job) for one in page])
            for stored, history in zip(page, histories, strict=True):
                step, stood = stored.job.step or "", _stood(stored.job, history, before)
                low, high = ranges[step]
                ranges[step] = _Range(low + _of(min, stood), high + _of(max, stood))
        return ranges


def _stood(job: Job, history: Sequence[Fed], before: int) -> list[Tally]:
    """How the job may be counted: as it stood at that position of the feed, or after."""
    try:
        return [NOTHING if one is None else w.delta(None, one) for one in _since(history, before)]
    except (BadHistory, TypeError, ValueError, AttributeError):
        return [w.delta(None, job)]  # Its history makes no sense, which is said elsewhere.


def _since(history: Sequence[Fed], before: int) -> Iterator[Job | None]:
    record: Job | None = None
    coming = [fed.event for fed in history if not 0 < fed.pos <= before]
    for fed in history[: len(history) - len(coming)]:
        record = j.apply(record, fed.event)
    yield record
    for event in coming:
        record = j.apply(record, event)
        yield record


def _of(choose: Callable[[Iterable[int]], int], stood: Sequence[Tally]) -> Tally:
    return Tally(*(choose(counts) for counts in zip(*map(astuple, stood), strict=True)))


def _judged(flow: Flow, ranges: dict[str, _Range]) -> tuple[list[Finding], list[Forgotten]]:
    found, forgotten = [], []
    for step in sorted({*flow.steps, *flow.tallies}):
        tally, counted = flow.tally(step), ranges.get(step, _Range())
        above = tally.total - counted.high.total
        if _fits(tally, counted):
            continue
        finding = _wrong(flow, step, tally, counted)
        if flow.workflow.ended_at is not None and above > 0 and _is_excused(tally, counted):
            forgotten.append(Forgotten(above, finding))
        else:
            found.append(finding)
    return found, forgotten


def _fits(tally: Tally, counted: _Range) -> bool:
    bounds = zip(astuple(counted.low), astuple(tally), astuple(counted.high), strict=True)
    return all(low <= count <= high for low, count, high in bounds)


def _is_excused(tally: Tally, counted: _Range) -> bool:
    """Whether everything that it counts beyond what there is has ended."""
    low, high = counted
    is_enough = all(a <= b for a, b in zip(astuple(low), astuple(tally), strict=True))
    most = high.pending + high.retried - low.withdrawn
    return is_enough and tally.in_progress <= high.in_progress and tally.waiting <= most


def _wrong(flow: Flow, step: str, tally: Tally, counted: _Range) -> Finding:
    wrong = [
        f"{count} {name}, but {high if count > high else low} of its jobs are"
        for name, count, low, high in zip(
            Tally.__struct_fields__, *map(astuple, (tally, *counted)), strict=True
        )
        if not low <= count <= high
    ]
    key, record = key_of(flow.workflow), flow.steps.get(step)
    version = None if record is None else record.version
    return Finding(Check.TALLY, f"it counts {wrong[0]}", (key[0], step), version, flow=key)
