"""The address of a database: PostgreSQL's own URL, and a few words that are ours."""

from __future__ import annotations

from urllib.parse import SplitResult, parse_qsl, quote, urlencode, urlsplit, urlunsplit

import msgspec

from detent.errors import BadUrl

_YES = {"yes": True, "no": False}
_WRITES = "read-write"
_READS = ("standby", "prefer-standby", "read-only")
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
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise BadUrl(f"The address of the database is none: {error}") from error
    _need_whole(parts)
    told = dict(parse_qsl(parts.query, keep_blank_values=True))
    listen_url = told.pop("listen_url", None)
    connections = _number(told.pop("connections", "4"))
    pgbouncer = _flag("pgbouncer", told.pop("pgbouncer", "no"))
    prepare = _flag("prepare", told.pop("prepare", "yes"))
    _need_writes(told.get("target_session_attrs", _WRITES))
    bare = urlunsplit(("postgresql", parts.netloc, parts.path, _query(told), ""))
    # An empty host would be lost: `postgresql:///name` is a socket, `postgresql:/name` is nothing.
    if not parts.netloc:
        bare = bare.replace("postgresql:/", "postgresql:///", 1)
    each(bare)  # What is wrong with the hosts is told now.
    return Address(bare, listen_url or bare, connections, pgbouncer, prepare)


def each(url: str) -> list[str]:
    """One address for every host in it, each for a server that takes writes if there are many."""
    parts = urlsplit(url)
    told = dict(parse_qsl(parts.query, keep_blank_values=True))
    user, at, hosts = parts.netloc.rpartition("@")
    if "," in hosts:
        told.setdefault("target_session_attrs", _WRITES)
        places = [(f"{user}{at}{host}", told) for host in hosts.split(",")]
    elif not hosts and "," in told.get("host", ""):
        told.setdefault("target_session_attrs", _WRITES)
        places = [(parts.netloc, {**told, **one}) for one in _places(told)]
    else:
        return [url]
    return [urlunsplit(parts._replace(netloc=host, query=_query(more))) for host, more in places]


def _places(told: dict[str, str]) -> list[dict[str, str]]:
    """The hosts of `host=a,b&port=1,2`; one port may be that of all."""
    hosts, ports = told["host"].split(","), told.get("port", "").split(",")
    if len(ports) not in (1, len(hosts)):
        why = f"{len(ports)} ports for {len(hosts)} hosts in the address; name one for each"
        raise BadUrl(why, name="port", value=told["port"])
    ports = ports * len(hosts) if len(ports) == 1 else ports
    named = zip(hosts, ports, strict=True)
    return [{"host": host, **({"port": port} if port else {})} for host, port in named]


def _query(told: dict[str, str]) -> str:
    return urlencode(told, safe="/", quote_via=quote)


def _need_writes(word: str) -> None:
    if word in _READS:
        why = f"target_session_attrs={word} in the address names a server that takes no writes"
        raise BadUrl(f"{why}; say {_WRITES}", name="target_session_attrs", value=word)


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
