"""`python -m bench.jobnik [--jobs N] [--store URL]`: jobs of 3 stages of 20 tasks, over HTTP.

A server in a process of its own, and 8 workers that dequeue and report on connections that stay
open. The median dequeue is told for each tenth of the way: it must not grow with what is done.
"""

from __future__ import annotations

import argparse
import http.client
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

STAGES, TASKS, WORKERS = 3, 20, 8
_TENTHS = 10


class Client:
    """One connection."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """One request, and its answer."""
        data = None if body is None else json.dumps(body)
        told = {"Content-Type": "application/json"}
        self._connection.request(method, f"/v1{path}", data, told)
        found = self._connection.getresponse()
        return found.status, json.loads(found.read())


@contextmanager
def served(store: str, log: Path) -> Iterator[int]:
    """A server, and its port."""
    command = [sys.executable, "-m", "detent", "serve", "--store", store, "--port", "0"]
    with log.open("wb") as said, subprocess.Popen(command, stderr=said) as process:  # noqa: S603
        try:
            while "running on" not in log.read_text():
                if process.poll() is not None:
                    raise SystemExit(log.read_text())
                time.sleep(0.05)
            address = log.read_text().split("running on ")[1].split()[0].strip('",')
            yield int(address.rsplit(":", 1)[1].strip("/"))
        finally:
            process.terminate()


def fill(port: int, jobs: int) -> None:
    """Jobs with all their stages and tasks."""
    client = Client(port)
    for number in range(jobs):
        _, job = client.ask("POST", "/jobs", {"name": f"job {number}", "data": {}})
        for stage in range(STAGES):
            body = {"type": f"stage{stage}", "data": {}}
            _, made = client.ask("POST", f"/jobs/{job['id']}/stage", body)
            client.ask("POST", f"/stages/{made['id']}/tasks", [{"data": {}}] * TASKS)


def work(port: int, took: list[tuple[float, float]]) -> None:
    """Dequeue and report, until there is nothing for a while."""
    client, types, idle = Client(port), [f"stage{number}" for number in range(STAGES)], 0
    while idle < 3 * STAGES:
        type_ = types[-1]
        began = time.perf_counter()
        status, task = client.ask("PATCH", f"/stages/{type_}/tasks/dequeue")
        ended = time.perf_counter()
        if status != http.HTTPStatus.OK:
            types = [type_, *types[:-1]]
            idle += 1
            continue
        idle = 0
        took.append((ended, ended - began))
        client.ask("PUT", f"/tasks/{task['id']}/status", {"status": "COMPLETED"})


def main() -> None:
    """Fill, drain, tell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000)
    parser.add_argument("--store")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = asked.store or f"sqlite:///{folder}/detent.db"
        with served(store, Path(folder) / "log") as port:
            fill(port, asked.jobs)
            took: list[tuple[float, float]] = []
            workers = [threading.Thread(target=work, args=(port, took)) for _ in range(WORKERS)]
            began = time.perf_counter()
            for one in workers:
                one.start()
            for one in workers:
                one.join()
    told(sorted(took), began)


def told(took: list[tuple[float, float]], began: float) -> None:
    """Tasks a second, and the median dequeue of each tenth."""
    seconds = took[-1][0] - began
    sys.stdout.write(f"{len(took)} tasks in {seconds:.1f} s: {len(took) / seconds:.0f} a second\n")
    size = max(len(took) // _TENTHS, 1)
    medians = [
        statistics.median(one for _, one in took[first : first + size]) * 1e3
        for first in range(0, size * _TENTHS, size)
    ]
    sys.stdout.write("median dequeue in ms: " + " ".join(f"{one:.1f}" for one in medians) + "\n")


if __name__ == "__main__":
    main()
