"""What filters and rules of retention mean, for one job. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from detent.lifecycle.dead_letters import is_letter
from detent.lifecycle.job import JobState
from detent.lifecycle.workflow import Flow
from detent.stores.gates import behind
from detent.stores.select import Filter, Only
from detent.stores.shapes import Key, Retention, Stored

_OF_JOB = ("tenant", "queue", "state", "profile", "workflow", "step", "held")
_OF_BODY = ("type", "key")


def is_chosen(stored: Stored, chosen: Filter, flows: Mapping[Key, Flow]) -> bool:
    """All that is asked for; of a job's tags one is enough."""
    of_job = all(getattr(chosen, name) in (None, getattr(stored.job, name)) for name in _OF_JOB)
    of_body = all(getattr(chosen, name) in (None, getattr(stored.body, name)) for name in _OF_BODY)
    flow = flows.get((stored.job.tenant, stored.job.workflow or ""))
    of_all = of_job and of_body and _is_only(chosen.only, stored, flow)
    return of_all and (chosen.tag is None or chosen.tag in stored.body.tags)


def _is_only(only: str | None, stored: Stored, flow: Flow | None) -> bool:
    """Whether the job is what is asked for; `flow` is its workflow, if it has one."""
    job = stored.job
    if only == Only.LETTERS:
        return is_letter(job, stored.body.retry)
    is_free = job.state is JobState.AVAILABLE and not job.held
    return only is None or (is_free and not behind(job, flow).closed)


def is_kept(rule: Retention, stored: Stored) -> bool:
    """Whether the rule lets the job be for what it is."""
    return not rule.letters and is_letter(stored.job, stored.body.retry)
