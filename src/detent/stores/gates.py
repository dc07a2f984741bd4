"""Gates as a job sees them: its queue's, its type's and its step's as one. Pure."""

from __future__ import annotations

from detent.lifecycle import workflow as w
from detent.lifecycle.job import OPEN, Gate, Job


def behind(job: Job, flow: w.Flow | None, *gates: Gate) -> Gate:
    """The one that the job stands behind; `flow` is its workflow, if it has one."""
    if flow is None or job.step is None:
        return joined(*gates)
    return joined(*gates, w.gate_of(flow.workflow, flow.steps[job.step]))


def joined(*gates: Gate) -> Gate:
    """Closed while one of them is; opened when the last of them was."""
    apart = [gate for gate in gates if gate is not OPEN]
    if not apart:
        return OPEN
    opened = [gate.opened_at for gate in apart if gate.opened_at is not None]
    return Gate(
        closed=any(gate.closed for gate in apart),
        opened_at=max(opened, default=None),
        queue_deleted=any(gate.queue_deleted for gate in apart),
    )
