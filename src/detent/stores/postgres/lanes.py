"""Lanes: what a claim chooses jobs by, each with a small number that never changes."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import Final, NamedTuple

import msgspec

from detent.lifecycle.job import Job
from detent.stores.api import Body
from detent.stores.legal import is_storable
from detent.stores.postgres.connection import Connection

_encode = msgspec.json.Encoder().encode
_KNOWN_MAX: Final = 100_000
"""There may be a lane for every customer; so many take some 30 MB."""


class Lane(NamedTuple):
    """All that the jobs of one lane have in common for a claim."""

    tenant: str
    queue: str
    type: str
    profile: str
    delivery: str
    key: str

    @property
    def digest(self) -> bytes:
        """What it is found by: names may be longer than an index takes."""
        return sha256(_encode(self)).digest()


def lane_of(job: Job, body: Body) -> Lane:
    """Where a job stands."""
    delivery = str.__str__(job.delivery)
    return Lane(job.tenant, job.queue, body.type, job.profile, delivery, body.key or "")


class Lanes:
    """The numbers of lanes that this process has met, for as long as it talks to the same server.

    One that took over may have lost the last lanes, and given their numbers to others: a job with
    such a number would stand in somebody else's lane, or in none.
    """

    def __init__(self, numbers: dict[Lane, int] | None = None) -> None:
        self._numbers: dict[Lane, int] = {} if numbers is None else numbers

    def __getitem__(self, lane: Lane) -> int:
        number = self._numbers.get(lane)
        if number is None:
            raise ValueError(f"no lane can have these names: {lane!r}")
        return number

    def unknown(self, lanes: Iterable[Lane]) -> set[Lane]:
        """Those whose numbers must be asked for."""
        return {lane for lane in lanes if lane not in self._numbers and is_storable(lane)}

    def forget(self) -> None:
        """Ask anew for all of them; whoever is at work goes on with what it has."""
        self._numbers = {}

    async def of(self, connection: Connection, lanes: Iterable[Lane]) -> Lanes:
        """Those of the server at the other end, in which these are known.

        What is new is made, each in a short transaction of its own.
        """
        if len(self._numbers) > _KNOWN_MAX:
            self.forget()
        here = Lanes(self._numbers)
        if unknown := here.unknown(lanes):
            here._numbers |= await numbers_of(connection, unknown)
        return here

    def get(self, lane: Lane) -> int | None:
        """Its number, if it is known now."""
        return self._numbers.get(lane)


async def numbers_of(connection: Connection, lanes: set[Lane]) -> dict[Lane, int]:
    """The numbers of these lanes, made if they are new."""
    wanted = {lane.digest: lane for lane in lanes}
    found = await _known(connection, wanted)
    missing = [lane for lane in lanes if lane not in found]
    if missing:
        columns = zip(*((lane.digest, *lane) for lane in missing), strict=True)
        names = ("digests", "tenants", "queues", "types", "profiles", "deliveries", "keys")
        await connection.fetch("lanes_made", **dict(zip(names, columns, strict=True)))
        found = await _known(connection, wanted)
    return found


async def _known(connection: Connection, wanted: dict[bytes, Lane]) -> dict[Lane, int]:
    rows = await connection.fetch("lanes_known", digests=list(wanted))
    return {wanted[digest]: number for digest, number in rows}
