"""Compresses long replies for those who accept gzip."""

from __future__ import annotations

import gzip
from typing import Final

from msgspec.structs import replace

from detent.surfaces.http.exchange import Call, Reply

_LEAST: Final = 1_024
"""Bytes; what is shorter fits into one packet anyway."""
_LEVEL: Final = 5


def squeezed(reply: Reply, call: Call) -> Reply:
    """The reply, as gzip if it is long and that was asked for."""
    if len(reply.body) < _LEAST:
        return reply
    varies = (*reply.headers, ("vary", "accept-encoding"))
    if not _reads_gzip(call.header("accept-encoding") or ""):
        return replace(reply, headers=varies)
    body = gzip.compress(reply.body, _LEVEL, mtime=0)
    return replace(reply, body=body, headers=(*varies, ("content-encoding", "gzip")))


def _reads_gzip(told: str) -> bool:
    """Whether gzip is among what is named, and not named to be left out."""
    for one in told.lower().split(","):
        name, _, weight = one.partition(";")
        if name.strip() in ("gzip", "*"):
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False
