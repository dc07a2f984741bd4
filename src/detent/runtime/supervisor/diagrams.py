"""Pictures of a tree as Mermaid text: who is there, in which state, and what one worker did.

The state diagram is the table of the lifecycle, drawn by the lifecycle's own pen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from detent.lifecycle.diagram import lifecycle_mermaid
from detent.lifecycle.event import Event
from detent.lifecycle.worker import WORKER, Health, WorkerState, fold
from detent.runtime.supervisor.snapshot import (
    ADDRESS,
    BREAKER,
    IMAGE,
    PORTS,
    RESTARTS,
    Snapshot,
)


class Kind(msgspec.Struct, frozen=True):
    """How one kind of worker is drawn: the brackets of its shape, its icon, its border."""

    opens: str
    closes: str
    icon: str
    border: str


KINDS: Final[Mapping[str, Kind]] = {
    "supervisor": Kind("{{", "}}", "🧠", "stroke-width:2px"),
    "process": Kind("[", "]", "⚙️", "stroke-width:1px"),
    "container": Kind("[[", "]]", "📦", "stroke-width:3px"),
    "function": Kind("(", ")", "λ", "stroke-dasharray:5 5"),
    "other": Kind("(", ")", "🧬", "stroke-width:1px"),
}
STATUSES: Final[Mapping[str, tuple[str, str, str]]] = {
    "created": ("#f8f9fa", "#dee2e6", "#6c757d"),
    "pending": ("#eef2ff", "#c7d2fe", "#4338ca"),
    "starting": ("#cfe2ff", "#b8d4ff", "#004085"),
    "running": ("#d1ecf1", "#bee5eb", "#0c5460"),
    "suspended": ("#fff3cd", "#ffe69c", "#856404"),
    "stopping": ("#f8d7da", "#f5c6cb", "#721c24"),
    "stopped": ("#e9ecef", "#adb5bd", "#495057"),
    "finished": ("#d4edda", "#c3e6cb", "#155724"),
    "failed": ("#f1aeb5", "#dc3545", "#58151c"),
    "killed": ("#343a40", "#212529", "#ffffff"),
}
"""Fill, border and text of each state."""
_TOLD: Final = {ADDRESS: "🌐", PORTS: "🔌"}
_HEALTH: Final = {Health.HEALTHY: "❤️", Health.UNHEALTHY: "💔"}


def tree_diagram(tree: Snapshot, statuses: Mapping[str, tuple[str, str, str]] | None = None) -> str:
    """The tree from the top: a node per slot, with what is known of it, and its children.

    `statuses` are other colours, for as many states as one likes.
    """
    lines = ["graph TD", *_nodes(tree, "root"), *_styles(statuses)]
    return "\n".join(lines) + "\n"


def system_diagram(
    tree: Snapshot, reason: str, statuses: Mapping[str, tuple[str, str, str]] | None = None
) -> str:
    """The tree, and what governs it: why the process runs, or why it is told to stop."""
    lines = [
        "graph TD",
        '    subgraph control ["signals"]',
        f'        signal("{_safe(reason)}"):::signal',
        "    end",
        '    subgraph supervision ["supervision tree"]',
        *(f"    {line}" for line in _nodes(tree, "root")),
        "    end",
        "    control -->|governs| supervision",
        *_styles(statuses),
        "    classDef signal stroke-width:2px",
    ]
    return "\n".join(lines) + "\n"


def state_diagram(name: str, events: Sequence[Event]) -> str:
    """All states and moves of a worker, with those that this instance has made."""
    record = fold(events)
    lines = lifecycle_mermaid(WORKER, history=events).splitlines()
    if record is not None:
        told = [name, f"instance {record.id}"]
        told += [] if record.pid is None else [f"PID {record.pid}"]
        if record.state.is_terminal:
            told.append(f"exit code {record.exit_code}, {record.cause}")
        if record.code is not None:
            told.append(f"error {record.code}")
        lines += [
            "    classDef active stroke-width:4px,font-weight:bold",
            f"    class {record.state} active",
            f"    note right of {record.state}",
            *(f"        {_safe(line)}" for line in told),
            "    end note",
        ]
    return "\n".join(lines) + "\n"


def _nodes(shown: Snapshot, place: str) -> Iterator[str]:
    kind = shown.kind if shown.kind in KINDS else "other"
    shape = KINDS[kind]
    label = "<br/>".join(_label(shown, shape))
    yield f'    {place}{shape.opens}"{label}"{shape.closes}:::{kind}'
    yield f"    class {place} {shown.status.lower()}"
    for number, child in enumerate(shown.children):
        below = f"{place}_{number}"
        yield from _nodes(child, below)
        yield f"    {place} --> {below}"


def _label(shown: Snapshot, shape: Kind) -> Iterator[str]:
    yield f"<b>{shape.icon} {_safe(shown.name)}</b>"
    heart = _HEALTH.get(Health(shown.health), "")
    yield f"{shown.status} {heart}".rstrip()
    if shown.pid is not None:
        yield f"PID {shown.pid}"
    for key, icon in _TOLD.items():
        if told := shown.told(key):
            yield f"{icon} {_safe(told)}"
    if image := shown.told(IMAGE):
        yield f"<i>{_safe(image)}</i>"
    if shown.reason is not None:
        yield f"<i>{_safe(shown.reason)}</i>"
    if shown.told(RESTARTS) not in (None, "0"):
        yield f"🔄 {shown.told(RESTARTS)}"
    if shown.told(BREAKER) is not None:
        yield "<b>🚫 CIRCUIT BREAKER</b>"


def _styles(statuses: Mapping[str, tuple[str, str, str]] | None) -> Iterator[str]:
    colours = {**STATUSES, **(statuses or {})}
    for name, kind in KINDS.items():
        yield f"    classDef {name} {kind.border}"
    for state in WorkerState:
        fill, stroke, text = colours[state]
        yield f"    classDef {state} fill:{fill},stroke:{stroke},color:{text}"


def _safe(text: str) -> str:
    """Names are data: what the language could take for its own becomes a character code."""
    return "".join(
        char if char.isalnum() or char in " _.,:/-" else f"#{ord(char)};" for char in text
    )
