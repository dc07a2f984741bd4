"""Every store that the contract is held against: one line each, and nothing else anywhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from detent import stores
from detent.stores.api import Store
from tests.postgres.server import databases

Clock = Callable[[], int]
Backend = Callable[[Path, Clock], Store]

BACKENDS: dict[str, Backend] = {
    "memory": lambda _, clock: stores.open("memory:", clock=clock),
    "sqlite": lambda folder, clock: stores.open(f"sqlite:///{folder}/detent.db", clock=clock),
    "postgresql": lambda folder, clock: stores.open(databases().of(folder), clock=clock),
}
SHARED = tuple(name for name in BACKENDS if name != "memory")
"""Those whose address leads several processes to the same store."""
