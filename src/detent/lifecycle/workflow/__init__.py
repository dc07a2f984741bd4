"""Workflows: a graph of steps, each a set of jobs, moved by two tables and one cascade.

    answer = decide(None, Make(id="w", steps=chain("fetch", "resize")), now, ctx)
    answer = cascade(flow.counting("fetch", delta(before, after)), ("fetch",), now, ctx)

`decide` answers a command, `cascade` what the jobs did. Both give the flow as it is afterwards and
the events of one commit; every shape, ordered stages included, goes through the same rules.
"""

from __future__ import annotations

from detent.lifecycle.workflow.applying import (
    apply_step,
    apply_workflow,
    fold_step,
    fold_workflow,
)
from detent.lifecycle.workflow.cascade import cascade, is_due, needs_cascade, returned
from detent.lifecycle.workflow.commands import (
    Abort,
    AddJobs,
    AddStep,
    Command,
    Make,
    Open,
    Pause,
    Release,
    Resume,
    Wait,
)
from detent.lifecycle.workflow.deciding import decide
from detent.lifecycle.workflow.guards import GUARDS
from detent.lifecycle.workflow.invariants import broken_flow, broken_move
from detent.lifecycle.workflow.plan import Condition, Fails, Policy, StepPlan, WhenEmpty
from detent.lifecycle.workflow.record import (
    CASCADED_BY,
    Accepted,
    Answer,
    Context,
    Flow,
    Step,
    Unchanged,
    Workflow,
    workflow_percentage,
)
from detent.lifecycle.workflow.shapes import (
    EDGES_MAX,
    STEPS_MAX,
    batch,
    chain,
    check_graph,
    dag,
    group,
    stages,
)
from detent.lifecycle.workflow.standing import Outlook, gate_of, is_claimable, outlooks
from detent.lifecycle.workflow.table import (
    STEP,
    WORKFLOW,
    StepEvent,
    StepState,
    WorkflowEvent,
    WorkflowState,
)
from detent.lifecycle.workflow.tally import Tally, bucket, delta, recount, step_percentage

__all__ = [
    "CASCADED_BY",
    "EDGES_MAX",
    "GUARDS",
    "STEP",
    "STEPS_MAX",
    "WORKFLOW",
    "Abort",
    "Accepted",
    "AddJobs",
    "AddStep",
    "Answer",
    "Command",
    "Condition",
    "Context",
    "Fails",
    "Flow",
    "Make",
    "Open",
    "Outlook",
    "Pause",
    "Policy",
    "Release",
    "Resume",
    "Step",
    "StepEvent",
    "StepPlan",
    "StepState",
    "Tally",
    "Unchanged",
    "Wait",
    "WhenEmpty",
    "Workflow",
    "WorkflowEvent",
    "WorkflowState",
    "apply_step",
    "apply_workflow",
    "batch",
    "broken_flow",
    "broken_move",
    "bucket",
    "cascade",
    "chain",
    "check_graph",
    "dag",
    "decide",
    "delta",
    "fold_step",
    "fold_workflow",
    "gate_of",
    "group",
    "is_claimable",
    "is_due",
    "needs_cascade",
    "outlooks",
    "recount",
    "returned",
    "stages",
    "step_percentage",
    "workflow_percentage",
]
