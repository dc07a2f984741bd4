"""Files that a fleet relies on: deleted or replaced, that is seen."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from detent.app.fleet.guarding import gone

_LOOK_S = 0.01


@pytest.mark.parametrize("how", ["deleted", "replaced"])
async def test_a_file_that_is_not_the_same_any_more_is_missed(tmp_path: Path, how: str) -> None:
    path, other = tmp_path / "lock", tmp_path / "other"
    path.touch()
    other.touch()

    missing = asyncio.create_task(gone(path, _LOOK_S))
    path.write_text("the same, with something in it", "utf-8")
    done, _ = await asyncio.wait([missing], timeout=10 * _LOOK_S)
    assert not done
    if how == "deleted":
        path.unlink()
    else:
        other.rename(path)
    await asyncio.wait_for(missing, 30)
