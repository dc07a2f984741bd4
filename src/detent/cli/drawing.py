"""A workflow as a tree for a terminal, and as a picture of its graph for a page."""

from __future__ import annotations

from rich.text import Text

from detent.cli.showing import cell, state_cell
from detent.engine.progress import Progress, StepProgress
from detent.lifecycle import STEP, WORKFLOW
from detent.lifecycle.diagram import Node, graph_svg, tone_of

_BAR = 10


def drawn(found: Progress) -> Text:
    """The tree, a line per step."""
    flow = found.workflow
    title = Text("  ").join(
        [cell(found.name or flow.id), state_cell(flow.state, WORKFLOW), _bar(found.percentage)]
    )
    width = max((len(step.name) for step in found.steps), default=0)
    last = len(found.steps) - 1
    lines = [_line(step, width, is_last=at == last) for at, step in enumerate(found.steps)]
    return Text("\n").join([title, *lines])


def workflow_svg(found: Progress) -> str:
    """Return the steps from left to right, each behind those that it waits for."""
    nodes = [
        Node(
            step.name,
            step.name,
            f"{step.state} \u00b7 {step.tally.completed} of {step.tally.total}",
            step.state,
            tone_of(STEP.state(step.state)),
            f"{step.name}\n{step.state}: {_counts(step)}",
        )
        for step in found.steps
    ]
    edges = [(before, step.name) for step in found.steps for before in step.depends_on]
    return graph_svg(found.name or found.workflow.id, nodes, edges)


def _line(step: StepProgress, width: int, *, is_last: bool) -> Text:
    branch = "└─ " if is_last else "├─ "
    name = cell(step.name)
    name.pad_right(width - len(step.name))
    state = state_cell(step.state, STEP)
    state.pad_right(max(len(one.name) for one in STEP.states) - len(step.state))
    return Text("  ").join([Text(branch) + name, state, _bar(step.percentage), cell(_counts(step))])


def _counts(step: StepProgress) -> str:
    tally = step.tally
    more = {"running": tally.in_progress, "failed": tally.failed, "retried": tally.retried}
    parts = [f"{tally.completed} of {tally.total} completed"]
    parts += [f"{count} {word}" for word, count in more.items() if count]
    return ", ".join([*parts, "needs approval"] if step.needs_approval else parts)


def _bar(percentage: int) -> Text:
    full = percentage * _BAR // 100
    return Text(f"{'█' * full}{'░' * (_BAR - full)} {percentage:>3} %")
