"""The chain of blocks, checked link by link while the leaves go by that were sealed in them.

A leaf stays when its event is forgotten, so every root can be made again for ever. What is still
there of the events is compared with the leaves, one by one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import msgspec

from detent.engine.verify.feed import end_of
from detent.engine.verify.finding import Check, Finding
from detent.lifecycle.merkle import GrowingRoot, skip_of
from detent.lifecycle.seal import GENESIS, Block, head
from detent.stores.api import ReadStore

_PAGE = 1_000


class Seals:
    """Blocks 1 to `last` of a store, whose leaves went up to the position `end` after that.

    `checked` counts blocks, and `head` is the newest one's: compare it with one kept elsewhere.
    """

    def __init__(self, store: ReadStore, *, last: int, end: int) -> None:
        self._store = store
        self._coming = _blocks(store, last)
        self._last, self._end = last, end
        self._before: Block | None = None
        self._heads = {0: GENESIS}
        self._open: Block | None = None
        self._root = GrowingRoot()
        self.checked = 0
        self.head: str | None = None

    async def take(self, leaves: Sequence[tuple[int, bytes]]) -> list[Finding]:
        """What the next leaves, each with its position, say about the seals."""
        found: list[Finding] = []
        for pos, leaf in leaves:
            while self._open is None or _last_pos(self._open) < pos:
                found += self._closed(is_whole=False)
                if not await self._begin(found):
                    return found
            self._root.add(leaf)
            if pos == _last_pos(self._open):
                found += self._closed(is_whole=True)
        return found

    async def finish(self) -> list[Finding]:
        """What is left to say when there are no more leaves."""
        found = self._closed(is_whole=False)
        while await self._begin(found):
            found += self._closed(is_whole=False)
        if self.checked < self._last:
            found.append(_finding(self.checked + 1, "it is missing from the chain"))
        return found + await self._beyond_the_chain()

    async def _beyond_the_chain(self) -> list[Finding]:
        """Leaves are written with their block, so none can stand after the last one's."""
        newest = await self._store.blocks(await end_of(self._store.blocks, self._last) - 1, 1)
        if not newest or _unreadable(newest[-1]) is not None:
            return []
        ends = _last_pos(newest[-1])
        why = f"it ends at position {ends}, but leaves go on to {self._end}"
        return [_finding(newest[-1].number, why)] if ends < self._end else []

    async def _begin(self, found: list[Finding]) -> bool:
        """Open the next block and judge its header; false if there is none."""
        block = await anext(self._coming, None)
        if block is None:
            return False
        self.checked += 1
        if (why := _unreadable(block)) is not None:
            # Nothing after it can be placed.
            self._coming, self.checked = _blocks(self._store, 0), self._last
            found.append(_finding(block.number, why))
            return False
        if (why := self._misfit(block)) is not None:
            found.append(_finding(block.number, why))
        self._remember(block)
        self._open, self._root = block, GrowingRoot()
        return True

    def _misfit(self, block: Block) -> str | None:
        """Why this block cannot follow the one before it, or `None`."""
        before = self._before
        first = _last_pos(before) + 1 if before else 1
        if block.number != (before.number + 1 if before else 1):
            return f"block {block.number - 1} before it is missing"
        if block.first_pos != first:
            return (
                f"it begins at position {block.first_pos}, but the one before ends at {first - 1}"
            )
        if _last_pos(block) > self._end:
            return f"it ends at position {_last_pos(block)}, but the leaves end at {self._end}"
        if block.previous != self._heads[block.number - 1]:
            return "it does not lead to the block before it: one of the two was changed"
        # After a gap in the chain the block that it skips to may be unknown.
        if block.skip != self._heads.get(skip_of(block.number), block.skip):
            return f"it does not lead to block {skip_of(block.number)}, which it skips to"
        return None

    def _remember(self, block: Block) -> None:
        """The heads that later blocks can point to: those on the way of skips, and no others."""
        self._before, self.head = block, head(block)
        self._heads[block.number] = self.head
        needed = {0, (step := block.number)}
        while step:
            step = skip_of(step)
            needed.add(step)
        self._heads = {number: one for number, one in self._heads.items() if number in needed}

    def _closed(self, *, is_whole: bool) -> list[Finding]:
        block, self._open = self._open, None
        if block is None or (is_whole and self._root.hash().hex() == block.root):
            return []
        reach = f"positions {block.first_pos} to {_last_pos(block)} of the feed"
        return [_finding(block.number, f"the leaves of {reach} are not those that were sealed")]


async def _blocks(store: ReadStore, last: int) -> AsyncIterator[Block]:
    after = 0
    while after < last and (page := await store.blocks(after, _PAGE)):
        for block in page:
            if block.number <= last:
                yield block
        after = page[-1].number


def _unreadable(block: Block) -> str | None:
    try:
        msgspec.convert(msgspec.to_builtins(block), Block)
    except msgspec.ValidationError as error:
        return f"its header cannot be that of a block: {error}"
    return None


def _last_pos(block: Block) -> int:
    return block.first_pos + block.count - 1


def _finding(block: int, why: str) -> Finding:
    return Finding(Check.SEAL, why, block=block)
