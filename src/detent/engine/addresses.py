"""Where we may send something because somebody asked for it: to public addresses, and no others.

Whoever can register a webhook can make this process connect to wherever they like, and it stands
inside the network: databases, dashboards, and the metadata of the cloud that gives out credentials.
So a name is resolved, every address it has is judged, and only an address that was judged is
connected to. A name that resolves to something else a moment later changes nothing.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeAlias
from urllib.parse import urlsplit

import msgspec

from detent.errors import AddressRefused, BadWebhook

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""The addresses of a name, as texts."""

URL_CHARS_MAX: Final = 2_048
_PLAIN: Final = re.compile(r"[\x21-\x7e]+")
_HOST: Final = re.compile(r"[A-Za-z0-9._-]{1,253}|[0-9A-Fa-f:.]+")
_UNICAST: Final = ipaddress.ip_network("2000::/3")
_NEVER: Final[tuple[Network, ...]] = tuple(
    map(
        ipaddress.ip_network,
        (
            "0.0.0.0/8",
            "100.64.0.0/10",
            "168.63.129.16/32",  # the host agent of a cloud, at a public address
            "192.0.0.0/24",
            "192.88.99.0/24",
            "198.18.0.0/15",
            "240.0.0.0/4",
            "2001::/23",  # Teredo and other addresses with one inside
            "2001:db8::/32",
            "2002::/16",  # 6to4: an IPv4 address inside
            "3fff::/20",
        ),
    )
)


class Rules(msgspec.Struct, frozen=True):
    """What is allowed beyond public addresses over TLS on the usual ports.

    Networks in `allow` are trusted: any port, and plain HTTP.
    """

    allow: tuple[str, ...] = ()
    ports: tuple[int, ...] = (443, 8443)

    def __post_init__(self) -> None:
        try:
            _ = self.networks
        except ValueError as error:
            raise BadWebhook(f"DETENT_WEBHOOK_ALLOW: {error}", field="allow") from None

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Rules:
        """What the environment allows: networks, with commas between them."""
        told = environ.get("DETENT_WEBHOOK_ALLOW", "").split(",")
        return cls(tuple(one.strip() for one in told if one.strip()))

    @property
    def networks(self) -> tuple[Network, ...]:
        """The same, read."""
        return tuple(ipaddress.ip_network(one) for one in self.allow)


class Target(msgspec.Struct, frozen=True):
    """An address on the web, taken apart."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def authority(self) -> str:
        """What stands in the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = {"https": 443, "http": 80}[self.scheme]
        return host if self.port == usual else f"{host}:{self.port}"


def target_of(url: str) -> Target:
    """The parts of the address; `BadWebhook` says what is wrong with it."""
    if len(url) > URL_CHARS_MAX or not _PLAIN.fullmatch(url):
        raise _bad(url, "has blanks, control characters, too many or none; write names in punycode")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise _bad(url, str(error)) from None
    if parts.scheme not in ("https", "http") or not parts.hostname:
        raise _bad(url, "must begin with https:// and a host")
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise _bad(url, "must have neither a user nor a fragment")
    if not _HOST.fullmatch(parts.hostname):
        raise _bad(url, "has a host that is no name")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    usual = 443 if parts.scheme == "https" else 80
    return Target(parts.scheme, parts.hostname, usual if port is None else port, path)


async def checked(target: Target, rules: Rules, resolver: Resolve) -> list[str]:
    """The addresses that may be connected to; one that may not is enough to refuse them all."""
    try:
        found = await resolver(target.host, target.port)
        addresses = [ipaddress.ip_address(one) for one in found]
    except ValueError:
        raise _refused(target, "its name resolves to what is no address") from None
    if not addresses:
        raise _refused(target, "its name has no address")
    for address in addresses:
        _judge(target, address, rules)
    return [str(address) for address in addresses]


def _judge(target: Target, address: Address, rules: Rules) -> None:
    if any(address in network for network in rules.networks):
        return
    if not is_public(address):
        raise _refused(target, "it is not at a public address")
    if target.scheme != "https":
        raise _refused(target, "it is not https")
    if target.port not in rules.ports:
        raise _refused(target, f"port {target.port} is not one for the web")


def is_public(address: Address) -> bool:
    """Whether it is a single machine on the public internet, with no other address inside."""
    if isinstance(address, ipaddress.IPv6Address) and address not in _UNICAST:
        # Mapped, translated, local, link-local, multicast: all of these are elsewhere.
        return False
    if address.is_multicast or not address.is_global:
        return False
    return not any(address in network for network in _NEVER)


async def resolve(host: str, port: int) -> list[str]:
    """The addresses that the system knows for a name."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(one[4][0]) for one in found))


def _bad(url: str, why: str) -> BadWebhook:
    return BadWebhook(f"The address {url[:100]!r} {why}", field="url", why=why)


def _refused(target: Target, why: str) -> AddressRefused:
    # Which address it was is not told: that would make us a map of the network.
    return AddressRefused(f"{target.host} is not connected to: {why}", host=target.host, why=why)
