"""What is kept of a workflow beside its lifecycle: its name, and what was ordered. Pure.

It is one small record of the workflow's id. While the workflow is a draft the record wakes when the
draft has waited long enough; afterwards it wakes now and then, to go when its workflow has gone.
"""

from __future__ import annotations

import hashlib

import msgspec
from msgspec.structs import replace

from detent.engine.asks import Ask
from detent.engine.secrets import redacted_at
from detent.engine.shaping import Order, Part
from detent.lifecycle.workflow import Flow, StepPlan
from detent.stores.api import Key, Record

KIND = "workflow"
DRAFT_US = 3_600_000_000
"""How long a draft may stand still before it is called off."""
KEPT_US = 7 * 24 * 3_600_000_000
"""How often it is asked whether the workflow is still there."""


class Kept(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was ordered. `digest` tells a repeated order from another one of the same id.

    `created_at` is what the ids of its jobs are made of, and `piece` how many of them come in one
    commit: both must be the same when somebody else finishes the draft.
    """

    created_at: int
    digest: str
    piece: int
    name: str = ""
    meta: str = "{}"


def digest_of(order: Order) -> str:
    """The same for the same steps with the same jobs.

    Secrets are left out: from a digest a short one could be guessed. So is the trace, which is
    another one when somebody asks again.
    """
    parts = [replace(part, jobs=tuple(map(_as_told, part.jobs))) for part in order.parts]
    told = (order.name, order.meta, parts)
    return hashlib.sha256(msgspec.json.encode(told)).hexdigest()


def _as_told(ask: Ask) -> Ask:
    return replace(ask, payload=redacted_at(ask.payload, ask.secret or ()), secret=(), trace=None)


def step_id(workflow: str, name: str) -> str:
    """The id of a step: unlike its name, nobody else has it."""
    return f"{workflow}/{name}"


def name_in(workflow: str, step: str) -> str:
    """The name of a step, from its id."""
    return step.removeprefix(f"{workflow}/")


def named(workflow: str, plan: StepPlan) -> StepPlan:
    """The plan with the ids of steps instead of their names."""
    before = tuple(step_id(workflow, one) for one in plan.depends_on)
    return replace(plan, id=step_id(workflow, plan.id), depends_on=before)


def members(workflow: str, part: Part) -> list[Ask]:
    """The jobs of a step, which know where they belong."""
    return [
        replace(ask, workflow=workflow, step=step_id(workflow, part.plan.id)) for ask in part.jobs
    ]


def is_draft(flow: Flow) -> bool:
    """Whether the workflow was never opened and still could be."""
    return flow.workflow.opened_at is None and flow.workflow.ended_at is None


def read(record: Record) -> Kept:
    """What a small record says."""
    return msgspec.json.decode(record.data or "", type=Kept)


def written(kept: Kept, key: Key, version: int, wake_at: int | None) -> Record:
    """The small record that says it."""
    tenant, workflow = key
    return Record(KIND, workflow, version, msgspec.json.encode(kept).decode(), wake_at, tenant)
