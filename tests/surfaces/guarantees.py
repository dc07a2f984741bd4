"""What is promised about telemetry, checked from the outside: from what was told alone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

LETTERS = {
    "JOB_QUEUED": "Q",
    "JOB_DISPATCHED": "D",
    "JOB_RUNNING": "R",
    "JOB_RETRYING": "T",
    "JOB_COMPLETED": "C",
    "JOB_FAILED": "F",
}
LIFE = re.compile(r"Q(DR?T)*(DRC|(DR?)?F)")
"""Queued once; each attempt dispatched, perhaps running, and tried again; then one end."""
_AT = {
    "Q": "queuedAt",
    "D": "dispatchedAt",
    "R": "startedAt",
    "C": "completedAt",
    "F": "failedAt",
}
_SYSTEM = ("ENGINE_NOT_RESPONDING", "JOB_TIMEOUT", "OUT_OF_MEMORY", "NETWORK")


class Told(NamedTuple):
    """One event of a subscriber."""

    name: str
    data: dict[str, Any]


def need_life(told: Sequence[Told]) -> str:
    """Refuse a life that breaks a promise; the letters of one that does not."""
    letters = "".join(LETTERS[one.name] for one in told)
    assert LIFE.fullmatch(letters), letters
    cursors = [one.data["cursor"] for one in told]
    assert cursors == sorted(set(cursors)), cursors
    at = [one.data[_AT[letter]] for one, letter in zip(told, letters, strict=True) if letter in _AT]
    assert at == sorted(at), at
    _need_engines(told, letters)
    _need_end(told, letters)
    return letters


def _need_engines(told: Sequence[Told], letters: str) -> None:
    """Whoever is said to run it is the one whom it was sent to."""
    engine = None
    for one, letter in zip(told, letters, strict=True):
        if letter == "D":
            engine = one.data["engineId"]
            assert engine
        if letter in "RC":
            assert one.data["engineId"] == engine


def _need_end(told: Sequence[Told], letters: str) -> None:
    end, data = told[-1], told[-1].data
    ran = letters[-2] == "R"
    since = told[-2].data["startedAt"] if ran else told[0].data["queuedAt"]
    assert data["duration"] == data[_AT[letters[-1]]] - since, (data, since)
    if end.name == "JOB_FAILED":
        assert data["engineId"] == (told[-2].data["engineId"] if ran else None)
        assert data["category"] == category_of(data["error"], ran=ran), data


def category_of(error: str, *, ran: bool) -> str:
    """The table of the document."""
    code = error.partition(":")[0]
    if code == "CANCELLED":
        return "cancelled"
    if code == "QUEUE_TIMEOUT" or (code == "ENGINE_DISCONNECTED" and not ran):
        return "queue"
    return "system" if code in (*_SYSTEM, "ENGINE_DISCONNECTED") else "engine"
