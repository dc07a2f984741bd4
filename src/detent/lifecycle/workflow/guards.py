"""The named conditions that edges of a step ask for, each with the refusal if it does not hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from detent.lifecycle.workflow.record import Step, Workflow
from detent.lifecycle.workflow.standing import Outlook, turn


class Rule(NamedTuple):
    """A condition over a step, its workflow and the outlook of the steps before it."""

    holds: Callable[[Workflow, Step, Callable[[str], Outlook]], bool]
    code: str
    detail: str


def _turn(workflow: Workflow, step: Step, look: Callable[[str], Outlook]) -> bool:
    return turn(step, look) is Outlook.READY


def _opened(workflow: Workflow, step: Step, look: Callable[[str], Outlook]) -> bool:
    return workflow.opened_at is not None


GUARDS: dict[str, Rule] = {
    "turn": Rule(
        _turn,
        "previous_not_completed",
        "the steps it depends on have not ended as its condition asks",
    ),
    "opened": Rule(_opened, "workflow_draft", "its workflow is still a draft; open that first"),
}
