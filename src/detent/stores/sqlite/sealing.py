"""Seals: leaves are made beside the writer, a block is added only where the chain still ends."""

from __future__ import annotations

import sqlite3

import msgspec
from msgspec.structs import astuple

from detent.lifecycle.merkle import skip_of
from detent.lifecycle.seal import Block, leaf, seal
from detent.stores.sqlite.rows import event_of
from detent.stores.sqlite.statements import SQL
from detent.stores.sqlite.transaction import Transaction


class Draft(msgspec.Struct, frozen=True):
    """A block that fits if nobody else seals first."""

    block: Block
    leaves: tuple[bytes, ...]


def draft(connection: sqlite3.Connection, limit: int) -> Draft | None:
    """The next block over the oldest events without one. Events never change, so this may read."""
    last = _block(connection.execute(SQL["block_last"]).fetchone())
    after = last.first_pos + last.count - 1 if last else 0
    found = connection.execute(SQL["feed"], (after, max(limit, 0)))
    leaves = tuple(leaf(event_of(row)) for row in found)
    if not leaves:
        return None
    skipped = skip_of(last.number + 1 if last else 1)
    skip = _block(connection.execute(SQL["block"], (skipped,)).fetchone())
    return Draft(seal(leaves, last, skip), leaves)


def add(tx: Transaction, made: Draft) -> bool:
    """Whether the chain still ended where the draft begins; only then is it added."""
    last = _block(tx.execute("block_last").fetchone())
    if made.block.number != (last.number + 1 if last else 1):
        return False
    tx.execute("block_insert", *astuple(made.block))
    first = made.block.first_pos
    tx.execute_many("leaf_insert", list(enumerate(made.leaves, start=first)))
    return True


def _block(row: tuple[int, int, int, str, str, str] | None) -> Block | None:
    return None if row is None else Block(*row)
