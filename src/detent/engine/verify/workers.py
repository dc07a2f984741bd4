"""Worker instances against their histories."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from detent.engine.verify.finding import Check, Finding
from detent.engine.verify.records import Life, Recorded, judged, life_of
from detent.errors import StoreCorrupt
from detent.lifecycle.worker import Instance, faults
from detent.stores.api import Key, ReadStore

_PAGE = 500


async def lives(
    store: ReadStore, tenant: str | None
) -> AsyncIterator[tuple[list[Life], list[Finding]]]:
    """All instances of the tenant, page by page, and what is wrong with rows of no sense."""
    after: Key | None = None
    while True:
        found, unreadable = await _page(store, after)
        if not found and not unreadable:
            return
        after = found[-1] if found else unreadable[-1].key
        page, more = await _read(store, [key for key in found if tenant in (None, key[0])])
        yield (
            page,
            [one for one in [*unreadable, *more] if one.key and tenant in (None, one.key[0])],
        )


async def misfits(store: ReadStore, page: Sequence[Life]) -> list[Finding]:
    """What is wrong with these instances."""

    async def again(keys: Sequence[Key]) -> dict[Key, Recorded]:
        there = zip(keys, await store.instances(keys), strict=True)
        return {key: one for key, one in there if one is not None}

    found = await judged(store, page, again)
    named = {one.key for one in found}
    broken = [(life, life.record) for life in page if life.key not in named]
    return found + [
        Finding(Check.HISTORY, why, life.key, record.version)
        for life, record in broken
        if isinstance(record, Instance)
        for why in faults(record)[:1]
    ]


async def _page(store: ReadStore, after: Key | None) -> tuple[list[Key], list[Finding]]:
    """The next instances; one that cannot be read is named and stepped over."""
    limit = _PAGE
    while True:
        try:
            some = await store.find_instances(after=after, limit=limit)
            return [(one.tenant, one.id) for one in some], []
        except StoreCorrupt as error:
            if limit == 1:
                key = (str(error.fields["tenant"]), str(error.fields["id"]))
                return [], [Finding(Check.ROW, error.message, key)]
        limit //= 2


async def _read(store: ReadStore, keys: Sequence[Key]) -> tuple[list[Life], list[Finding]]:
    """The lives of a page; where something in it cannot be read, one by one."""
    try:
        records = await store.instances(keys)
        histories = await store.histories(keys)
    except StoreCorrupt as error:
        if len(keys) == 1:
            return [], [Finding(Check.ROW, error.message, keys[0])]
        parts = [await _read(store, [key]) for key in keys]
        return [one for some, _ in parts for one in some], [x for _, some in parts for x in some]
    read = zip(keys, records, histories, strict=True)
    return [life_of(key, record, history) for key, record, history in read], []
