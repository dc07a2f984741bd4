"""A workflow as it is ordered becomes steps with jobs, and what is kept of it to be shown. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Raw

from detent.engine import shaping
from detent.engine.asks import Ask
from detent.engine.shaping import Part
from detent.lifecycle.workflow import Condition, Fails, Policy, StepPlan, check_graph
from detent.surfaces.ojs.faults import invalid
from detent.surfaces.ojs.reading import Reader, Wanted, object_of, objects_of

STEPS_MAX: Final = 10_000
CALLBACKS: Final = {
    "on_complete": Condition.ALWAYS,
    "on_success": Condition.SUCCESS,
    "on_failure": Condition.FAILURE,
}


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """A step as it was ordered, kept so that it can be shown."""

    id: str
    type: str
    args: Raw
    part: str
    index: int = 0
    depends_on: tuple[str, ...] = ()
    name: str | None = None
    queue: str = ""


class Kept(msgspec.Struct, frozen=True, omit_defaults=True):
    """What this surface keeps of a workflow."""

    type: str
    steps: tuple[Step, ...]


class Members:
    """Reads the jobs of one workflow, under the options that all of them share, in one trace."""

    def __init__(
        self, reader: Reader, fields: Mapping[str, Raw], traced: Callable[[Wanted], Wanted]
    ) -> None:
        self._reader = reader
        self._traced = traced
        self._defaults = object_of(fields["options"]) if _has(fields, "options") else None
        self.wanted: list[Wanted] = []

    def ask(self, one: Mapping[str, Raw]) -> Ask:
        """Read one job of the workflow."""
        job = {k: v for k, v in one.items() if k not in ("name", "depends_on", "id")}
        self.wanted.append(self._traced(self._reader.job(job, self._defaults)))
        return self.wanted[-1].ask


def planned(members: Members, fields: Mapping[str, Raw]) -> tuple[Kept, Sequence[Part]]:
    """What is kept of an order, and its steps with their jobs."""
    kind = text_in(fields.get("type"))
    if kind is None and "steps" in fields:
        return _graph(members, fields)
    if kind == "chain":
        return _chain(members, fields)
    if kind == "group":
        return _group(members, fields)
    if kind == "batch":
        return _batch(members, fields)
    raise invalid("type must be chain, group or batch; or steps with ids", field="type")


def _chain(members: Members, fields: Mapping[str, Raw]) -> tuple[Kept, Sequence[Part]]:
    given = objects_of("steps", fields.get("steps"), STEPS_MAX)
    steps, asks = list[Step](), list[Sequence[Ask]]()
    for number, one in enumerate(given, start=1):
        if "jobs" in one and "type" in one and text_in(one["type"]) == "group":
            some = objects_of("jobs", one["jobs"], STEPS_MAX)
        else:
            some = [one]
        asks.append([members.ask(job) for job in some])
        before = (str(number - 1),) if number > 1 else ()
        steps += [
            _step(job, ask, str(number), len(steps) + place, before)
            for place, (job, ask) in enumerate(zip(some, asks[-1], strict=True))
        ]
    return Kept("chain", tuple(steps)), shaping.chain(*asks)


def _group(members: Members, fields: Mapping[str, Raw]) -> tuple[Kept, Sequence[Part]]:
    given = objects_of("jobs", fields.get("jobs"), STEPS_MAX)
    asks = [members.ask(one) for one in given]
    steps = [
        _step(one, ask, shaping.JOBS, place)
        for place, (one, ask) in enumerate(zip(given, asks, strict=True))
    ]
    return Kept("group", tuple(steps)), shaping.group(*asks)


def _batch(members: Members, fields: Mapping[str, Raw]) -> tuple[Kept, Sequence[Part]]:
    kept, [jobs] = _group(members, fields)
    raw = fields.get("callbacks")
    called = object_of(raw) if raw is not None else {}
    callbacks = {
        name: (object_of(called[name]), members.ask(object_of(called[name])))
        for name in CALLBACKS
        if name in called and bytes(called[name]) != b"null"
    }
    if not callbacks:
        names = ", ".join(CALLBACKS)
        raise invalid(f"callbacks needs at least one of {names}", field="callbacks")
    steps = list(kept.steps)
    for name, (one, ask) in callbacks.items():
        steps.append(_step(one, ask, name, len(steps), (shaping.JOBS,)))
    asks = {name: ask for name, (_, ask) in callbacks.items()}
    return Kept("batch", tuple(steps)), shaping.batch(jobs.jobs, **asks)


def _graph(members: Members, fields: Mapping[str, Raw]) -> tuple[Kept, Sequence[Part]]:
    """Steps that depend on others by their ids; a callback depends on how they ended."""
    given = objects_of("steps", fields.get("steps"), STEPS_MAX)
    asks: dict[str, Ask] = {}
    steps, plans = list[Step](), list[StepPlan]()
    for one in given:
        name = text_in(one.get("id"))
        if not name or name in asks:
            raise invalid("every step needs an id of its own", field="steps.id")
        asks[name] = members.ask({k: v for k, v in one.items() if k != "id"})
        before = _names(one.get("depends_on"))
        condition = _condition(one)
        plans.append(StepPlan(name, before, Policy(condition=condition)))
        steps.append(_step(one, asks[name], name, len(steps), before))
    plans = [_patient(plan, plans) for plan in plans]
    ordered = check_graph(plans)
    parts = [Part(plan, (asks[plan.id],)) for plan in ordered]
    return Kept("dag", tuple(steps)), parts


def _step(
    one: Mapping[str, Raw], ask: Ask, part: str, index: int, before: tuple[str, ...] = ()
) -> Step:
    name = text_in(one.get("name"))
    named = text_in(one.get("id")) or name or (part if part not in (shaping.JOBS,) else str(index))
    args = Raw(ask.payload.encode())
    return Step(named, ask.type, args, part, index, before, name, ask.queue)


def _condition(one: Mapping[str, Raw]) -> Condition:
    options = object_of(one["options"]) if _has(one, "options") else {}
    kind = text_in(options.get("callback_type"))
    return Condition.SUCCESS if kind is None else CALLBACKS.get(kind, Condition.SUCCESS)


def _patient(plan: StepPlan, plans: Sequence[StepPlan]) -> StepPlan:
    """A step that a callback waits for lets the others end, however it ends itself."""
    called = {
        one for p in plans if p.policy.condition is not Condition.SUCCESS for one in p.depends_on
    }
    if plan.id not in called:
        return plan
    policy = Policy(fails=Fails.WHEN_ALL_DONE, condition=plan.policy.condition)
    return StepPlan(plan.id, plan.depends_on, policy)


def _has(fields: Mapping[str, Raw], name: str) -> bool:
    return name in fields and bytes(fields[name]) != b"null"


def text_in(raw: Raw | None) -> str | None:
    """The text that a field says, if it is one."""
    try:
        value = None if raw is None else msgspec.json.decode(raw)
    except msgspec.DecodeError:
        return None
    return value if isinstance(value, str) else None


def _names(raw: Raw | None) -> tuple[str, ...]:
    if raw is None or bytes(raw) == b"null":
        return ()
    try:
        return msgspec.json.decode(raw, type=tuple[str, ...])
    except msgspec.DecodeError:
        raise invalid("depends_on must be an array of step ids", field="depends_on") from None
