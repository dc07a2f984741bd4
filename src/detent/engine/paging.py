"""Reads everything that a filter finds, page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from detent.stores.api import Key, ReadStore, Stored, key_of
from detent.stores.select import Filter, Page


async def job_pages(store: ReadStore, chosen: Filter, size: int) -> AsyncIterator[Sequence[Stored]]:
    """The jobs that fit, newest first, at most `size` at a time."""
    after: Key | None = None
    while page := await store.find(chosen, Page(size, after)):
        yield page
        after = key_of(page[-1].job)
