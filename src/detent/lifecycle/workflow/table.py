"""The workflow and step lifecycles: two tables, who may cause each move, and the words for why.

A workflow is what a user handles; a step is one set of its jobs. Users steer workflows and release
steps; everything else follows from what the jobs do. Both tables are frozen by a golden hash.
"""

from __future__ import annotations

from enum import StrEnum

from detent.lifecycle.machine import Actor, Amendment, Edge, Guard, Machine, Phase, State


class WorkflowState(StrEnum):
    """The seven positions of a workflow."""

    CREATED = "created"
    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    PAUSED = "paused"
    COMPLETED = "completed"
    FAILED = "failed"
    ABORTED = "aborted"


class WorkflowEvent(StrEnum):
    """Everything that can be written into a workflow's history."""

    CREATE = "create"
    OPEN = "open"
    START = "start"
    PAUSE = "pause"
    RESUME = "resume"
    COMPLETE = "complete"
    FAIL = "fail"
    ABORT = "abort"
    EXTENDED = "extended"


class WorkflowCause(StrEnum):
    """Why a workflow ended."""

    SUCCEEDED = "succeeded"
    STEP_FAILED = "step_failed"
    REQUESTED = "requested"


class StepState(StrEnum):
    """The seven positions of a step."""

    CREATED = "created"
    WAITING = "waiting"
    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"
    ABORTED = "aborted"


class StepEvent(StrEnum):
    """Everything that can be written into a step's history."""

    CREATE = "create"
    OPEN = "open"
    WAIT = "wait"
    RELEASE = "release"
    START = "start"
    COMPLETE = "complete"
    FAIL = "fail"
    ABORT = "abort"


class StepCause(StrEnum):
    """Why a step ended."""

    SUCCEEDED = "succeeded"
    EMPTY = "empty"
    JOB_FAILED = "job_failed"
    JOB_CANCELLED = "job_cancelled"
    WORKFLOW = "workflow"


_USER, _SYSTEM = (Actor.USER,), (Actor.SYSTEM,)
_OWNER = (Actor.USER, Actor.SYSTEM)

_W, _WE = WorkflowState, WorkflowEvent
_UNFINISHED = (_W.CREATED, _W.PENDING, _W.IN_PROGRESS, _W.PAUSED)

WORKFLOW = Machine(
    "workflow",
    states=(
        State(_W.CREATED, Phase.WAITING, "A draft: it is being built and nothing of it runs."),
        State(_W.PENDING, Phase.READY, "Open: its first job may start."),
        State(_W.IN_PROGRESS, Phase.RUNNING, "At least one of its steps has started."),
        State(_W.PAUSED, Phase.WAITING, "None of its jobs may start; running ones go on."),
        State(_W.COMPLETED, Phase.DONE, "Every step that had to run has completed."),
        State(_W.FAILED, Phase.DONE, "A step failed and nothing is left to run."),
        State(_W.ABORTED, Phase.DONE, "It was called off, with all steps not yet ended."),
    ),
    edges=(
        Edge(_WE.CREATE, (None,), _W.CREATED, _OWNER, "It exists, as a draft."),
        Edge(_WE.OPEN, (_W.CREATED,), _W.PENDING, _OWNER, "It is built; its jobs may start."),
        Edge(_WE.START, (_W.PENDING,), _W.IN_PROGRESS, _SYSTEM, "One of its steps has started."),
        Edge(
            _WE.PAUSE,
            (_W.CREATED, _W.PENDING, _W.IN_PROGRESS),
            _W.PAUSED,
            _USER,
            "No further job of it may start.",
        ),
        Edge(_WE.RESUME, (_W.PAUSED,), _W.PENDING, _USER, "Its jobs may start again."),
        Edge(
            _WE.COMPLETE,
            (_W.IN_PROGRESS,),
            _W.COMPLETED,
            _SYSTEM,
            "Every step has ended, or will never have to run, and none failed.",
        ),
        Edge(
            _WE.FAIL,
            (_W.IN_PROGRESS,),
            _W.FAILED,
            _SYSTEM,
            "A step failed, and every other has ended or can never run.",
        ),
        Edge(_WE.ABORT, _UNFINISHED, _W.ABORTED, _OWNER, "Called off, its steps with it."),
    ),
    amendments=(Amendment(_WE.EXTENDED, _UNFINISHED, _OWNER, "A step was added at its end."),),
    causes=tuple(WorkflowCause),
)

_S, _SE = StepState, StepEvent

STEP = Machine(
    "step",
    states=(
        State(_S.CREATED, Phase.WAITING, "Its turn has not come."),
        State(_S.WAITING, Phase.WAITING, "Behind a gate until a user releases it."),
        State(_S.PENDING, Phase.READY, "Its turn has come; none of its jobs has started."),
        State(_S.IN_PROGRESS, Phase.RUNNING, "At least one of its jobs has started."),
        State(_S.COMPLETED, Phase.DONE, "All its jobs completed."),
        State(_S.FAILED, Phase.DONE, "A job of it failed for good or was called off."),
        State(_S.ABORTED, Phase.DONE, "It was called off together with its workflow."),
    ),
    edges=(
        Edge(_SE.CREATE, (None,), _S.CREATED, _OWNER, "It exists; its turn may never come."),
        Edge(
            _SE.OPEN,
            (_S.CREATED,),
            _S.PENDING,
            _SYSTEM,
            "Its turn has come.",
            ("turn", "opened"),
        ),
        Edge(
            _SE.WAIT,
            (_S.CREATED, _S.PENDING, _S.IN_PROGRESS),
            _S.WAITING,
            _SYSTEM,
            "A gate is put before it, for an operator or because it was made with one.",
        ),
        Edge(
            _SE.RELEASE,
            (_S.WAITING,),
            _S.PENDING,
            _USER,
            "The gate is opened, and its turn has come.",
            ("turn", "opened"),
        ),
        Edge(_SE.START, (_S.PENDING,), _S.IN_PROGRESS, _SYSTEM, "A job of it runs or has ended."),
        Edge(_SE.COMPLETE, (_S.IN_PROGRESS,), _S.COMPLETED, _SYSTEM, "All its jobs completed."),
        Edge(
            _SE.FAIL,
            (_S.IN_PROGRESS,),
            _S.FAILED,
            _SYSTEM,
            "A job failed for good or was called off, and the step's policy waits for no other.",
        ),
        Edge(
            _SE.ABORT,
            (_S.CREATED, _S.WAITING, _S.PENDING, _S.IN_PROGRESS),
            _S.ABORTED,
            _SYSTEM,
            "Its workflow was aborted.",
        ),
    ),
    guards=(
        Guard("turn", "the steps it depends on have ended as its condition asks"),
        Guard("opened", "its workflow is no draft any more"),
    ),
    causes=tuple(StepCause),
)
