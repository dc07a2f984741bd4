"""The whole examination, from the outside to the inside, in the order in which it is worth reading.

What cannot be reached is not waited for, and what lies behind it is not looked at.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import msgspec

from detent import stores
from detent.engine.doctor import fleet, keys, steering, surroundings
from detent.engine.doctor.sight import Sight, sight_of
from detent.engine.engine import Engine
from detent.engine.keyring import Keyring
from detent.engine.secrets import Secrets
from detent.errors import DetentError
from detent.stores.checks import Check, Grade, harm, refused, warning

WITHIN_S: Final = 5.0
"""How long a database may be silent, and how long one look at it may take."""
LOOKS: Final[tuple[Callable[[Sight], Awaitable[list[Check]]], ...]] = (
    keys.secrets,
    keys.access,
    fleet.workers,
    fleet.upkeep,
    steering.pauses,
    steering.webhooks,
    steering.retention,
)
"""Everything that is looked at through the store."""
_DOORS: Final = ("store", "tables", "rights")
"""If one of these is bad, nobody gets inside."""
_AWAY: Final = "without the database nothing is enqueued, claimed or ended"
_SILENT: Final = f"no answer within {WITHIN_S:g} s"
_HELD: Final = (
    "the database is too busy, or somebody holds what we ask about: jobs wait for it, too"
)
_FREE: Final = "look at its load, and for a transaction that is left open or a process that stands"


class Patient(msgspec.Struct, frozen=True):
    """Which store; how its address is shown, who named it, and what its secrets are locked with."""

    url: str
    shown: str
    origin: str | None
    keyring: Callable[[str], Keyring]


async def examined(patient: Patient) -> list[Check]:
    """Everything that was looked at."""
    found = surroundings.python()
    try:
        found.append(surroundings.address(patient.url, patient.shown, patient.origin))
        outside = await stores.checkup(patient.url, within_s=WITHIN_S)
        found += outside
        if any(one.grade is Grade.BAD and one.name in _DOORS for one in outside):
            return found
    except DetentError as error:
        return [*found, refused("store", error, _AWAY, "detent config show --origin")]
    except OSError as fault:
        told = f"it cannot be used: {fault.strerror or fault}"
        return [
            *found,
            harm("store", told, _AWAY, "check the address, and who may read the folder"),
        ]
    return [*found, *await _inside(patient)]


async def _inside(patient: Patient) -> Sequence[Check]:
    try:
        return await _opened(patient)
    except DetentError as error:
        return [refused("jobs", error, _HELD, _FREE)]
    except TimeoutError:
        return [harm("jobs", _SILENT, _HELD, _FREE)]
    except OSError as fault:
        return [harm("jobs", f"they cannot be read: {fault.strerror or fault}", _HELD, _FREE)]


async def _opened(patient: Patient) -> Sequence[Check]:
    try:
        secrets = Secrets(patient.keyring(patient.url))
    except DetentError as error:
        mend = "mend DETENT_SECRET_KEYS; the guide on secrets shows how a key is made"
        return [refused("secrets", error, "no program with this setting starts", mend)]
    opening = stores.open(patient.url, patience_s=WITHIN_S)
    async with opening as store, Engine(store, secrets=secrets) as engine:
        async with asyncio.timeout(2 * WITHIN_S):
            sight = await sight_of(engine)
        return [one for look in LOOKS for one in await _looked(look, sight)]


async def _looked(look: Callable[[Sight], Awaitable[list[Check]]], sight: Sight) -> list[Check]:
    """What one look finds; one that fails does not keep the others from being had."""
    name = look.__name__
    try:
        async with asyncio.timeout(WITHIN_S):
            return await look(sight)
    except DetentError as error:
        return [refused(name, error, _HELD, _FREE)]
    except TimeoutError:
        return [warning(name, _SILENT, _HELD, _FREE)]
