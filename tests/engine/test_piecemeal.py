"""Who makes many things lets others have their turn."""

from __future__ import annotations

import asyncio

from detent.engine.piecemeal import PIECE, piecemeal


def test_others_get_in_after_each_piece() -> None:
    async def asked() -> list[int]:
        seen: list[int] = []
        made: list[int] = []

        def make(number: int) -> int:
            made.append(number)
            return -number

        async def other() -> None:
            while True:
                seen.append(len(made))
                await asyncio.sleep(0)

        busy = asyncio.ensure_future(other())
        found = await piecemeal(make, range(3 * PIECE))
        busy.cancel()
        assert found == [-n for n in range(3 * PIECE)]
        return seen

    assert asyncio.run(asked()) == [PIECE, 2 * PIECE]
    assert asyncio.run(piecemeal(str, [])) == []
