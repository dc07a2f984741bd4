"""The live table of `detent up`: every slot of the tree, and how many jobs stand where."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from detent.engine.telling import told_span
from detent.errors import StoreError
from detent.lifecycle.job import JobState
from detent.runtime.supervisor.snapshot import RESTARTS, Snapshot

if TYPE_CHECKING:
    from detent.app.fleet.fleet import Fleet

_EVERY_S: Final = 0.5
_WIDE: Final = 80
"""So many columns of a terminal all of it takes."""
_COLUMNS: Final = ("slot", "state", "since", "pid", "restarts", "running", "done", "failed")
_FEW: Final = ("slot", "state", "pid", "running")
_STYLES: Final = {
    "Running": "green",
    "Suspended": "yellow",
    "Stopping": "magenta",
    "Failed": "red",
    "Killed": "bold red",
    "Pending": "cyan",
}


class FleetView:
    """Drawn anew twice a second while it is entered."""

    def __init__(self, fleet: Fleet, console: Console | None = None) -> None:
        self._fleet = fleet
        self._live = Live(console=console, auto_refresh=False)
        self._counts: dict[str, int] = {}
        self._task: asyncio.Task[None] | None = None

    def __enter__(self) -> FleetView:
        self._live.__enter__()
        self._task = asyncio.create_task(self._draw())
        return self

    def __exit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
        self._live.update(self._shown(), refresh=True)
        self._live.__exit__(None, None, None)

    async def _draw(self) -> None:
        while True:
            await self._count()
            self._live.update(self._shown(), refresh=True)
            await asyncio.sleep(_EVERY_S)

    async def _count(self) -> None:
        app = self._fleet.app
        try:
            engine = await app.bridge.reach(app.engine())
            found = await app.bridge.reach(_counts(engine.store))
        except StoreError:
            return
        self._counts = found

    def _shown(self) -> Group:
        fleet = self._fleet
        web = fleet.orders.web
        title = f"{fleet.orders.told.reference}{'' if web is None else f' at {web.url}'}"
        width = self._live.console.width
        slots = slots_table(title, fleet.snapshot(), fleet.members.statuses(), width)
        return Group(slots, jobs_table(self._counts, width))


async def _counts(store: Any) -> dict[str, int]:
    totals: dict[str, int] = {}
    for one in await store.counts(None):
        totals[one.state] = totals.get(one.state, 0) + one.count
    return totals


def slots_table(
    title: str, tree: Snapshot, statuses: dict[str, dict[str, Any]], width: int = _WIDE
) -> Table:
    """Every slot with what its worker does; in a narrow terminal what matters most of that."""
    is_wide = width >= _WIDE
    table = Table(title=title, title_justify="left")
    if not is_wide:
        table.box, table.padding = box.SIMPLE, 0
    columns = _COLUMNS if is_wide else _FEW
    for column in columns:
        table.add_column(column, justify="left" if column in ("slot", "state") else "right")
    for slot in tree.children:
        told = _told(slot, statuses.get(slot.instance or "", {}))
        table.add_row(*(told[column] for column in columns))
    return table


def _told(slot: Snapshot, status: dict[str, Any]) -> dict[str, str | Text]:
    return {
        "slot": slot.path,
        "state": Text(_state(slot), style=_STYLES.get(slot.status, "dim")),
        "since": _since(slot),
        "pid": str(slot.pid or ""),
        "restarts": slot.told(RESTARTS) or "0",
        **{name: str(status.get(name, "")) for name in ("running", "done", "failed")},
    }


def jobs_table(counts: dict[str, int], width: int = _WIDE) -> Table:
    """How many jobs stand in each state."""
    # Without lines between them all eight fit into 80 columns.
    table = Table(title="jobs", title_justify="left", box=box.SIMPLE, padding=0)
    if width < _WIDE:
        table.show_header = False
        for state in JobState:
            table.add_row(state.value, f" {counts.get(state.value, 0)}")
        return table
    for state in JobState:
        table.add_column(state.value, justify="right")
    table.add_row(*(str(counts.get(state.value, 0)) for state in JobState))
    return table


def _state(slot: Snapshot) -> str:
    return slot.status if slot.reason is None else f"{slot.status} ({slot.reason})"


def _since(slot: Snapshot) -> str:
    if slot.updated_at is None:
        return ""
    span_us = max(time.time_ns() // 1_000 - slot.updated_at, 0)
    return told_span(span_us // 1_000_000 * 1_000_000)
