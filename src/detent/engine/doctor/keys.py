"""Keys: those that secrets are locked with, and those that open the server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from detent.engine.doctor.sight import Sight, waiting
from detent.engine.engine import Engine
from detent.engine.secrets import key_of, keys_of
from detent.engine.telling import counted, told_at
from detent.errors import SecretError
from detent.stores.checks import Check, fine, harm, notice, refused, warning

_SOON_US: Final = 14 * 86_400 * 1_000_000
_NAMED: Final = 5
_WHY: Final = "whoever has not the key leaves such a job to others: it waits until one has it"
_MEND: Final = "put the key file back, or the old key behind the new one in DETENT_SECRET_KEYS"


async def secrets(sight: Sight) -> list[Check]:
    """Whether what was locked can be opened here, and whether anything can be locked."""
    locked = Counter(sight.locked)
    for tenant in sight.tenants:
        for hook in await sight.engine.webhooks.list(tenant):
            locked.update(key_of(one.token) for one in hook.secrets)
    return [_judged(sight.engine, locked, len(await sight.engine.declared.all()))]


def _judged(engine: Engine, locked: Mapping[str, int], declared: int) -> Check:
    try:
        missing = _unopened(engine, locked)
    except SecretError as error:
        return refused("secrets", error, _WHY, _MEND)
    return _lost(missing) if missing else _locking(engine, declared, locked)


def _unopened(engine: Engine, locked: Mapping[str, int]) -> dict[str, int]:
    """How many things are locked with each key that is not here."""
    return {key: number for key, number in locked.items() if not engine.secrets.has_key(key)}


def _lost(missing: Mapping[str, int]) -> Check:
    """What is locked with keys that are not here."""
    named = ", ".join(f"{counted(number, 'value')} with {key}" for key, number in missing.items())
    return harm("secrets", f"locked, and the key is not here: {named}", _WHY, _MEND)


def _locking(engine: Engine, declared: int, locked: Mapping[str, int]) -> Check:
    seen = f"{counted(len(locked), 'key')} seen in use, all of them here"
    if not declared and not locked:
        return fine("secrets", "no type declares any")
    if engine.secrets.can_lock:
        return fine("secrets", f"{counted(declared, 'type')} with secrets; {seen}")
    why = "jobs with secret arguments are refused with no_secret_key, and left alone by workers"
    mend = "set DETENT_SECRET_KEY wherever jobs are enqueued or run, and where this is asked"
    return harm("secrets", f"{counted(declared, 'type')} with secrets, and no key", why, mend)


async def at_start(engine: Engine) -> list[Check]:
    """The same for whoever starts, if any type declares secrets."""
    declared = await engine.declared.all()
    if not declared:
        return []
    locked = Counter[str]()
    async for one in waiting(engine.store, await engine.store.counts()):
        locked.update(keys_of(one.body.payload))
    return [_judged(engine, locked, len(declared))]


async def access(sight: Sight) -> list[Check]:
    """Whether the server asks who calls, and whether somebody's key is about to end."""
    keys = await sight.engine.access.list()
    if not keys:
        why = "whoever reaches the server may do everything: it listens on this machine alone"
        mend = "detent keys create --scope admin, before others can reach it"
        return [notice("API keys", "there are none", why, mend)]
    good = [one for one in keys if one.is_good(sight.now)]
    if not good:
        why = "every request is refused: there was a key once, so one is asked for"
        return [warning("API keys", "none opens any more", why, "detent keys create")]
    ending = [
        one for one in good if (one.expires_at or sight.now + _SOON_US) - sight.now < _SOON_US
    ]
    if ending:
        named = ", ".join(
            f"{one.name or one.id} at {told_at(one.expires_at or 0)}" for one in ending[:_NAMED]
        )
        why = "from then on its owner is refused"
        return [warning("API keys", f"about to end: {named}", why, "make a new one in time")]
    return [fine("API keys", f"{counted(len(good), 'key')} in force")]
