"""`python -m bench.http`: what the HTTP surface does beside a bare endpoint of the same stack.

Both servers are processes of their own (uvicorn, uvloop, httptools); the bare one reads a body with
msgspec and answers an envelope of the same size. The client is this process: so many connections,
each with one request at a time. Rounds of all cases take turns, and medians are told. The processor
time of the server per request suffers less from neighbours than rates do.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import uvicorn
from rich.console import Console
from rich.table import Table

CONNECTIONS = (1, 16, 64, 128)
_BODY = b'{"type":"mail.send","args":["a@b.c",{"n":1}],"options":{"queue":"bench","priority":1}}'
_REPLY = {"job": {"id": "x" * 36, "state": "available", "args": [1], "meta": {}, "pad": "x" * 480}}
Work = Callable[["Connection"], Awaitable[int]]
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class Served(NamedTuple):
    """A server: where it listens, and which process it is."""

    port: int
    pid: int

    def cpu_s(self) -> float:
        """The processor time that it has used so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text("utf-8").rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) * _TICK_S


class Rate(NamedTuple):
    """Pieces of work per second, and what one costs the server."""

    per_s: float
    cpu_us: float


# --- servers ----------------------------------------------------------------------------------


async def bare(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """The least that an endpoint does: read, decode, encode, answer."""
    if scope["type"] == "lifespan":
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    message = await receive()
    msgspec.json.decode(message["body"])
    body = msgspec.json.encode(_REPLY)
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 201, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@contextmanager
def serving(command: Sequence[str], log: Path) -> Iterator[Served]:
    """A server in a process of its own."""
    with log.open("wb") as to:
        process = subprocess.Popen([sys.executable, *command], stderr=to)  # noqa: S603
    try:
        while not (found := re.search(r"running on http://[^:]+:(\d+)", log.read_text())):
            assert process.poll() is None, log.read_text()
            time.sleep(0.05)
        yield Served(int(found[1]), process.pid)
    finally:
        process.terminate()
        process.wait()


# --- the client -------------------------------------------------------------------------------


class Connection:
    """One connection, one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def post(self, path: bytes, body: bytes) -> bytes:
        """The body of the answer."""
        head = b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" % path
        self._writer.write(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        told = await self._reader.readuntil(b"\r\n\r\n")
        assert told[9:12] in (b"200", b"201"), told
        at = told.lower().index(b"content-length: ") + 16
        return await self._reader.readexactly(int(told[at : told.index(b"\r", at)]))

    def close(self) -> None:
        self._writer.close()


async def push(connection: Connection) -> int:
    await connection.post(b"/ojs/v1/jobs", _BODY)
    return 1


async def fetch_and_ack(connection: Connection) -> int:
    found = msgspec.json.decode(
        await connection.post(b"/ojs/v1/workers/fetch", b'{"queues":["bench"],"count":1}')
    )
    for job in found["jobs"]:
        told = msgspec.json.encode({"job_id": job["id"], "lease": job["lease"]})
        await connection.post(b"/ojs/v1/workers/ack", told)
    return len(found["jobs"])


async def rate(server: Served, connections: int, seconds: float, work: Work) -> Rate:
    """How fast it goes, and what it costs."""
    opened = [
        Connection(*await asyncio.open_connection("127.0.0.1", server.port))
        for _ in range(connections)
    ]
    used_s = server.cpu_s()
    until = time.perf_counter() + seconds

    async def each(connection: Connection) -> int:
        done = 0
        while time.perf_counter() < until:
            done += await work(connection)
        return done

    began = time.perf_counter()
    done = sum(await asyncio.gather(*map(each, opened)))
    spent = time.perf_counter() - began
    for connection in opened:
        connection.close()
    return Rate(done / spent, (server.cpu_s() - used_s) / max(done, 1) * 1e6)


# --- the run ----------------------------------------------------------------------------------


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.http", description=__doc__)
    parser.add_argument("--store", help="the store; a SQLite file in a new folder by default")
    parser.add_argument("--seconds", type=float, default=2.0, help="of one round of one case")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--connections", type=int, nargs="*", default=CONNECTIONS)
    parser.add_argument("--serve-bare", action="store_true", help="be the bare endpoint")
    asked = parser.parse_args()
    if asked.serve_bare:
        uvicorn.run(bare, port=0, access_log=False)
        return
    with tempfile.TemporaryDirectory() as folder:
        _measure(Path(folder), asked)


def _measure(folder: Path, asked: argparse.Namespace) -> None:
    url = asked.store or f"sqlite:///{folder}/bench.db"
    ours = ("-m", "detent", "serve", "--store", url, "--port", "0")
    with (
        serving(("-m", "bench.http", "--serve-bare"), folder / "bare") as alone,
        serving(ours, folder / "ours") as server,
    ):
        cases: dict[str, tuple[Served, Work]] = {
            "bare": (alone, push),
            "push": (server, push),
            "fetch+ack": (server, fetch_and_ack),
        }
        rows = {n: _rounds(cases, n, asked) for n in asked.connections}
    names = ("connections", "bare/s", "us", "PUSH/s", "us", "of bare", "FETCH+ACK/s", "us")
    table = Table(*names, "of bare (two calls)")
    for connections, found in rows.items():
        bare_, pushed, worked = (found[name] for name in cases)
        table.add_row(
            str(connections),
            *_told(bare_),
            *_told(pushed),
            f"{pushed.per_s / bare_.per_s:.0%}",
            *_told(worked),
            f"{worked.per_s * 2 / bare_.per_s:.0%}",
        )
    Console(width=100).print(table)


def _told(rate: Rate) -> tuple[str, str]:
    return f"{rate.per_s:,.0f}", f"{rate.cpu_us:,.0f}"


def _rounds(
    cases: dict[str, tuple[Served, Work]], connections: int, asked: argparse.Namespace
) -> dict[str, Rate]:
    found: dict[str, list[Rate]] = {name: [] for name in cases}
    for _ in range(asked.rounds):
        for name, (server, work) in cases.items():
            found[name].append(asyncio.run(rate(server, connections, asked.seconds, work)))
    return {
        name: Rate(*map(statistics.median, zip(*all_, strict=True))) for name, all_ in found.items()
    }


if __name__ == "__main__":
    main()
