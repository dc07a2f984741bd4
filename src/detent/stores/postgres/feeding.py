"""The feed and its seals, and the tail of all logs.

One sequencer at a time gives positions to what has been committed.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec
from msgspec.structs import asdict

from detent.lifecycle.merkle import skip_of
from detent.lifecycle.seal import Block, leaf, seal
from detent.stores.api import Fed
from detent.stores.postgres.connection import Connection
from detent.stores.postgres.rows import event_of, fed_of

_STRETCH: Final = 50_000
"""How many get their positions in one transaction."""
_RESTORE_S: Final = 3_600.0
"""Once after a restore all that ever happened is compared with the feed: some 3 s per million."""


class Draft(msgspec.Struct, frozen=True):
    """A block that fits if nobody else seals first."""

    block: Block
    leaves: tuple[bytes, ...]


async def sequence(connection: Connection, what: Literal["events", "lines"] = "events") -> None:
    """Give positions to all events, or to all log lines, that were committed before this call."""
    while True:
        row = await connection.fetch_row(f"sequence_{what}", most=_STRETCH)
        if row is None:
            return
        count, is_fresh, is_behind = row
        if is_fresh and count < _STRETCH:
            return
        if is_behind:
            # Either somebody was faster, or these tables came from a server that had counted
            # further: then the next statement does its work, and otherwise it does nothing.
            async with connection.transaction():
                await connection.fetch("take_your_time")
                await connection.run(f"restored_{what}", _RESTORE_S)


async def feed(connection: Connection, after: int, limit: int) -> list[Fed]:
    """All events in their one order, after a position."""
    return [fed_of(row) for row in await connection.fetch("feed", after=after, most=limit)]


async def blocks(connection: Connection, after: int, limit: int) -> list[Block]:
    """The sealed blocks after a number, oldest first."""
    return [Block(*row) for row in await connection.fetch("blocks", after=after, most=limit)]


async def draft(connection: Connection, limit: int) -> Draft | None:
    """The next block over the oldest events without one. What is fed never changes."""
    row = await connection.fetch_row("block_last")
    last = None if row is None else Block(*row)
    after = last.first_pos + last.count - 1 if last else 0
    rows = await connection.fetch("feed", after=after, most=limit)
    if not rows:
        return None
    leaves = tuple(leaf(event_of(row[1:])) for row in rows)
    row = await connection.fetch_row("block", number=skip_of(last.number + 1 if last else 1))
    return Draft(seal(leaves, last, None if row is None else Block(*row)), leaves)


async def add(connection: Connection, made: Draft) -> bool:
    """Whether the chain still ended where the draft begins; only then is it added."""
    first = made.block.first_pos
    positions = list(range(first, first + len(made.leaves)))
    told = {**asdict(made.block), "positions": positions, "leaves": made.leaves}
    return bool(await connection.fetch("block_insert", **told))
