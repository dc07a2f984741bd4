"""What a supervisor and a child say to each other, and what is waited for.

Questions carry a `nonce` and their answers give it back, so that a late answer to an old question
is not taken for one to the newest.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from itertools import count

from detent.errors import ChannelBroken
from detent.runtime.process.channel import Channel
from detent.runtime.process.frames import Message

_log = logging.getLogger(__name__)


class Conversation:
    """One child's side of the story, as far as its channel tells it."""

    def __init__(self, channel: Channel, on_message: Callable[[Message], None] | None) -> None:
        self.dumps = False
        self.has_joined = False
        self.done = 0
        self.waits = False
        """Whether it has said that it waits for somebody else before it can be ready."""
        self._channel = channel
        self._on_message = on_message
        self._ready = asyncio.Event()
        self._awaited: dict[tuple[str, int], asyncio.Future[Message]] = {}
        self._numbers = count(1)
        self._listening = asyncio.create_task(self._listen(), name="detent-channel")

    @property
    def is_open(self) -> bool:
        """Whether the child can be reached."""
        return self._channel.is_open

    @property
    def fault(self) -> ChannelBroken | None:
        """Why the channel was closed, if it was not by the end of the child."""
        return self._channel.fault

    async def ready(self) -> None:
        """Return when the child has said that it is."""
        await self._ready.wait()

    def say(self, message: Message) -> None:
        """Tell the child; one that cannot be reached any more is not told."""
        if self._channel.is_open:
            self._channel.send(message)

    async def ask(self, question: str, answer: str) -> Message:
        """Ask, and wait for the answer to that very question; refused if the channel ends first."""
        number = next(self._numbers)
        awaited: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._awaited[answer, number] = awaited
        try:
            self._channel.send({"kind": question, "nonce": number})
            return await awaited
        finally:
            self._awaited.pop((answer, number), None)

    async def close(self) -> None:
        """End it."""
        self._channel.close()
        await self._listening

    async def _listen(self) -> None:
        async for message in self._channel:
            self._hear(message)
        for awaited in self._awaited.values():
            if not awaited.done():
                awaited.set_exception(self.fault or ChannelBroken("The child is gone"))

    def _hear(self, message: Message) -> None:
        match message["kind"]:
            case "joined":
                self.has_joined, self.dumps = True, message.get("dumps") is True
            case "waits":
                self.waits = message.get("on") is True
            case "ready":
                self._ready.set()
            case "quiet" | "awake" | "well" as kind:
                self._answered(kind, message)
            case "status" if isinstance(message.get("done"), int):
                self.done = message["done"]
        if self._on_message is not None:
            self._pass_on(self._on_message, message)

    def _pass_on(self, listener: Callable[[Message], None], message: Message) -> None:
        try:
            listener(message)
        except Exception:
            # Its fault, not the child's: the conversation goes on.
            _log.exception("a listener failed on a message of kind %s", message["kind"])

    def _answered(self, kind: str, message: Message) -> None:
        for (answer, number), awaited in list(self._awaited.items()):
            # A child that gives no nonce back is believed.
            if answer == kind and message.get("nonce", number) == number and not awaited.done():
                awaited.set_result(message)
