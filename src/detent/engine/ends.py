"""Reports of many jobs that complete alike: one of them is decided about. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from detent.engine.lasting import lasting
from detent.lifecycle import job as j
from detent.lifecycle.job.stamping import Endings
from detent.stores.completions import Completion, Completions

if TYPE_CHECKING:
    from detent.engine.commands import Change


def completions(changes: Sequence[Change], names: Sequence[str], now: int) -> Completions | None:
    """All of them as one, each under its name; nothing if not all of them are completions alike.

    What is beside a completion but its result, and jobs that follow from it, make it another one.
    """
    endings = Endings(now)
    if not changes or not _is_learnt(endings, changes[0], names[0]):
        return None
    rows: list[Completion] = []
    for change, name in zip(changes, names, strict=True):
        row = _row(endings, change, name, now)
        if row is None:
            return None
        rows.append(row)
    return Completions(rows, endings)


def _is_learnt(endings: Endings, change: Change, name: str) -> bool:
    if change.known is None or not isinstance(change.command, j.Complete):
        return False
    ctx = j.Context(change.by, name, reason=change.reason)
    return isinstance(endings.decide(change.known.job, change.command, ctx), j.Accepted)


def _row(endings: Endings, change: Change, name: str, now: int) -> Completion | None:
    command, known, beside = change.command, change.known, change.beside
    if known is None or not isinstance(command, j.Complete) or not beside.is_plain:
        return None
    if change.new or change.reason is not None or not endings.knows(known.job, command, change.by):
        return None
    if beside.result is None:
        return known.job, name, command.digest, None, None
    kept, until = lasting(known.job, known.body, beside.result, now)
    return known.job, name, command.digest, kept, until
