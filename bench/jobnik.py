"""`python -m bench.jobnik [--jobs N] [--store URL]`: jobs of 3 stages of 20 tasks, over HTTP.

A server in a process of its own, and 8 workers that dequeue and report on connections that stay
open. The median dequeue and the processor time of the server per task are told for each tenth of
the way: neither may grow with what is done. Afterwards every job must have completed, no task may
have been given out twice, and `detent verify` must find nothing.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

STAGES, TASKS, WORKERS = 3, 20, 8
_TENTHS = 10
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class Served(NamedTuple):
    """A server: where it listens, and which process it is."""

    port: int
    pid: int

    def cpu_s(self) -> float:
        """The processor time that it has used so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text("utf-8").rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) * _TICK_S


class Done(NamedTuple):
    """A task that was dequeued: when, how long that took, and what the server had used by then."""

    at: float
    took_s: float
    cpu_s: float
    task: str


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
def served(store: str, log: Path) -> Iterator[Served]:
    """A server."""
    command = [sys.executable, "-m", "detent", "serve", "--store", store, "--port", "0"]
    with log.open("wb") as said, subprocess.Popen(command, stderr=said) as process:  # noqa: S603
        try:
            while "running on" not in log.read_text():
                if process.poll() is not None:
                    raise SystemExit(log.read_text())
                time.sleep(0.05)
            address = log.read_text().split("running on ")[1].split()[0].strip('",')
            yield Served(int(address.rsplit(":", 1)[1].strip("/")), process.pid)
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


def work(server: Served, took: list[Done]) -> None:
    """Dequeue and report, until there is nothing for a while."""
    client, types, idle = Client(server.port), [f"stage{number}" for number in range(STAGES)], 0
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
        took.append(Done(ended, ended - began, server.cpu_s(), task["id"]))
        client.ask("PUT", f"/tasks/{task['id']}/status", {"status": "COMPLETED"})


def main() -> None:
    """Fill, drain, tell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000)
    parser.add_argument("--store")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = asked.store or f"sqlite:///{folder}/detent.db"
        with served(store, Path(folder) / "log") as server:
            filling = time.perf_counter()
            fill(server.port, asked.jobs)
            began, used_s = time.perf_counter(), server.cpu_s()
            sys.stdout.write(f"filled in {began - filling:.0f} s\n")
            took = drained(server)
            need_complete(server.port, took, asked.jobs)
        told(sorted(took), began, used_s)
        command = [sys.executable, "-m", "detent", "verify", "--store", store]
        raise SystemExit(subprocess.run(command, check=False).returncode)  # noqa: S603


def drained(server: Served) -> list[Done]:
    """All tasks, taken and reported by workers."""
    took: list[Done] = []
    workers = [threading.Thread(target=work, args=(server, took)) for _ in range(WORKERS)]
    for one in workers:
        one.start()
    for one in workers:
        one.join()
    return took


def need_complete(port: int, took: list[Done], jobs: int) -> None:
    """Everything is done, and nothing was done twice."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    connection.request("GET", "/service-metrics")
    gauges = connection.getresponse().read().decode()
    if f'jobnik_jobs_by_status{{job_status="COMPLETED"}} {jobs}.0' not in gauges:
        raise SystemExit(gauges)
    tasks = jobs * STAGES * TASKS
    if len(took) != tasks or len({one.task for one in took}) != tasks:
        raise SystemExit(f"{len(took)} tasks were given out instead of {tasks}")


def told(took: list[Done], began: float, used_s: float) -> None:
    """Tasks a second, and what each tenth of the way has cost."""
    seconds = took[-1].at - began
    sys.stdout.write(f"{len(took)} tasks in {seconds:.1f} s: {len(took) / seconds:.0f} a second\n")
    size = max(len(took) // _TENTHS, 1)
    tenths = [took[first : first + size] for first in range(0, size * _TENTHS, size)]
    medians = [statistics.median(one.took_s for one in some) * 1e3 for some in tenths]
    marks = [used_s, *(some[-1].cpu_s for some in tenths)]
    costs = [(after - before) / size * 1e6 for before, after in itertools.pairwise(marks)]
    sys.stdout.write("median dequeue in ms: " + " ".join(f"{one:.1f}" for one in medians) + "\n")
    sys.stdout.write("server us per task: " + " ".join(f"{one:.0f}" for one in costs) + "\n")


if __name__ == "__main__":
    main()
