"""Whether a server can listen where it is told to, asked before anything is started."""

from __future__ import annotations

import errno
import socket
from typing import Final

from detent.errors import CannotListen

_NOT_OURS: Final = "{host} is no address of this machine. {alone} to serve this host alone"
_WHY: Final = {
    errno.EADDRINUSE: "Port {port} of {host} is taken: another program listens there, perhaps"
    " another detent. Stop it, or choose another port with {option}",
    errno.EACCES: "This user may not listen on port {port}. Choose one above 1023 with {option}",
    errno.EADDRNOTAVAIL: _NOT_OURS,
}


def need_place(
    host: str, port: int, *, option: str = "--port", alone: str = "Leave --host out"
) -> None:
    """Refuse an address where nobody could listen now.

    Somebody may still come between; the server itself is refused then, with less to say.
    """
    told = {"host": host, "port": port, "option": option, "alone": alone}
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError:
        raise CannotListen(_NOT_OURS.format(**told), host=host, port=port) from None
    for family, kind, proto, _, address in found:
        try:
            _bind(socket.socket(family, kind, proto), address)
        except OSError as fault:
            why = _WHY.get(fault.errno or 0, f"Nobody can listen on {{host}}: {fault.strerror}")
            raise CannotListen(why.format(**told), host=host, port=port) from None


def _bind(probe: socket.socket, address: tuple[object, ...]) -> None:
    with probe:
        # As servers do: connections that have just ended are in nobody's way.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if probe.family == socket.AF_INET6:
            probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        probe.bind(address)
