"""Arguments that a job type declares secret: locked before they are stored, unlocked to be run.

A locked value stands in the payload as `{"$detent:secret": "1.<key id>.<nonce and ciphertext>"}`.
AES-256-GCM binds it to the job it belongs to (tenant, id and type) and to its place in the payload:
moved to another job, type or argument it does not open. Each job has a key of its own, derived from
the ring's, so that random nonces never come near their limit however many jobs a key serves.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from detent.engine.keyring import Keyring, SecretKey
from detent.errors import BadArguments, SecretUnreadable
from detent.extras import needs_extra

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    from detent.engine.asks import Ask

REDACTED: Final = "[secret]"
"""What everybody but the handler sees."""
_MARK: Final = "$detent:secret"
_QUOTED: Final = f'"{_MARK}"'
_NONCE: Final = 12
_FORM: Final = "1"

Path: TypeAlias = tuple[str | int, ...]
Change: TypeAlias = Callable[[Path, msgspec.Raw], msgspec.Raw]
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_LIST = msgspec.json.Decoder(list[msgspec.Raw])


class Owner(msgspec.Struct, frozen=True, gc=False):
    """Whose secret it is: it opens for nothing else."""

    tenant: str
    id: str
    type: str


class Opened(msgspec.Struct, frozen=True, gc=False):
    """A payload as its handler gets it, and the values in it that nobody else may see."""

    payload: str
    values: tuple[Any, ...] = ()

    def __repr__(self) -> str:
        return f"<Opened with {len(self.values)} secrets>"


class Secrets:
    """Locks and unlocks with the keys of one ring."""

    def __init__(self, keyring: Keyring | None = None) -> None:
        self._keyring = keyring or Keyring()

    def sealed(self, ask: Ask, job_id: str) -> Ask:
        """The same request with its secrets locked for the job of that id.

        A job that is run again brings the locked values of the first along: they are locked anew.
        """
        payload, owner = ask.payload, Owner(ask.tenant, job_id, ask.type)
        if _is_marked(payload):
            payload = self._carried(ask, owner)
        if ask.secret:
            key = self._keyring.first()
            for path in _outermost(ask.secret):
                payload = _changed(payload, path, lambda at, raw: _lock(key, owner, at, raw))
        if payload is ask.payload and not ask.secret:
            return ask
        return msgspec.structs.replace(ask, payload=payload, secret=())

    def opened(self, payload: str, owner: Owner) -> Opened:
        """The payload for the handler; `SecretUnreadable` if a value in it does not open."""
        if not _is_marked(payload):
            return Opened(payload)
        values: list[Any] = []

        def unlocked(at: Path, token: str) -> msgspec.Raw:
            text = self._unlock(owner, at, token)
            values.append(msgspec.json.decode(text))
            return msgspec.Raw(text)

        walked = _walked(msgspec.json.decode(payload), (), unlocked)
        return Opened(msgspec.json.encode(walked).decode(), tuple(values))

    def lock(self, text: str, owner: Owner) -> str:
        """A text that is kept outside of a payload."""
        raw = msgspec.Raw(msgspec.json.encode(text))
        return _token(self._keyring.first(), owner, (), raw)

    def unlock(self, token: str, owner: Owner) -> str:
        """The way back."""
        return msgspec.json.decode(self._unlock(owner, (), token), type=str)

    def digest(self, text: str) -> str:
        """A digest of a text with secrets in it: nobody without the key can try out guesses."""
        return hmac.new(self._keyring.first().secret, text.encode(), "sha256").hexdigest()

    @property
    def can_lock(self) -> bool:
        """Whether there is a key to lock with, or a place where one would be made."""
        return self._keyring.can_lock

    def has_key(self, id: str) -> bool:  # noqa: A002
        """Whether what was locked with that key opens here; no key is made to find out."""
        try:
            self._keyring.find(id)
        except SecretUnreadable:
            return False
        return True

    def _carried(self, ask: Ask, owner: Owner) -> str:
        if ask.rerun_of is None:
            why = f"an argument has a key {_MARK!r}, which is kept for secrets"
            raise BadArguments(f"{ask.type}: {why}", job=ask.type, path="", why=why)
        key, before = self._keyring.first(), Owner(ask.tenant, ask.rerun_of, ask.type)

        def relocked(at: Path, token: str) -> dict[str, str]:
            raw = msgspec.Raw(self._unlock(before, at, token))
            return {_MARK: _token(key, owner, at, raw)}

        walked = _walked(msgspec.json.decode(ask.payload), (), relocked)
        return msgspec.json.encode(walked).decode()

    def _unlock(self, owner: Owner, path: Path, token: str) -> bytes:
        try:
            form, name, sealed = token.split(".")
            box = base64.urlsafe_b64decode(sealed)
        except (binascii.Error, ValueError):
            raise _unreadable("it is not as we write them", path, "damaged") from None
        if form != _FORM:
            raise _unreadable(f"its form {form[:8]!r} is of newer code", path, "form")
        with needs_extra("secrets", "Reading a secret argument"):
            from cryptography.exceptions import InvalidTag  # noqa: PLC0415 (as in `_cipher`)
        cipher = _cipher(_own(self._keyring.find(name), owner))
        try:
            return cipher.decrypt(box[:_NONCE], box[_NONCE:], _bound(owner, path))
        except (InvalidTag, ValueError):
            why = "it was changed, or belongs to another job or argument"
            raise _unreadable(why, path, "damaged") from None


def _cipher(key: bytes) -> AESGCM:
    # Seven megabytes in every worker, of which few ever see a secret.
    with needs_extra("secrets", "Encrypting arguments"):
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415
    return AESGCM(key)


def keys_of(payload: str) -> frozenset[str]:
    """The ids of the keys that something in it was locked with."""
    found: set[str] = set()
    if _is_marked(payload):
        _walked(msgspec.json.decode(payload), (), lambda _path, token: found.add(key_of(token)))
    return frozenset(found)


def key_of(token: str) -> str:
    """The id of the key that this was locked with; of what is damaged, nothing."""
    parts = token.split(".")
    return parts[1] if len(parts) > 1 else ""


def redacted(payload: str) -> str:
    """The payload for everybody else."""
    if not _is_marked(payload):
        return payload
    walked = _walked(msgspec.json.decode(payload), (), lambda _path, _token: REDACTED)
    return msgspec.json.encode(walked).decode()


def redacted_at(payload: str, paths: Sequence[str]) -> str:
    """The same for a payload that is not locked yet."""
    hidden = msgspec.Raw(msgspec.json.encode(REDACTED))
    for path in _outermost(paths):
        payload = _changed(payload, path, lambda _at, _raw: hidden)
    return payload


def _outermost(paths: Sequence[str]) -> list[str]:
    """Each place once, and none inside another, which is hidden as a whole."""
    found: list[str] = []
    for path in sorted(set(paths)):
        if not any(path.startswith(f"{outer}.") for outer in found):
            found.append(path)
    return found


def values_at(payload: str, paths: Sequence[str]) -> tuple[Any, ...]:
    """What stands at these places of a payload that is open."""
    found: list[Any] = []

    def kept(_: Path, raw: msgspec.Raw) -> msgspec.Raw:
        found.append(msgspec.json.decode(raw))
        return raw

    for path in paths:
        _changed(payload, path, kept)
    return tuple(found)


def _is_marked(payload: str) -> bool:
    """Whether something in it is locked, or looks so; a name may be written in escapes."""
    if _QUOTED in payload:
        return True
    found: list[str] = []
    if "\\u" in payload:
        _walked(msgspec.json.decode(payload), (), lambda _path, token: found.append(token))
    return bool(found)


def _lock(key: SecretKey, owner: Owner, path: Path, raw: msgspec.Raw) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode({_MARK: _token(key, owner, path, raw)}))


def _token(key: SecretKey, owner: Owner, path: Path, raw: msgspec.Raw) -> str:
    nonce = os.urandom(_NONCE)
    sealed = _cipher(_own(key, owner)).encrypt(nonce, bytes(raw), _bound(owner, path))
    return f"{_FORM}.{key.id}.{base64.urlsafe_b64encode(nonce + sealed).decode()}"


def _own(key: SecretKey, owner: Owner) -> bytes:
    """The key of one job."""
    told = msgspec.json.encode(("detent job key", owner.tenant, owner.id))
    return hmac.digest(key.secret, told, "sha256")


def _bound(owner: Owner, path: Path) -> bytes:
    return msgspec.json.encode((_FORM, owner.tenant, owner.id, owner.type, path))


def _changed(payload: str, path: str, change: Change) -> str:
    """The payload with other values at a path; the text of everything else stays as it is."""
    raw = _descended(msgspec.Raw(payload.encode()), tuple(path.split(".")), (), change)
    return bytes(raw).decode()


def _descended(raw: msgspec.Raw, rest: tuple[str, ...], at: Path, change: Change) -> msgspec.Raw:
    """Through objects by name and through lists by all of their items; what is absent is absent."""
    if not rest:
        return change(at, raw)
    first = bytes(raw).lstrip()[:1]
    if first == b"[":
        items = [
            _descended(item, rest, (*at, number), change)
            for number, item in enumerate(_LIST.decode(raw))
        ]
        return msgspec.Raw(msgspec.json.encode(items))
    if first != b"{":
        return _need_absent(raw, rest, at)
    found = _OBJECT.decode(raw)
    if rest[0] in found:
        found[rest[0]] = _descended(found[rest[0]], rest[1:], (*at, rest[0]), change)
    return msgspec.Raw(msgspec.json.encode(found))


def _need_absent(raw: msgspec.Raw, rest: tuple[str, ...], at: Path) -> msgspec.Raw:
    """Where an object is declared there may be null; anything else would stay in the clear."""
    if bytes(raw).strip() == b"null":
        return raw
    where, why = ".".join(map(str, at)), f"there is no {rest[0]!r} in it that could be locked"
    raise BadArguments(f"argument {where} has a secret part: {why}", path=where, why=why)


def _walked(value: Any, at: Path, change: Callable[[Path, str], Any]) -> Any:
    """The value with something else in the place of every locked one."""
    if isinstance(value, list):
        return [_walked(item, (*at, number), change) for number, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    if len(value) == 1 and isinstance(token := value.get(_MARK), str):
        return change(at, token)
    return {name: _walked(item, (*at, name), change) for name, item in value.items()}


def _unreadable(why: str, path: Path, kind: str) -> SecretUnreadable:
    where = ".".join(map(str, path))
    return SecretUnreadable(
        f"The secret at {where or 'top'} does not open: {why}", path=where, why=kind
    )
