"""The server as a command: it starts, answers, drains and ends; or says why it does not."""

from __future__ import annotations

import json
import re
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.surfaces.server import Client, eventually
from tests.surfaces.test_http_connection import request
from tests.waiting import signal_again

DETENT = (sys.executable, "-m", "detent")


@contextmanager
def served(url: str, log: Path, *options: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A server in a process of its own, and its port."""
    command = [*DETENT, "serve", "--store", url, "--port", "0", *options]
    with log.open("wb") as to:
        process = subprocess.Popen(command, stderr=to)  # noqa: S603
    try:
        found = eventually(lambda: re.search(r"running on \w+://[^:]+:(\d+)", log.read_text()))
        assert found is not None
        yield process, int(found[1])
    finally:
        process.kill()
        process.wait()


def test_it_serves_and_drains(tmp_path: Path) -> None:
    url, log = f"sqlite:///{tmp_path}/detent.db", tmp_path / "log"
    with served(url, log, "--json-logs") as (process, port):
        client = Client(port)
        job = client.push()
        client.get("/queues", Host="evil.example").error(421, "misdirected_request")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        client.close()
    first = json.loads(log.read_text().splitlines()[0])
    assert (first["severity"], first["component"]) == ("INFO", "server")
    shown = _run("jobs", "show", job["id"], "--store", url)
    assert shown.returncode == 0


def test_a_second_signal_ends_it_at_once_and_without_noise(tmp_path: Path) -> None:
    url, log = f"sqlite:///{tmp_path}/detent.db", tmp_path / "log"
    with served(url, log) as (process, port), socket.create_connection(("127.0.0.1", port)) as slow:
        slow.sendall(request(b'{"type":"mail.send","args":[1]}')[:-1])
        client = Client(port)
        client.push()
        process.send_signal(signal.SIGINT)
        eventually(lambda: "Waiting for connections to close" in log.read_text())
        process.send_signal(signal.SIGTERM)  # an echo: a parent has passed on what it heard
        signal_again(process, signal.SIGINT)
        assert process.wait(20) == 1, "what it had begun is not finished, and it says so"
        client.close()
    lines = log.read_text().splitlines()
    assert [one for one in lines if " INFO " not in one] == lines[-1:]
    assert "stopped at once" in lines[-1]


def test_a_server_that_waits_for_its_store_is_called_off_by_one_signal(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with socket.create_server(("127.0.0.1", 0)) as mute, log.open("wb") as to:
        url = f"postgresql://127.0.0.1:{mute.getsockname()[1]}/nobody"
        command = [*DETENT, "serve", "--store", url, "--port", "0"]
        process = subprocess.Popen(command, stderr=to)  # noqa: S603
        with mute.accept()[0] as asked:
            asked.recv(1)
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 0
    assert [one for one in log.read_text().splitlines() if " INFO " not in one] == []


def test_who_goes_with_many_requests_under_way_leaves_no_noise(tmp_path: Path) -> None:
    url, log = f"sqlite:///{tmp_path}/detent.db", tmp_path / "log"
    bodies = [b'{"type":"mail.send","args":[1]}', b'{"type":"NO TYPE","args":[]}'] * 15
    with served(url, log) as (_, port):
        for _ in range(20):
            with socket.create_connection(("127.0.0.1", port), timeout=20) as gone:
                gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                gone.sendall(b"".join(map(request, bodies)))
                assert gone.recv(1) == b"H"
        client = Client(port)
        client.push()
        client.close()
    lines = log.read_text().splitlines()
    assert [one for one in lines if " INFO " not in one] == []
    assert "Started server process" in lines[0], "nothing is said about how it was tried out"


@pytest.mark.slow
def test_two_servers_share_a_store(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/detent.db"
    with served(url, tmp_path / "one") as (_, first), served(url, tmp_path / "two") as (_, second):
        one, two = Client(first), Client(second)
        pushed = [one.push("a", n)["id"] for n in range(5)]
        fetched = two.fetch(count=5)
        assert [job["id"] for job in fetched] == pushed
        for job in fetched:
            assert one.ack(job)["state"] == "completed"
        one.close()
        two.close()


@pytest.mark.slow
def test_it_says_why_it_does_not_start(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/detent.db"
    _run("migrate", "--store", url)
    refused = _run("serve", "--store", url, "--host", "0.0.0.0")  # noqa: S104 - it is refused
    assert refused.returncode == 2
    assert "no API keys" in refused.stderr
    test = _run("serve", "--store", url, "--host", "0.0.0.0", "--test-mode")  # noqa: S104
    assert "Test mode" in test.stderr
    program = tmp_path / "shop.py"
    job = "app.job(name='none')(lambda: None)"
    program.write_text(f"from detent import Detent\napp = Detent({url!r})\n{job}\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        late = _run("serve", "--store", url, "--port", str(taken.getsockname()[1]))
        up = _run("up", str(program), "--port", str(taken.getsockname()[1]))
    for one in (late, up):
        assert (one.returncode, one.stderr.count("\n")) == (2, 1), one.stderr
        assert "choose another port with --port [cannot_listen]" in one.stderr
    named = _run("up", str(program), "--host", "nowhere.invalid")
    assert "nowhere.invalid is no address of this machine" in named.stderr


@pytest.mark.slow
def test_keys_on_the_command_line(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/detent.db"
    _run("migrate", "--store", url)
    made = _run(
        "keys", "create", "--scope", "read", "--scope", "work", "--queue", "a.*", "--store", url
    )
    text = made.stdout.strip()
    assert re.fullmatch(r"dtk_[0-9a-f]{18}_[\w-]{43}", text)
    asked = ("keys", "create", "--scope", "admin", "--expires-in", "1d", "--json", "--store", url)
    second = json.loads(_run(*asked).stdout)
    assert second["expires_at"] is not None
    listed = _run("keys", "list", "--store", url)
    assert text.split("_")[1] in listed.stdout
    assert text.split("_", 2)[2] not in listed.stdout
    assert _run("keys", "revoke", text.split("_")[1], "--store", url).returncode == 0
    assert _run("keys", "revoke", "none", "--store", url).returncode == 1
    found = json.loads(_run("keys", "list", "--json", "--store", url).stdout)["keys"]
    assert [one["revoked_at"] is None for one in found] == [False, True]
    assert _run("keys", "create", "--store", url).returncode == 2


def _run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [*DETENT, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)  # noqa: S603
