"""Everything that can be asked of a workflow. What becomes of it, `decide` says.

`event` is the word under which a refusal speaks of the command.
"""

from __future__ import annotations

from typing import ClassVar, TypeAlias

import msgspec

from detent.lifecycle.workflow.plan import StepPlan
from detent.lifecycle.workflow.table import StepEvent, WorkflowEvent


class Make(msgspec.Struct, frozen=True, kw_only=True):
    """Create a workflow, with steps or without. `jobs` says how many come in the same commit.

    A `draft` stays closed until it is opened, so that it can be built in several commits.
    """

    event: ClassVar[str] = WorkflowEvent.CREATE
    tenant: str = ""
    id: str
    steps: tuple[StepPlan, ...] = ()
    jobs: dict[str, int] = {}
    draft: bool = False


class AddStep(msgspec.Struct, frozen=True):
    """Append a step, with so many jobs in the same commit.

    `after_last` makes it depend on the step that is last when this is decided: only then is it
    known which one that is.
    """

    event: ClassVar[str] = WorkflowEvent.EXTENDED
    step: StepPlan
    jobs: int = 0
    after_last: bool = False


class AddJobs(msgspec.Struct, frozen=True):
    """Put that many new jobs into a step. The jobs themselves are enqueued in the same commit."""

    event: ClassVar[str] = "add_jobs"
    step: str
    jobs: int


class Open(msgspec.Struct, frozen=True):
    """The draft is complete: let it run."""

    event: ClassVar[str] = WorkflowEvent.OPEN


class Pause(msgspec.Struct, frozen=True):
    """Let no further job start."""

    event: ClassVar[str] = WorkflowEvent.PAUSE


class Resume(msgspec.Struct, frozen=True):
    """Let jobs start again."""

    event: ClassVar[str] = WorkflowEvent.RESUME


class Abort(msgspec.Struct, frozen=True):
    """Call the workflow off, with every step that has not ended."""

    event: ClassVar[str] = WorkflowEvent.ABORT


class Release(msgspec.Struct, frozen=True):
    """Open the gate before a step."""

    event: ClassVar[str] = StepEvent.RELEASE
    step: str


class Wait(msgspec.Struct, frozen=True):
    """Put a gate before a step. Recorded as the system's move on behalf of whoever asked."""

    event: ClassVar[str] = StepEvent.WAIT
    step: str


Command: TypeAlias = Make | AddStep | AddJobs | Open | Pause | Resume | Abort | Release | Wait
