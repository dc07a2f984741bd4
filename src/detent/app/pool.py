"""A pool process: `python -m detent.app.pool REFERENCE CHANNEL DUMP LIFELINE`, for workers only.

Its lifeline comes first, so that it never outlives its worker. Then the program of the user is
imported, once, and whatever that says on the way goes where the output of the worker goes.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Sequence

from detent.app.loading import load
from detent.errors import DetentError
from detent.runtime.executors.capture import Streams
from detent.runtime.executors.pool.interrupting import Interruption
from detent.runtime.executors.pool.lifeline import tie
from detent.runtime.executors.pool.messages import Broken, fault_of
from detent.runtime.executors.pool.outlet import Outlet
from detent.runtime.executors.pool.serving import Serving
from detent.runtime.executors.pool.wire import Wire
from detent.runtime.otel_spans import traced


def main(arguments: Sequence[str]) -> int:
    """Serve until the worker has no more use for us."""
    reference, channel, dump, lifeline = arguments
    tie(int(lifeline))
    interruption = Interruption()
    interruption.install()
    wire = Wire(socket.socket(fileno=int(channel)), interruption)
    wire.listen()
    outlet = Outlet(int(dump))
    sys.argv[1:] = []
    with Streams():
        # Before the import: whatever keeps a stream there keeps one that listens to runs.
        try:
            app = load(reference)
        except DetentError as error:
            wire.say(Broken(fault_of(error)))
            return 1
        Serving(wire, interruption, outlet).serve(app.handlers, traced(app.runs), app.bridge)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
