"""A pooler that cannot do what we need is told apart from a server that is away."""

from __future__ import annotations

import asyncio
from pathlib import Path

import asyncpg
import pytest
from asyncpg import exceptions as pg

from detent.errors import StoreRefused
from detent.stores.postgres.faults import is_lost, translated
from tests.postgres.server import databases


async def provoked(url: str, *statements: str) -> BaseException:
    """What the server says to the last of them."""
    one = await asyncpg.connect(url)
    try:
        for statement in statements[:-1]:
            await one.execute(statement)
        with pytest.raises(asyncpg.PostgresError) as told:
            await one.execute(statements[-1])
    finally:
        await one.close()
    return told.value


def need_told(error: BaseException, option: str) -> None:
    said = translated(error)
    assert isinstance(said, StoreRefused)
    assert said.message.endswith(f"; say {option} in the address")
    assert "statement_cache_size" not in said.message
    assert not is_lost(error)


@pytest.mark.parametrize(
    "statements", [("PREPARE one AS SELECT 1",) * 2, ("EXECUTE one",)], ids=["twice", "gone"]
)
def test_one_that_mixes_up_prepared_statements(tmp_path: Path, statements: tuple[str, ...]) -> None:
    need_told(asyncio.run(provoked(databases().of(tmp_path), *statements)), "prepare=no")


def test_one_that_takes_no_settings() -> None:
    # What PgBouncer 1.18 answers; a server of ours never says it.
    need_told(pg.ProtocolViolationError("unsupported startup parameter: jit"), "pgbouncer=yes")
    assert is_lost(pg.ProtocolViolationError("invalid frontend message type 5"))
