"""Reads everything that there is of something, page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from detent.stores.api import Key, ReadStore, Record, Stored, key_of
from detent.stores.select import Filter, Page

RECORDS_PAGE = 1_000


async def job_pages(store: ReadStore, chosen: Filter, size: int) -> AsyncIterator[Sequence[Stored]]:
    """The jobs that fit, newest first, at most `size` at a time."""
    after: Key | None = None
    while page := await store.find(chosen, Page(size, after)):
        yield page
        after = key_of(page[-1].job)


async def all_records(
    store: ReadStore, kind: str, tenant: str = "", begin: str = ""
) -> list[Record]:
    """Every small record of a kind, by id, however many; only those whose ids begin like that."""
    found: list[Record] = []
    after = begin or None
    while page := await store.records(kind, tenant, after, RECORDS_PAGE):
        meant = [one for one in page if one.id.startswith(begin)]
        found += meant
        if len(meant) < RECORDS_PAGE:
            break
        after = page[-1].id
    return found
