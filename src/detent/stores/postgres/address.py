"""The address of a database: PostgreSQL's own URL, and a few words that are ours."""

from __future__ import annotations

from urllib.parse import SplitResult, parse_qsl, quote, urlencode, urlsplit, urlunsplit

import msgspec

from detent.errors import BadUrl

__all__ = ["Address", "read"]

_YES = {"yes": True, "no": False}
CONNECTIONS_MAX = 100
_PORT_MAX = 65_535


class Address(msgspec.Struct, frozen=True):
    """Where the database is, and how to speak to it.

    `listen_url` is for the connection that waits for news, when `url` leads through a pooler.
    `pgbouncer` leaves out settings at connecting, which poolers refuse; `prepare` is false for
    poolers that do not know prepared statements.
    """

    url: str
    listen_url: str
    connections: int = 4
    pgbouncer: bool = False
    prepare: bool = True

    @property
    def shown(self) -> str:
        """The address without its password."""
        parts = urlsplit(self.url)
        if parts.password is None:
            return self.url
        host = parts.netloc.rpartition("@")[2]
        return urlunsplit(parts._replace(netloc=f"{quote(parts.username or '')}@{host}"))


def read(url: str) -> Address:
    """The address that `postgresql://...` stands for; our own words are taken out of it."""
    parts = urlsplit(url)
    _need_whole(parts)
    told = dict(parse_qsl(parts.query, keep_blank_values=True))
    listen_url = told.pop("listen_url", None)
    connections = _number(told.pop("connections", "4"))
    pgbouncer = _flag("pgbouncer", told.pop("pgbouncer", "no"))
    prepare = _flag("prepare", told.pop("prepare", "yes"))
    rest = urlencode(told, safe="/", quote_via=quote)
    bare = urlunsplit(("postgresql", parts.netloc, parts.path, rest, ""))
    # An empty host would be lost: `postgresql:///name` is a socket, `postgresql:/name` is nothing.
    if not parts.netloc:
        bare = bare.replace("postgresql:/", "postgresql:///", 1)
    return Address(bare, listen_url or bare, connections, pgbouncer, prepare)


def _need_whole(parts: SplitResult) -> None:
    """Refuse what a password with signs of its own has cut in pieces; no piece of it is told."""
    hosts = parts.netloc.rpartition("@")[2].split(",")
    if parts.netloc.count("@") > 1 or parts.fragment or not all(map(_has_good_port, hosts)):
        why = "In the address of the database a host is followed by : and a number up to 65535"
        fix = "in a user or password write @ as %40, : as %3A, / as %2F, ? as %3F and # as %23"
        raise BadUrl(f"{why}; {fix}")


def _has_good_port(host: str) -> bool:
    _, colon, port = host.rpartition("]")[2].rpartition(":")
    return not colon or not port or (port.isdecimal() and 0 < int(port) <= _PORT_MAX)


def _flag(name: str, word: str) -> bool:
    if word not in _YES:
        raise BadUrl(f"{name}={word} in the address; say yes or no", name=name, value=word)
    return _YES[word]


def _number(word: str) -> int:
    if not word.isdecimal() or not 1 <= int(word) <= CONNECTIONS_MAX:
        why = f"connections={word} in the address; say a number from 1 to {CONNECTIONS_MAX}"
        raise BadUrl(why, name="connections", value=word)
    return int(word)
