"""What may be written inside somebody's own transaction: jobs that are new, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

from detent.errors import UnfitUnit
from detent.stores.bounds import need_size
from detent.stores.shapes import Unit

__all__ = ["need_new_only"]


def need_new_only(unit: Unit) -> None:
    """Refuse what would have to lock a record that others are working with."""
    need_size((unit,), None)
    why = next(_reasons(unit), None)
    if why is not None:
        raise UnfitUnit(
            f"{why}; inside a transaction of your own only new jobs are taken, hand the rest to"
            " the store itself",
            command_id=unit.command_id,
        )


def _reasons(unit: Unit) -> Iterator[str]:
    if not unit.new:
        yield "The unit has no new job"
    if unit.moves:
        yield "The unit moves a job"
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
