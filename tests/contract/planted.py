"""Stores with one bug each, planted on purpose: the contract must notice every one of them.

Each is the model with one rule broken, the way rules get broken: a condition left out, a sign
turned round, a row forgotten, a check and its write torn apart. A bug is a subclass of the part
whose rule it breaks; the store that is built with it is otherwise as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from detent.stores.api import Store
from detent.stores.memory import MemoryStore
from detent.stores.memory.tables import Tables
from tests.contract import (
    planted_claims,
    planted_pruning,
    planted_store,
    planted_units,
    planted_workers,
)
from tests.contract.making import Clock

PARTS: tuple[type[object], ...] = (Tables, MemoryStore)
MODULES = (planted_units, planted_claims, planted_pruning, planted_workers, planted_store)


class Planted(MemoryStore):
    """The model on wrong tables."""

    def __init__(self, clock: Clock, wrong: type[Tables]) -> None:
        super().__init__(clock)
        self._tables = wrong(self._bell)


def planted() -> dict[str, Callable[[Clock], Store]]:
    """Every wrong store by the name of its bug."""
    named = {module.__name__ for module in MODULES}
    wrong = [bug for part in PARTS for bug in _leaves(part) if bug.__module__ in named]
    return {bug.__name__: _built(bug) for bug in wrong}


def _leaves(part: type[object]) -> Iterator[type[object]]:
    """What nobody builds upon; the rest are means of some bugs."""
    below = part.__subclasses__()
    yield from (leaf for one in below for leaf in _leaves(one)) if below else (part,)


def _built(bug: type[object]) -> Callable[[Clock], Store]:
    return bug if issubclass(bug, MemoryStore) else partial(Planted, wrong=bug)  # type: ignore[arg-type]
