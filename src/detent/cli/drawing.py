"""A workflow as a tree: its steps below it, each with how far its jobs are."""

from __future__ import annotations

from rich.text import Text

from detent.cli.showing import cell, state_cell
from detent.engine.progress import Progress, StepProgress
from detent.lifecycle import STEP, WORKFLOW

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


def _line(step: StepProgress, width: int, *, is_last: bool) -> Text:
    tally = step.tally
    branch = "└─ " if is_last else "├─ "
    counts = f"{tally.completed} of {tally.total} completed"
    some = {"running": tally.in_progress, "failed": tally.failed, "retried": tally.retried}
    told = [counts, *(f"{count} {word}" for word, count in some.items() if count)]
    if step.needs_approval:
        told.append("needs approval")
    name = cell(step.name)
    name.pad_right(width - len(step.name))
    state = state_cell(step.state, STEP)
    state.pad_right(max(len(one.name) for one in STEP.states) - len(step.state))
    return Text("  ").join(
        [Text(branch) + name, state, _bar(step.percentage), cell(", ".join(told))]
    )


def _bar(percentage: int) -> Text:
    full = percentage * _BAR // 100
    return Text(f"{'█' * full}{'░' * (_BAR - full)} {percentage:>3} %")
