"""Somebody who follows events over SSE, frame by frame."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any

from tests.surfaces.server import Running


class Stream:
    """A stream of events, read frame by frame."""

    def __init__(self, server: Running, path: str, **headers: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=8)
        self._connection.request("GET", f"/ojs/v1{path}", headers=headers)
        self.answer = self._connection.getresponse()

    def frames(self) -> Iterator[tuple[str, dict[str, Any], str]]:
        """Event, data and id of each, until the server closes."""
        lines: dict[str, str] = {}
        while line := self.answer.readline():
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name:
                lines[name] = value
            elif "event" in lines:
                yield lines["event"], json.loads(lines["data"]), lines.get("id", "")
                lines = {}

    def close(self) -> None:
        self.answer.close()
        self._connection.close()
