"""What may be written inside somebody's own transaction: new jobs, or the end of one's own."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from detent.errors import UnfitUnit
from detent.stores.bounds import need_size
from detent.stores.shapes import RECORDS_MAX, Unit


def need_new_only(unit: Unit) -> None:
    """Refuse what would have to lock a record that others are working with."""
    _need(unit, "only new jobs are taken", _no_news(unit), _reasons(unit))


def need_end_only(unit: Unit) -> None:
    """Refuse what is not the end of one job that is in its caller's hands, with new ones or not."""
    _need(unit, "only the end of a handler's own job is taken", _no_end(unit), _reasons(unit))


def _need(unit: Unit, taken: str, *reasons: Iterator[str]) -> None:
    need_size((unit,), None, alone=RECORDS_MAX)
    why = next(chain.from_iterable(reasons), None)
    if why is not None:
        told = f"{why}; inside a transaction of your own {taken}, hand the rest to the store itself"
        raise UnfitUnit(told, command_id=unit.command_id)


def _no_news(unit: Unit) -> Iterator[str]:
    if not unit.new:
        yield "The unit has no new job"
    if unit.moves:
        yield "The unit moves a job"


def _no_end(unit: Unit) -> Iterator[str]:
    if len(unit.moves) != 1:
        yield f"The unit moves {len(unit.moves)} jobs"
    for move in unit.moves:
        if move.job.workflow is not None or move.job.step is not None:
            # What follows for its workflow would be locked until the caller commits.
            yield f"{move.job.id} belongs to a workflow"
        if move.job.ended_at is None or move.lease is None or move.lost or move.taken_by:
            yield f"{move.job.id} does not end by the word of its holder"
        if move.lines or move.failure or move.checkpoint or move.meta:
            yield f"The end of {move.job.id} brings more than a result"
    if any(new.unique or new.idempotency for new in unit.new):
        yield "A new job with a key would be in the way of the end itself"


def _reasons(unit: Unit) -> Iterator[str]:
    if unit.flow is not None:
        yield "The unit moves a workflow"
    if unit.puts:
        yield "The unit writes a small record"
    if unit.gates or unit.limits:
        yield "The unit sets a gate or a limit"
    for new in unit.new:
        if new.job.workflow is not None or new.job.step is not None:
            # Its step counts its jobs in one row, which would be locked until the caller commits.
            yield f"{new.job.id} belongs to a workflow"
        if new.job.lease is not None:
            yield f"{new.job.id} is in somebody's hands"
