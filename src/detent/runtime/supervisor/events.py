"""Following a tree: where it stands now, then every entry in order, and never a silent hole.

Followers read from the journal, each with its own cursor. A slow one falls behind and loses
nothing; what was pruned before it came is named as a gap.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Final, TypeAlias

import msgspec

from detent.runtime.supervisor.entries import Entry
from detent.runtime.supervisor.snapshot import Snapshot
from detent.runtime.supervisor.tree import Tree

_BATCH: Final = 100


class Start(msgspec.Struct, frozen=True):
    """The tree as it was after entry `seq`; what follows begins behind that."""

    seq: int
    snapshot: Snapshot


class Gap(msgspec.Struct, frozen=True):
    """These entries cannot be read any more, first and last included."""

    first: int
    last: int


Change: TypeAlias = Start | Gap | Entry


async def follow(
    tree: Tree, snapshot: Callable[[], Snapshot], after: int | None
) -> AsyncIterator[Change]:
    """From now on, or, with a number, from the entry behind that one.

    A number that there is not yet is of a journal before this one: then it goes on from now, and
    `Start` says from where.
    """
    news = asyncio.Event()
    forget = tree.listen(news.set)
    try:
        last = tree.journal.bounds()[1]
        seq = last if after is None else min(after, last)
        yield Start(seq, snapshot())
        while True:
            news.clear()
            entries = tree.journal.read(seq, _BATCH)
            for change in with_gaps(seq, entries):
                yield change
            if entries:
                seq = entries[-1].seq
            else:
                await news.wait()
    finally:
        forget()


def with_gaps(after: int, entries: list[Entry]) -> Iterator[Gap | Entry]:
    """The entries, and what is missing between them."""
    for entry in entries:
        if entry.seq > after + 1:
            yield Gap(after + 1, entry.seq - 1)
        yield entry
        after = entry.seq
