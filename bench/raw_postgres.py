"""The statements of the PostgreSQL store in tight loops: what the database alone can do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

import asyncpg

from detent.stores.postgres import arrays
from detent.stores.postgres.address import read
from detent.stores.postgres.columns import JOB, MOVING
from detent.stores.postgres.connection import open_connection
from detent.stores.postgres.lanes import Lane, numbers_of
from detent.stores.postgres.marks import NO_MARKS
from detent.stores.postgres.statements import SQL

__all__ = ["Raw"]

T = TypeVar("T")
_NOW = 1_700_000_000_000_000
_LANE = Lane("", "default", "mail.send", "python", "pull", "")
_MADE = '{"made":{"profile":"python","delivery":"pull"},"queue":"default","priority":0,"place":1}'
_EVENT: dict[str, Any] = {
    "event_at": _NOW,
    "event_actor": "worker",
    "event_actor_id": "w1",
    "event_command_id": "command-1",
    "event_kind": "job",
    "event_rest": None,
}
_HELD: dict[str, Any] = {
    "tenant": "",
    "holder": "w1",
    "queues": ["default"],
    "types": None,
    "profiles": ["python"],
    "lease_spans": [None],
    "wire": False,
    "delivery": "pull",
    "is_push": False,
    "state": "active",
    "event": "claim",
    "actor": "worker",
    "actor_id": "w1",
    "now": _NOW,
    **NO_MARKS,
}


class Raw:
    """One connection with the settings of the store, and nothing else of it."""

    def __init__(self, url: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._connection = self._wait(open_connection(read(url)))
        self.lane = self._wait(numbers_of(self._connection, {_LANE}))[_LANE]
        self._last = 10**9
        self._active: list[str] = []
        self._held: list[str] = []

    def close(self) -> None:
        """Give the connection back."""
        self._wait(self._connection.close())
        self._loop.close()

    def _wait(self, asked: Awaitable[T]) -> T:
        return self._loop.run_until_complete(asked)

    def _send(self, name: str, told: dict[str, Any]) -> list[asyncpg.Record]:
        statement = SQL[name]
        values = [told[one] for one in statement.names]
        return self._wait(self._connection.driver.fetch(statement.text, *values))

    def push(self, number: int) -> None:
        """New jobs with body and event, in one commit."""
        first, self._last = self._last + 1, self._last + number
        ids = [f"{one:032}" for one in range(first, self._last + 1)]
        told: dict[str, Any] = {name: [value] * number for name, value in _JOB.items()}
        told |= {name: [value] * number for name, value in _EVENT.items()}
        told |= {"job_id": ids, "event_records": ids}
        told |= {
            "event_tenants": [""] * number,
            "event_version": [1] * number,
            "event_name": ["enqueue"] * number,
            "event_source": [None] * number,
            "event_target": ["available"] * number,
            "event_rest": [_MADE] * number,
            "lanes": [self.lane] * number,
            "tag_tenants": [],
            "tag_texts": [],
            "tag_ids": [],
            "now": _NOW,
        }
        told["job_place"] = list(range(first, self._last + 1))
        self._send("push", told)

    def step(self, number: int) -> None:
        """Complete what was claimed, claim as many again, in one commit."""
        leases = [f"lease-{self._last + one}" for one in range(number)]
        self._last += number
        done = len(self._active)
        told: dict[str, Any] = {name: [value] * done for name, value in {**_DONE, **_EVENT}.items()}
        numbers = list(range(done))
        told |= {"numbers": numbers, "event_numbers": numbers, "ids": self._active}
        told |= {
            "fence_leases": self._held,
            "event_version": [3] * done,
            "event_name": ["complete"] * done,
            "event_source": ["active"] * done,
            "event_target": ["completed"] * done,
            "move_place": numbers,
            **_NOTHING,
            **_HELD,
            "leases": leases,
            "rests": [f'{{"lease":"{lease}","holder":"w1","wire":false' for lease in leases],
            "wanted": number,
            "command_id": "command-2",
        }
        rows = self._send("step", told)
        assert len(rows) == number, "the backlog is used up"
        self._active, self._held = [row["id"] for row in rows], leases


def _filled(prefix: str, names: tuple[str, ...], known: dict[str, Any]) -> dict[str, Any]:
    return {f"{prefix}_{name}": known.get(name) for name in names}


_RECORD: dict[str, Any] = {
    "tenant": "",
    "version": 1,
    "state": "available",
    "profile": "python",
    "queue": "default",
    "priority": 0,
    "delivery": "pull",
    "allowed": 3,
    "losses_allowed": 3,
    "created_at": _NOW,
    "state_at": _NOW,
    "last_at": _NOW,
    "held": False,
    "attempt": 0,
    "failures": 0,
    "losses": 0,
    "handed_back": 0,
    "wire": False,
    "enqueued_at": _NOW,
    "ready_at": _NOW,
}
_ENDED: dict[str, Any] = {
    **_RECORD,
    "version": 3,
    "state": "completed",
    "attempt": 1,
    "holder": "w1",
    "ended_at": _NOW,
    "claimed_at": _NOW,
    "started_at": _NOW,
    "cause": "succeeded",
    "previous": "active",
}
_JOB = {
    **_filled("job", JOB, _RECORD),
    "keys": None,
    "gated": False,
    "wakes": None,
    "fingerprints": None,
    "types": "mail.send",
    "payloads": "[]",
    "metas": "{}",
    "tags": None,
    "retries": None,
    "schemas": None,
}
_DONE = {
    **_filled("move", MOVING, _ENDED),
    "gated": False,
    "with_checkpoint": False,
    "fences": 2,
    "lanes": None,
    "leaves": True,
    "with_result": False,
    "with_failure": False,
    "tenants": "",
    "wakes": None,
}
_NOTHING = arrays.no_asides()
