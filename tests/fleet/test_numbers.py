"""What a supervisor counts, told to Prometheus while it runs, and nowhere unless it is asked."""

from __future__ import annotations

import os
import re
import signal
import socket

import httpx
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from detent.app.fleet.numbers import SETS_MAX, Numbers, place_of
from detent.app.fleet.orders import Web
from detent.errors import BadOption
from tests.fleet.yard import Yard
from tests.waiting import eventually


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def value(told: str, name: str, **labels: str) -> float:
    """What a metric with these labels stands at; 0 if it is not there."""
    words = ",".join(f'{key}="{text}"' for key, text in sorted(labels.items()))
    found = re.search(rf"^{re.escape(f'{name}{{{words}}}')} (\S+)$", told, re.M)
    return float(found[1]) if found else 0.0


@pytest.mark.slow
def test_a_killed_worker_is_counted_where_prometheus_asks(yard: Yard) -> None:
    """W-112: from a real command, for as long as it runs."""
    port = free_port()
    place = f"http://127.0.0.1:{port}/metrics"
    fleet = yard.start("--metrics", str(port))
    names = {"child": "worker-1", "supervisor": "supervisor"}

    def restarts() -> float:
        return value(httpx.get(place).text, "lifecycle_worker_restarts_total", **names)

    assert value(httpx.get(place).text, "lifecycle_workers_started_total", type="process") == 1
    assert restarts() == 0
    [pid] = eventually(lambda: yard.pids_of("worker-1"))
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: restarts() == 1, "the restart is counted")
    fleet.send_signal(signal.SIGTERM)
    assert fleet.wait(30) == 0, yard.log(fleet)
    with pytest.raises(httpx.ConnectError):
        httpx.get(place)


@pytest.mark.slow
def test_a_port_that_is_taken_is_said_before_anything_is_started(yard: Yard) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = yard.detent("worker", "program.py", "--metrics", f"127.0.0.1:{port}", code=2)
    assert "[cannot_listen]" in said
    assert "with --metrics" in said
    assert yard.workers(gone=True) == []


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("9100", "127.0.0.1", 9100),
        (":9100", "127.0.0.1", 9100),
        ("0.0.0.0:1", "0.0.0.0", 1),  # noqa: S104 - nobody listens
        ("[::1]:65535", "::1", 65_535),
        ("localhost:80", "localhost", 80),
    ],
)
def test_an_address_is_a_port_or_has_one(text: str, host: str, port: int) -> None:
    assert place_of(text) == Web(host=host, port=port)


@pytest.mark.parametrize("text", ["", "host", "1.2.3.4:", "0", "65536", "a:-1", "host:٣"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(BadOption):
        place_of(text)


def test_names_that_never_end_become_no_time_series() -> None:
    """W-113."""
    numbers, registry = Numbers(), CollectorRegistry()
    registry.register(numbers)
    for number in range(SETS_MAX + 5):
        numbers.count("lifecycle_worker_restarts_total", {"child": f"slot-{number}"})
        numbers.observe("lifecycle_backoff_triggered_seconds", 2, {"child": f"slot-{number}"})
    numbers.count("lifecycle_worker_restarts_total", {"child": "slot-0"})
    told = generate_latest(registry).decode()
    restarts = re.findall(r"^lifecycle_worker_restarts_total\{.*$", told, re.M)
    assert len(restarts) == SETS_MAX + 1
    assert 'lifecycle_worker_restarts_total{child="slot-0"} 2.0' in restarts
    assert 'lifecycle_worker_restarts_total{child="other"} 5.0' in restarts
    assert 'lifecycle_backoff_triggered_seconds_bucket{child="other",le="1"} 0.0' in told
    assert 'lifecycle_backoff_triggered_seconds_bucket{child="other",le="5"} 5.0' in told
    assert 'lifecycle_backoff_triggered_seconds_sum{child="other"} 10.0' in told
