"""Streams: every line exactly once and in order, whatever happens to the connection."""

from __future__ import annotations

import asyncio
import random
import socket
import threading
from typing import Any

import psycopg
import pytest

from detent import stores
from detent.lifecycle.job.table import ENDED
from detent.stores.api import Line
from detent.surfaces.http.exchange import Settings
from tests.surfaces.rest import (
    DOORS,
    ENDS,
    PATIENCE_S,
    Frame,
    Rest,
    Site,
    door,
    follow,
    following,
    lines_of,
    program,
    states_of,
)
from tests.surfaces.server import eventually, running

_CLOSED = 7
"""The state of a connection that was cut off, in the words of the kernel."""


def resumed(frames: list[Frame], seed: int) -> dict[str, Any]:
    """How to go on after these frames: both ways are there, and the newer one counts."""
    if not frames:
        return {}
    seen = frames[-1].id
    ways: list[dict[str, Any]] = [
        {"cursor": int(seen)},
        {"Last_Event_ID": seen},
        {"cursor": int(seen) // 2, "Last_Event_ID": seen},
    ]
    return ways[seed % 3]


def stormed(port: int, name: str, opener: str, seed: int) -> list[Frame]:
    """All frames, by a client whose connection breaks all the time.

    The job goes on when it has heard a good part of what was said so far.
    """
    chance, frames = random.Random(seed), list[Frame]()
    while not frames or frames[-1].data.get("state") not in ENDS:
        if len(frames) > 3_000:
            DOORS[opener].set()
        how = resumed(frames, chance.randrange(3))
        frames += following(port, name, most=chance.randrange(1, 2_000), **how)
    return frames


def test_reconnect_storms_in_the_middle_of_ten_thousand_lines(site: Site, rest: Rest) -> None:
    opener = door()
    name = rest.start("wait", door=opener, before=5_000, after=5_000)["id"]
    found: dict[int, list[Frame]] = {}

    def storm(seed: int) -> None:
        found[seed] = stormed(site.port, name, opener, seed)

    threads = [threading.Thread(target=storm, args=(seed,)) for seed in range(3)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert sorted(found) == [0, 1, 2]
    for frames in found.values():
        logs = [one for one in frames if one.event == "log"]
        assert [one.data["line"] for one in logs] == [f"line {n}" for n in range(1, 10_001)]
        assert [one.data["cursor"] for one in logs] == list(range(1, 10_001))
        assert [one.id for one in logs] == [str(n) for n in range(1, 10_001)]
        states = states_of(frames)
        assert states[-1] == "success"
        order = ["pending", "running", "success"]
        assert states == sorted(states, key=order.index)
        # Lines do not come while it is pending.
        first = next(at for at, one in enumerate(frames) if one.event == "log")
        assert "pending" not in states_of(frames[first:])
    assert len(rest.job(name)["logs"]) == 10_000


def test_whoever_comes_after_the_end_gets_the_rest_and_one_status(site: Site, rest: Rest) -> None:
    name = rest.ended(rest.start("greet", name="x", times=3)["id"])["id"]
    for how, rest_of_it in (({"cursor": 1}, 2), ({"Last_Event_ID": "3"}, 0), ({}, 3)):
        frames = follow(site.port, name, **how)
        assert len(lines_of(frames)) == rest_of_it
        assert states_of(frames) == ["success"]
        assert frames[-1].event == "status"
        assert frames[-1].id == "3"


def test_a_failed_and_a_cancelled_stream_end_with_why(site: Site, rest: Rest) -> None:
    failed = follow(site.port, rest.start("break")["id"])[-1]
    assert failed.data == {
        "state": "failed",
        "error": {"code": "handler_error", "message": "it broke"},
    }
    name = rest.start("heed")["id"]
    frames = following(site.port, name)
    assert eventually(lambda: next(frames).data.get("line")) == "I am here"
    rest.post(f"/{name}/cancel").ok(202)
    assert list(frames)[-1].data == {"state": "cancelled"}


def append(site: Site, name: str, *lines: str) -> list[int]:
    """Lines of a job that somebody else writes; their cursors."""

    async def appended() -> list[int]:
        async with stores.open(site.url) as store:
            told = [(("", name), Line(store.now(), line)) for line in lines]
            return list(await store.append_logs(told))

    return asyncio.run(appended())


def test_a_line_after_the_end_has_a_cursor_but_no_stream(site: Site, rest: Rest) -> None:
    opener = door()
    name = rest.start("wait", door=opener, before=1)["id"]
    frames = following(site.port, name)
    assert next(frames).event in ("status", "log")
    DOORS[opener].set()
    seen = list(frames)
    assert seen[-1].data["state"] == "success"
    assert append(site, name, "late") == [2]
    assert rest.job(name)["logs"] == ["line 1", "late"]
    assert (seen[-1].id, lines_of(follow(site.port, name, 1))) == ("1", ["late"])


def test_a_server_that_stops_ends_its_streams_and_another_goes_on(site: Site, rest: Rest) -> None:
    opener = door()
    name = rest.start("wait", door=opener, before=20, after=20)["id"]
    with running(site.url, Settings(), program(site.url)) as other:
        frames = following(other.port, name)
        seen = [next(frames)]
        while seen[-1].id != "20":
            seen.append(next(frames))
        other.app.service.begin_stop()
        seen += frames
    assert seen[-1].data.get("state") not in ENDS
    DOORS[opener].set()
    seen += follow(site.port, name, int(seen[-1].id))
    assert lines_of(seen) == [f"line {number}" for number in range(1, 41)]
    assert states_of(seen)[-1] == "success"


def test_a_sign_of_life_comes_when_there_is_nothing_else(site: Site, rest: Rest) -> None:
    name = rest.start("idle")["id"]
    with running(site.url, Settings(beat_s=0.05)) as other:
        with raw(other.port, name) as connection:
            said = connection.recv(65_536)
            while said.count(b":heartbeat\n\n") < 3:
                said += connection.recv(65_536)
        head, _, body = said.partition(b"\r\n\r\n")
        assert b"text/event-stream" in head
        assert b"x-accel-buffering: no" in head
        assert b"status" in body


@pytest.mark.parametrize("site", ["postgresql"], indirect=True)
def test_a_store_that_goes_away_for_a_moment_costs_no_line(site: Site, rest: Rest) -> None:
    opener = door()
    name = rest.start("wait", door=opener, before=50, after=50)["id"]
    frames = list(following(site.port, name, most=40))
    waiting = following(site.port, name, **resumed(frames, 0))
    frames.append(next(waiting))
    with psycopg.connect(site.url) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    DOORS[opener].set()
    frames += waiting
    while frames[-1].data.get("state") not in ENDS:
        frames += following(site.port, name, **resumed(frames, 1))
    assert lines_of(frames) == [f"line {number}" for number in range(1, 101)]
    assert states_of(frames)[-1] == "success"


def raw(port: int, name: str) -> socket.socket:
    """A connection that has asked for a stream, and takes as little as it can."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    connection.settimeout(PATIENCE_S)
    connection.connect(("127.0.0.1", port))
    asked = f"GET /api/jobs/{name}/events HTTP/1.1\r\nHost: x\r\n\r\n"
    connection.sendall(asked.encode())
    return connection


def test_a_reader_that_never_reads_is_cut_and_can_go_on(site: Site, rest: Rest) -> None:
    name = rest.start("idle")["id"]
    count, text = 1_500, "x" * 10_000
    for at in range(0, count, 500):
        append(site, name, *(f"{number} {text}" for number in range(at + 1, at + 501)))
    with raw(site.port, name) as connection:
        assert connection.recv(16).startswith(b"HTTP/1.1 200")

        asked = (socket.IPPROTO_TCP, socket.TCP_INFO, 1)
        eventually(lambda: connection.getsockopt(*asked)[0] == _CLOSED)
    # What it has seen whole it has seen; it goes on from there, wherever that is.
    for cursor in (0, 700):
        rest_of_it = following(site.port, name, cursor, most=count - cursor)
        numbers = [int(one.data["line"].split()[0]) for one in rest_of_it if one.event == "log"]
        assert numbers == list(range(cursor + 1, count + 1))
    rest.post(f"/{name}/cancel").ok(200)


@pytest.mark.slow
def test_a_thousand_readers_hold(site: Site, rest: Rest) -> None:
    opener = door()
    name = rest.start("wait", door=opener, before=10, after=10)["id"]
    ends = asyncio.run(crowd(site.port, name, opener, 1_000))
    assert len(ends) == 1_000
    assert all(one.count(b"event: log") == 20 for one in ends)


async def crowd(port: int, name: str, opener: str, count: int) -> list[bytes]:
    """What so many readers read; the door is opened when all of them are there."""
    there, all_there = 0, asyncio.Event()

    async def read() -> bytes:
        nonlocal there
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET /api/jobs/{name}/events HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        said = await reader.readuntil(b'"cursor":10}')
        there += 1
        if there == count:
            all_there.set()
        said += await reader.readuntil(b'"success"')
        writer.close()
        return said

    readers = [asyncio.create_task(read()) for _ in range(count)]
    await asyncio.wait_for(all_there.wait(), PATIENCE_S)
    DOORS[opener].set()
    return await asyncio.gather(*readers)


def test_ends_of_the_view_are_ends_of_the_lifecycle() -> None:
    assert len(ENDS) == len(ENDED)
