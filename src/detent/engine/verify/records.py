"""Records against their histories, and against the rows of their leases."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from detent.engine.verify.finding import Check, Finding
from detent.errors import StoreCorrupt
from detent.lifecycle.job import Job
from detent.lifecycle.replay import audit
from detent.lifecycle.worker import Instance
from detent.lifecycle.workflow import Step, Workflow
from detent.stores.api import Fed, Key, ReadStore

_PAGE = 500
Recorded: TypeAlias = Job | Workflow | Step | Instance
"""A record that has a history."""
Again: TypeAlias = Callable[[Sequence[Key]], Awaitable[Mapping[Key, Recorded]]]
"""Those of these records that are there by now, read once more."""


class Life(NamedTuple):
    """A record and its history, read one after the other: the history may be longer by then."""

    key: Key
    record: Recorded | None
    history: Sequence[Fed]
    past: Sequence[Fed]
    """What had happened when the record was read."""

    @property
    def version(self) -> int:
        return 0 if self.record is None else self.record.version


async def lives(
    store: ReadStore, tenant: str | None
) -> AsyncIterator[tuple[list[Life], list[Finding]]]:
    """All jobs of the tenant, page by page, and what is wrong with rows that cannot be read."""
    after: Key | None = None
    while page := await store.keys(after, _PAGE):
        after = page[-1]
        yield await _read(store, [key for key in page if tenant in (None, key[0])])


async def misfits(store: ReadStore, page: Sequence[Life]) -> list[Finding]:
    """What is wrong with these jobs."""
    found = await judged(store, page, lambda keys: still(store, keys))
    return found + await _leases(store, page)


async def still(store: ReadStore, keys: Sequence[Key]) -> dict[Key, Recorded]:
    """Those of these jobs that are there by now."""
    found = zip(keys, await store.get(keys), strict=True)
    return {key: stored.job for key, stored in found if stored is not None}


async def judged(store: ReadStore, page: Sequence[Life], again: Again) -> list[Finding]:
    """Records against their histories, once more where they differ.

    Retention takes a record and all of its history in one commit. When that comes between our two
    looks, the one has something and the other has not: whatever is gone by now was not wrong.
    """
    found = [finding for life in page if (finding := _judged(life)) is not None]
    longer = [life for life in page if life.history and len(life.history) > len(life.past)]
    doubted = [one.key for one in found if one.key is not None]
    there = await again([*doubted, *(life.key for life in longer)])
    found = [one for one in found if one.key in there]
    return found + await _beyond_the_record(store, longer, there)


def life_of(key: Key, record: Recorded | None, history: Sequence[Fed]) -> Life:
    """The record and its history; what came after the record was read stands apart."""
    version = 0 if record is None else record.version
    is_longer = len(history) > version or (history and history[-1].event.version > version)
    past = [fed for fed in history if fed.event.version <= version] if is_longer else history
    return Life(key, record, history, past)


async def _read(store: ReadStore, keys: Sequence[Key]) -> tuple[list[Life], list[Finding]]:
    """The page; where something in it cannot be read, record by record."""
    try:
        return await _together(store, keys), []
    except StoreCorrupt as error:
        if len(keys) == 1:
            return [], [Finding(Check.ROW, error.message, key=keys[0])]
    parts = [await _read(store, [key]) for key in keys]
    return [life for some, _ in parts for life in some], [one for _, some in parts for one in some]


async def _together(store: ReadStore, keys: Sequence[Key]) -> list[Life]:
    records = await store.get(keys)
    histories = await store.histories(keys)
    return [
        life_of(key, None if stored is None else stored.job, history)
        for key, stored, history in zip(keys, records, histories, strict=True)
    ]


def _judged(life: Life) -> Finding | None:
    """The record against its past. They were committed together: nothing excuses a difference."""
    past = life.past
    if life.record is None:
        return None
    last = past[-1].event.version if past else 0
    if last < life.version:
        ends = f"its history ends at version {last}" if past else "it has no history"
        why = f"the record is at version {life.version}, but {ends}"
        return Finding(Check.HISTORY, why, life.key, life.version)
    try:
        fault = audit([fed.event for fed in past], life.record)
    except (TypeError, ValueError, AttributeError) as error:
        # A database without strict types hands out whatever somebody has put there.
        return Finding(Check.ROW, f"its history cannot be judged: {error}", life.key)
    if fault is not None:
        return Finding(Check.HISTORY, fault.why, life.key, fault.version)
    return _out_of_order(life.key, past)


def _out_of_order(key: Key, past: Sequence[Fed]) -> Finding | None:
    """Later versions stand later in the feed; a position of 0 is to come, as all after it."""
    last, missing = 0, None
    for fed in past:
        if fed.pos and missing is not None:
            why = f"it is not in the feed, where the version after it stands at {fed.pos}"
            return Finding(Check.FEED, why, key, missing.event.version)
        missing = None if fed.pos else missing or fed
        if fed.pos and fed.pos <= last:
            why = f"it stands in the feed at {fed.pos}, before the version that it follows"
            return Finding(Check.FEED, why, key, fed.event.version, fed.pos)
        last = fed.pos or last
    return None


async def _beyond_the_record(
    store: ReadStore, longer: Sequence[Life], there: Mapping[Key, Recorded]
) -> list[Finding]:
    """Events after the record's version: it moved meanwhile, or somebody has added them."""
    found = []
    for life in longer:
        last = life.history[-1].event.version
        if life.key in there:
            version = there[life.key].version
            stands = f"the record stands at {version}"
        else:
            [left] = await store.histories([life.key])
            version, stands = 0 if left else last, "there is no record"
        if version < last:
            why = f"its history goes on to version {last}, but {stands}"
            found.append(Finding(Check.HISTORY, why, life.key, version + 1))
    return found


async def _leases(store: ReadStore, page: Sequence[Life]) -> list[Finding]:
    """Who holds a job over the wire has a row; who held it has none. Ids are never used twice."""
    named = [(life, lease) for life in page for lease in _wire_leases(life)]
    rows = await store.leases([lease for _, lease in named])
    wrong = [
        (life, lease)
        for (life, lease), row in zip(named, rows, strict=True)
        if (row is not None) != (lease == _lease_of(life.record))
    ]
    again = await still(store, [life.key for life, _ in wrong])
    found = []
    for life, lease in wrong:
        now = again.get(life.key)
        # A record that has moved meanwhile has taken the row of its lease with it.
        if now is None or now.version != life.version:
            continue
        is_held = lease == _lease_of(now)
        why = f"its lease {lease} has no row" if is_held else f"ended lease {lease} has a row"
        found.append(Finding(Check.LEASE, why, life.key, life.version))
    return found


def _lease_of(record: Recorded | None) -> str | None:
    return record.lease if isinstance(record, Job) else None


def _wire_leases(life: Life) -> Iterator[str]:
    for fed in life.past:
        if fed.event.wire and fed.event.lease is not None:
            yield fed.event.lease
