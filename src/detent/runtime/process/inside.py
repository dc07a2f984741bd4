"""The child's end of its channel: hear the supervisor, answer it, and do not outlive it.

The channel is the child's lifeline. A thread of its own reads it, and when it ends because the
supervisor is gone, that thread kills the child's whole session. While other code holds the
interpreter the thread has to wait; the kernel's parent-death signal and the guardian do not.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import os
import signal
import socket
import threading
from collections.abc import Callable, MutableMapping
from typing import Final

from detent.errors import ChannelBroken
from detent.host import members, signal_member
from detent.runtime.process.frames import Frames, Message, frame

CHANNEL_FD: Final = "DETENT_CHANNEL_FD"
DUMP_FD: Final = "DETENT_DUMP_FD"
_CHUNK: Final = 65536
_PASSES: Final = 1000
"""Whoever is being killed may be forking, so it is done again; what stays is the guardian's."""

Handler = Callable[[Message], None]


class Inside:
    """One end of a channel, in the child. Everything may be called from any thread."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._lock = threading.Lock()
        self._handlers: dict[str, Handler] = {}
        self._at_once: dict[str, Handler] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._early: list[Message] = []
        self._is_leaving = False
        self._thread = threading.Thread(target=self._listen, name="detent-lifeline", daemon=True)

    @classmethod
    def join(cls, environ: MutableMapping[str, str] | None = None) -> Inside | None:
        """Take up the channel that we were started with; `None` if nobody supervises us.

        Call it first of all: from then on stacks can be dumped, even while the rest is imported.
        The variables are taken away, so that no child of ours takes the channel for its own.
        """
        environ = os.environ if environ is None else environ
        number, dump = environ.pop(CHANNEL_FD, None), environ.pop(DUMP_FD, None)
        if number is None:
            return None
        end = socket.socket(fileno=int(number))
        end.set_inheritable(False)
        end.setblocking(True)
        inside = cls(end)
        inside.tell({"kind": "joined", "dumps": _can_dump(dump)})
        inside._thread.start()
        return inside

    def tell(self, message: Message) -> None:
        """Say something to the supervisor; in vain once it is gone, which the lifeline handles."""
        data = frame(message)
        with self._lock:
            try:
                self._end.sendall(data)
            except OSError:
                return

    def hear(self, handlers: dict[str, Handler], loop: asyncio.AbstractEventLoop) -> None:
        """From now on call these, by the kind of the message, in that loop.

        What came before is handed over first. A `ping` is answered from the loop, so that the
        answer says that the loop turns; a handler of your own may answer it differently.
        """
        with self._lock:
            self._handlers, self._loop = handlers, loop
            for message in self._early:
                loop.call_soon_threadsafe(self._handle, message)
            self._early.clear()

    def hear_at_once(self, kind: str, handler: Handler) -> None:
        """From now on call that in the thread that listens, whatever the loop is doing.

        What came before is handed over first, so do this before `hear`.
        """
        with self._lock:
            self._at_once[kind] = handler
            came = [message for message in self._early if message["kind"] == kind]
        for message in came:
            handler(message)

    def leave(self) -> None:
        """Close the channel without dying of it."""
        self._is_leaving = True
        with contextlib.suppress(OSError):
            self._end.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._end.close()

    def _listen(self) -> None:
        frames = Frames()
        # A parent that says nonsense is no parent.
        with contextlib.suppress(OSError, ChannelBroken):
            while data := self._end.recv(_CHUNK):
                for message in frames.feed(data):
                    self._hand_over(message)
        if not self._is_leaving:
            end_session()

    def _hand_over(self, message: Message) -> None:
        with self._lock:
            at_once, loop = self._at_once.get(message["kind"]), self._loop
            if at_once is None and loop is None:
                self._early.append(message)
        if at_once is not None:
            at_once(message)
            return
        if loop is None:
            return
        try:
            loop.call_soon_threadsafe(self._handle, message)
        except RuntimeError:
            return  # The loop is closed: we are ending, and need no orders.

    def _handle(self, message: Message) -> None:
        handler = self._handlers.get(message["kind"])
        if handler is not None:
            handler(message)
        elif message["kind"] == "ping":
            self.tell({"kind": "well", "nonce": message.get("nonce")})


def _can_dump(number: str | None) -> bool:
    """Stacks go to the pipe that we were given, from a signal handler in C."""
    if number is None or not hasattr(faulthandler, "register"):
        return False
    os.set_inheritable(int(number), False)
    faulthandler.register(signal.SIGUSR1, file=int(number), all_threads=True)
    if not faulthandler.is_enabled():
        faulthandler.enable()
    return True


def end_session() -> None:
    """Kill everything in our session, ourselves last; only ourselves if it is not ours."""
    own = os.getpid()
    for _ in range(_PASSES if os.getsid(0) == own else 0):
        others = [pid for pid in members(own) if pid != own]
        if not [pid for pid in others if signal_member(pid, own, signal.SIGKILL)]:
            break
    os.kill(own, signal.SIGKILL)
