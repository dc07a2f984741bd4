"""What a step is told when it is planned: what it comes after, and the policy it is judged by."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Fails(StrEnum):
    """When a step with a failed job fails."""

    AT_FIRST = "at_first"
    WHEN_ALL_DONE = "when_all_done"


class Condition(StrEnum):
    """How the steps it depends on must have ended for a step to get its turn."""

    SUCCESS = "success"
    FAILURE = "failure"
    ALWAYS = "always"


class WhenEmpty(StrEnum):
    """What a step without jobs does when its turn comes: hold its workflow open, or be done."""

    WAIT = "wait"
    COMPLETE = "complete"


class Policy(msgspec.Struct, frozen=True, omit_defaults=True):
    """The rules of one step. A step with a `gate` waits for a user even when its turn has come."""

    fails: Fails = Fails.AT_FIRST
    condition: Condition = Condition.SUCCESS
    when_empty: WhenEmpty = WhenEmpty.COMPLETE
    gate: bool = False


class StepPlan(msgspec.Struct, frozen=True, omit_defaults=True):
    """A step that does not exist yet; `depends_on` names other steps by their ids."""

    id: str
    depends_on: tuple[str, ...] = ()
    policy: Policy = Policy()
