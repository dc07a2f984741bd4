"""Who may do what: API keys with scopes, tenants, queues and an end.

A key is shown once, when it is made. What is kept is a small record with a digest of its secret
part; that part is 256 bits of chance, so one round of SHA-256 is as good as many. Tenants and
queues are patterns as file names have them. Revoked keys stay on record: a store that ever had one
is never open to callers without.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets as chance
from collections.abc import Sequence
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Final

import msgspec
from msgspec.structs import replace

from detent.engine.coalesce import Coalescer
from detent.engine.commands import TRIES_MAX
from detent.engine.identity import Identity
from detent.engine.limits import need_name
from detent.engine.paging import all_records
from detent.errors import BadOption, StoreBusy, UnknownKey
from detent.stores.api import Committed, Own, Record, Store, Unit

KIND: Final = "api-key"
PREFIX: Final = "dtk"
ALL_QUEUES: Final = ("*",)
# How long an answer about a key is believed. Together with how often open connections are checked
# (`detent.surfaces.http.gate.RECHECK_S`) it stays below the two seconds that the docs promise.
FRESH_US: Final = 1_000_000
_PATTERNS_MAX = 100
_ID_BYTES = 9
_KNOWN_MAX = 10_000


class Scope(StrEnum):
    """What a key opens; `admin` opens everything."""

    PRODUCE = "produce"
    WORK = "work"
    READ = "read"
    OPERATE = "operate"
    ADMIN = "admin"


class Key(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A key as it is kept: everything but the key itself."""

    id: str
    digest: str
    created_at: int
    name: str = ""
    scopes: tuple[Scope, ...] = ()
    tenants: tuple[str, ...] = ("*",)
    queues: tuple[str, ...] = ("*",)
    expires_at: int | None = None
    revoked_at: int | None = None

    def opens(self, secret: str, now: int) -> bool:
        """Whether this is its secret and its time is not over; takes the same time either way."""
        return hmac.compare_digest(_digest(secret), self.digest) and self.is_good(now)

    def is_good(self, now: int) -> bool:
        """Whether it opens anything for whoever has it."""
        is_over = self.expires_at is not None and self.expires_at <= now
        return not is_over and self.revoked_at is None


class Principal(msgspec.Struct, frozen=True):
    """Whoever asks, and what they may."""

    id: str = ""
    scopes: frozenset[Scope] = frozenset(Scope)
    tenants: tuple[str, ...] = ("*",)
    queues: tuple[str, ...] = ("*",)
    name: str = ""

    def has(self, scope: Scope) -> bool:
        """Whether they may do such things at all."""
        return scope in self.scopes or Scope.ADMIN in self.scopes

    def may_use(self, queue: str) -> bool:
        """Whether the queue is among theirs."""
        return self.queues == ("*",) or any(fnmatchcase(queue, one) for one in self.queues)

    def may_enter(self, tenant: str) -> bool:
        """Whether the tenant is among theirs."""
        return self.tenants == ("*",) or any(fnmatchcase(tenant, one) for one in self.tenants)

    @property
    def is_bound(self) -> bool:
        """Whether only some queues are theirs."""
        return self.queues != ALL_QUEUES

    @property
    def is_boundless(self) -> bool:
        """Whether all tenants and all queues are theirs."""
        return self.tenants == ("*",) and not self.is_bound

    @property
    def tenant(self) -> str | None:
        """The tenant they mean when they name none; `None` if they must name one."""
        if self.may_enter(""):
            return ""
        is_single = len(self.tenants) == 1 and not _is_pattern(self.tenants[0])
        return self.tenants[0] if is_single else None

    @property
    def named_queues(self) -> tuple[str, ...]:
        """Those of their queues that are named, and not only described."""
        return tuple(one for one in self.queues if not _is_pattern(one))


def _is_pattern(name: str) -> bool:
    return bool(set(name) & set("*?["))


OPEN_TO_ALL = Principal()
"""Whoever calls a store that has no keys."""


class Access:
    """Makes keys, and tells by them who calls."""

    def __init__(self, store: Store, coalescer: Coalescer, identity: Identity) -> None:
        self._store = store
        self._coalescer = coalescer
        self._identity = identity
        self._known: dict[str, tuple[int, Key | None]] = {}
        self._any: tuple[int, bool] = (-FRESH_US, False)

    async def create(
        self,
        scopes: Sequence[Scope],
        *,
        name: str = "",
        tenants: Sequence[str] = ("*",),
        queues: Sequence[str] = ("*",),
        expires_at: int | None = None,
    ) -> tuple[Key, str]:
        """A new key, and the text that opens, which is shown this once."""
        _need_sound(scopes, tenants, queues)
        name_of, secret = chance.token_hex(_ID_BYTES), chance.token_urlsafe(32)
        key = Key(
            id=name_of,
            digest=_digest(secret),
            created_at=self._store.now(),
            name=name,
            scopes=tuple(dict.fromkeys(scopes)),
            tenants=tuple(tenants),
            queues=tuple(queues),
            expires_at=expires_at,
        )
        if not await self._put(key, 1):
            raise StoreBusy("Two keys got one id; make it again")
        return key, f"{PREFIX}_{name_of}_{secret}"

    async def list(self) -> list[Key]:
        """All keys, revoked ones too, oldest first."""
        found = [_read(one) for one in await all_records(self._store, KIND)]
        return sorted(found, key=lambda key: (key.created_at, key.id))

    async def revoke(self, key_id: str) -> Key:
        """Let the key open nothing more; one that is revoked stays so."""
        for _ in range(TRIES_MAX):
            record = await self._record(key_id)
            if record is None:
                raise UnknownKey(f"There is no key {key_id}", id=key_id)
            key = _read(record)
            if key.revoked_at is not None:
                return key
            revoked = replace(key, revoked_at=self._store.now())
            if await self._put(revoked, record.version + 1):
                self._known.pop(key_id, None)
                return revoked
        raise StoreBusy(f"Key {key_id} was changed by others {TRIES_MAX} times", id=key_id)

    async def is_guarded(self) -> bool:
        """Whether there ever was a key; only then is one asked for."""
        at, found = self._any
        now = self._store.now()
        if not found and not _is_fresh(at, now):
            found = bool(await self._store.records(KIND, limit=1))
            self._any = (now, found)
        return found

    def is_known_open(self) -> bool:
        """Whether there was no key a moment ago, without asking anybody."""
        at, found = self._any
        return not found and _is_fresh(at, self._store.now())

    def known(self, text: str) -> Principal | None:
        """Whose key that is, if it opens anything and was asked about a moment ago."""
        key_id, secret = _parted(text)
        now = self._store.now()
        at, key = self._known.get(key_id, (-FRESH_US, None))
        return _opened(key, secret, now) if _is_fresh(at, now) else None

    async def principal(self, text: str) -> Principal | None:
        """Whose key that is, if it opens anything."""
        key_id, secret = _parted(text)
        key = await self._key(key_id) if key_id else None
        return _opened(key, secret, self._store.now())

    async def _key(self, key_id: str) -> Key | None:
        now = self._store.now()
        at, key = self._known.get(key_id, (-FRESH_US, None))
        if not _is_fresh(at, now):
            record = await self._record(key_id)
            key = None if record is None else _read(record)
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            self._known[key_id] = (now, key)
        return key

    async def _record(self, key_id: str) -> Record | None:
        [record] = await self._store.record([(KIND, "", key_id)])
        return record

    async def _put(self, key: Key, version: int) -> bool:
        record = Record(KIND, key.id, version, msgspec.json.encode(key).decode())
        [outcome] = await self._coalescer.commit([Unit(self._identity.id(), puts=(record,))])
        return isinstance(outcome, Committed | Own)


def _is_fresh(at: int, now: int) -> bool:
    """Whether that was a moment ago; the clock may have been set back since."""
    return 0 <= now - at < FRESH_US


def _parted(text: str) -> tuple[str, str]:
    """The id of a key and its secret; without an id if it is no key of ours."""
    prefix, _, rest = text.partition("_")
    key_id, _, secret = rest.partition("_")
    # What cannot be an id is not looked up: strangers choose it, and answers are remembered.
    is_ours = prefix == PREFIX and len(key_id) == 2 * _ID_BYTES
    return (key_id if is_ours else ""), secret


def _opened(key: Key | None, secret: str, now: int) -> Principal | None:
    if key is None or not key.opens(secret, now):
        return None
    return Principal(key.id, frozenset(key.scopes), key.tenants, key.queues, key.name)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _read(record: Record) -> Key:
    return msgspec.json.decode(record.data or "", type=Key)


def _need_sound(scopes: Sequence[Scope], *patterns: Sequence[str]) -> None:
    if not scopes:
        raise BadOption("A key without a scope opens nothing; name one", option="scopes")
    for some in patterns:
        if not 1 <= len(some) <= _PATTERNS_MAX:
            why = f"A key names 1 to {_PATTERNS_MAX} patterns of tenants and of queues; * is all"
            raise BadOption(why, option="patterns")
        for one in some:
            need_name("pattern", one or "*")
