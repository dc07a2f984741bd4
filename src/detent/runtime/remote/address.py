"""Where a server is that keeps the jobs, apart from how it is asked: most workers have none."""

from __future__ import annotations

from typing import Final
from urllib.parse import SplitResult, urlsplit

import msgspec

from detent.errors import BadOption

_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """Where the server is, and the key it lets us in with; several addresses are of one store."""

    urls: tuple[str, ...]
    key: str | None = None

    def __post_init__(self) -> None:
        for url in self.urls:
            parts = _parts(url)
            if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
                why = "server is an address like https://jobs.example.com"
                raise BadOption(f"{why}, not {url[:100]!r}", option="server")
        if not self.urls:
            raise BadOption("server is one address at least", option="server")
        if self.key is not None and not (self.key.isascii() and self.key.isprintable()):
            raise BadOption("A key is one word, as `detent keys create` tells it", option="key")

    @property
    def is_open(self) -> bool:
        """Whether everybody on the way could read along."""
        parts = [urlsplit(url) for url in self.urls]
        return any(one.scheme == "http" and one.hostname not in _LOOPBACK for one in parts)

    @property
    def shown(self) -> str:
        """The addresses for people: a key may be in the rest of them."""
        parts = [urlsplit(url) for url in self.urls]
        return ", ".join(f"{one.scheme}://{authority(one)}" for one in parts)

    def __repr__(self) -> str:
        return f"<Server {self.shown}>"


def authority(parts: SplitResult) -> str:
    """The host and port of an address, without whoever logs in there."""
    return parts.netloc.rpartition("@")[2]


def _parts(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return None
    return parts
