"""Messages between a supervisor and a child, and what becomes of anything else."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import struct
import subprocess
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detent.errors import ChannelBroken
from detent.runtime.process.channel import Channel
from detent.runtime.process.conversation import Conversation
from detent.runtime.process.frames import Frames, Message, frame
from detent.runtime.process.inside import CHANNEL_FD, Inside
from tests.runtime.process.yard import LIGHT, child, python, say
from tests.waiting import until


async def pair(**more: int) -> tuple[Channel, socket.socket]:
    """A channel and the child's end of it."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    loop = asyncio.get_running_loop()
    _, channel = await loop.create_connection(lambda: Channel(**more), sock=ours)
    return channel, theirs


async def heard(channel: Channel) -> list[Message]:
    """Everything until the end."""
    return [message async for message in channel]


@settings(max_examples=30)
@given(st.lists(st.dictionaries(st.text(), st.integers() | st.text())), st.integers(1, 9))
def test_messages_come_out_as_they_went_in(bodies: list[Message], size: int) -> None:
    messages = [{**body, "kind": "x"} for body in bodies]
    data = b"".join(map(frame, messages))
    frames = Frames()
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    assert [message for piece in pieces for message in frames.feed(piece)] == messages


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">I", 17 * 1024 * 1024),
        struct.pack(">I", 3) + b"{]}",
        struct.pack(">I", 2) + b"[]",
        struct.pack(">I", 2) + b"{}",
        struct.pack(">I", 10) + b'{"kind":1}',
        struct.pack(">I", 4) + b"\xff\xff\xff\xff",
        struct.pack(">I", 100_000) + b"[" * 100_000,
    ],
)
async def test_what_is_no_message_closes_the_channel(data: bytes) -> None:
    channel, theirs = await pair()
    with theirs:
        theirs.sendall(data)
        assert await heard(channel) == []
        assert channel.fault is not None
        assert not channel.is_open
        with pytest.raises(ChannelBroken):
            channel.send({"kind": "ping"})
        assert theirs.recv(1) == b"", "the child sees the end of its parent"


def test_a_message_that_is_too_long_is_not_sent() -> None:
    with pytest.raises(ChannelBroken):
        frame({"kind": "x", "data": "x" * 16 * 1024 * 1024})


async def test_messages_before_the_end_are_still_read() -> None:
    channel, theirs = await pair()
    with theirs:
        theirs.sendall(frame({"kind": "one"}) + frame({"kind": "two"}) + b"\0\0")
    assert [message["kind"] for message in await heard(channel)] == ["one", "two"]
    assert channel.fault is None, "a child that is gone is no error"
    with pytest.raises(ChannelBroken):
        channel.send({"kind": "ping"})
    channel.close()


async def test_a_child_that_does_not_read_never_blocks() -> None:
    channel, theirs = await pair(unsent=1_000_000)
    with theirs:
        for _ in range(100):
            if channel.is_open:
                channel.send({"kind": "x", "data": "x" * 100_000})
        assert channel.fault is not None
        assert channel.fault.fields == {"limit": 1_000_000}
        assert await heard(channel) == []


async def test_a_child_that_talks_too_much_has_to_wait_and_loses_nothing() -> None:
    channel, theirs = await pair(unread=10)
    message = frame({"kind": "x", "data": "x" * 1000})
    with theirs:
        theirs.setblocking(False)
        sent, room = 0, True
        while room:
            try:
                theirs.sendall(message)
                sent += 1
            except BlockingIOError:
                # As long as nobody listens, what the channel itself takes in is limited.
                room = len(channel._waiting) <= 10  # noqa: SLF001
                await asyncio.sleep(0)
    assert 10 < sent < 10_000
    assert len(await heard(channel)) >= sent
    assert channel.fault is None


async def test_a_late_answer_is_not_taken_for_one_to_the_next_question() -> None:
    channel, theirs = await pair()
    talk = Conversation(channel, None)
    with theirs:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(talk.ask("suspend", "quiet"), 0.05)
        second = asyncio.create_task(talk.ask("suspend", "quiet"))
        theirs.sendall(frame({"kind": "quiet", "nonce": 1}) + frame({"kind": "joined"}))
        await until(lambda: talk.has_joined)
        assert not second.done()
        theirs.sendall(frame({"kind": "quiet", "nonce": 2}))
        assert (await second)["nonce"] == 2
        third = asyncio.create_task(talk.ask("resume", "awake"))
        await asyncio.sleep(0)
    with pytest.raises(ChannelBroken):
        await third
    talk.say({"kind": "lapse"})
    await talk.close()


# --- the child's end --------------------------------------------------------------------------


def joined() -> tuple[Inside, socket.socket]:
    """An inside in this process, which does not die with its parent while it is left in time."""
    ours, theirs = socket.socketpair()
    environ = {CHANNEL_FD: str(theirs.detach())}
    inside = Inside.join(environ)
    assert environ == {}, "no child of ours may take it for its own"
    assert inside is not None
    return inside, ours


def test_without_a_supervisor_there_is_nothing_to_join() -> None:
    assert Inside.join({}) is None


async def test_messages_are_handled_in_the_loop_early_ones_first() -> None:
    inside, ours = joined()
    with ours:
        ours.sendall(frame({"kind": "early"}) + frame({"kind": "ignored"}))
        await until(lambda: inside._early)  # noqa: SLF001
        seen: list[tuple[str, str]] = []

        def note(message: Message) -> None:
            seen.append((message["kind"], threading.current_thread().name))

        inside.hear({"early": note, "late": note}, asyncio.get_running_loop())
        ours.sendall(frame({"kind": "late"}) + frame({"kind": "ping", "nonce": 5}))
        frames = Frames()
        said: list[Message] = []
        while not said or said[-1]["kind"] != "well":
            said += frames.feed(await asyncio.to_thread(ours.recv, 4096))
        inside.leave()
    assert seen == [("early", "MainThread"), ("late", "MainThread")]
    assert said == [{"kind": "joined", "dumps": False}, {"kind": "well", "nonce": 5}]
    inside.tell({"kind": "status"})
    inside.leave()


def test_a_closed_loop_needs_no_orders() -> None:
    inside, ours = joined()
    loop = asyncio.new_event_loop()
    inside.hear({}, loop)
    loop.close()
    with ours:
        ours.sendall(frame({"kind": "ping"}))
        inside.leave()


@pytest.mark.parametrize("last", [b"", b"\xff\xff\xff\xff"])
def test_a_child_that_leads_no_session_kills_only_itself(last: bytes) -> None:
    code = LIGHT + "Inside.join(); print(os.getsid(0), flush=True); time.sleep(1000)"
    ours, theirs = socket.socketpair()
    with ours:
        one = child(
            *python(code),
            stdout=subprocess.PIPE,
            pass_fds=[theirs.fileno()],
            env={**os.environ, CHANNEL_FD: str(theirs.fileno())},
        )
        theirs.close()
        assert one.stdout is not None
        with one.stdout:
            assert int(one.stdout.readline()) == os.getsid(0)
            ours.sendall(last)
            if not last:
                ours.close()
            assert one.wait() == -9


async def test_what_is_heard_at_once_needs_no_loop() -> None:
    inside, ours = joined()
    heard: list[Message] = []
    with ours:
        ours.sendall(frame({"kind": "news", "number": 1}))
        await until(lambda: inside._early)  # noqa: SLF001
        inside.hear_at_once("news", heard.append)
        ours.sendall(frame({"kind": "news", "number": 2}))
        await until(lambda: [one["number"] for one in heard] == [1, 2])
        inside.leave()


def test_the_childs_half_needs_nothing_but_the_standard_library() -> None:
    code = LIGHT + "import json; print(json.dumps(sorted(sys.modules)))"
    modules = json.loads(say(code)[0])
    ours = {name for name in modules if re.match(r"detent(?!\.errors\.)", name)}
    assert ours == {
        "detent",
        "detent.errors",
        "detent.runtime",
        "detent.runtime.process",
        "detent.runtime.process.frames",
        "detent.host",
        "detent.runtime.process.inside",
    }
    assert "msgspec" not in modules
