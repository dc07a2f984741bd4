"""Servers as they really run: `detent serve` in processes of their own, on ports of their own."""

from __future__ import annotations

import http.client
import signal
import socket
import subprocess

from tests.fleet.yard import Yard
from tests.waiting import eventually

__all__ = ["Served", "free_port"]


def free_port() -> int:
    """One that nobody listens on, and that the next server may have."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
    return port


class Served:
    """A server of the store of a yard; the yard ends what is left of it."""

    def __init__(self, yard: Yard, *options: str) -> None:
        self._yard = yard
        self._options = options
        self.port = free_port()
        self.begin()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def begin(self) -> None:
        """Another process at the same port."""
        told = (self._yard.url, "--port", str(self.port), *self._options)
        self.process: subprocess.Popen[bytes] = self._yard.begin(
            *told, verb="serve", program="--store"
        )

    def up(self) -> Served:
        """The same, when it answers."""
        eventually(self._is_up, "the server does not come up")
        return self

    def kill(self) -> None:
        """Without a word."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def _is_up(self) -> bool:
        assert self.process.poll() is None, self._yard.log(self.process)
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", "/livez")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()
