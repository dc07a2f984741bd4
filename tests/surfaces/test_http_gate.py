"""Who gets in: keys, scopes, queues, tenants, hosts, origins, sizes and rates."""

from __future__ import annotations

import base64
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from detent import stores
from detent.engine.access import OPEN_TO_ALL, Scope
from detent.engine.engine import Engine
from detent.errors import BadOption, OpenToAll, StoreClosed, UnknownKey
from detent.surfaces.http.exchange import Settings
from detent.surfaces.http.gate import LOOPBACK, Gate
from detent.surfaces.http.problems import Problem, problem_of
from detent.surfaces.http.server import Bind, need_guard
from tests.surfaces.server import Client, Running, eventually, on, running

BATCH = {"type": "a", "args": []}


def key(url: str, *scopes: Scope, **more: Any) -> str:
    """A new key."""
    _, text = on(url, lambda engine: engine.access.create(scopes, **more))
    return str(text)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('gate')}/detent.db"


@pytest.fixture(scope="module")
def guarded(url: str) -> Iterator[Running]:
    """A server whose store has keys, and that takes small bodies."""
    key(url, Scope.ADMIN)
    settings = Settings(hosts=LOOPBACK, body_bytes_max=2_000, header_bytes_max=2_000)
    with running(url, settings) as found:
        yield found


def caller(server: Running, text: str) -> Client:
    return Client(server.port, Authorization=f"Bearer {text}")


def test_without_a_key_nobody_gets_in_but_probes_do(guarded: Running) -> None:
    client = Client(guarded.port)
    answer = client.get("/queues")
    answer.error(401, "unauthenticated")
    assert answer.headers["www-authenticate"] == "Bearer"
    client.get("/metrics").error(401, "unauthenticated")
    for path in ("/livez", "/readyz", "/ojs/v1/health", "/ojs/manifest"):
        assert client.get(path).status == 200
    client.close()


def test_the_bare_address_tells_what_is_there(guarded: Running) -> None:
    place = f"http://127.0.0.1:{guarded.port}"
    door = httpx.get(f"{place}/")
    assert (door.status_code, door.headers["content-type"]) == (200, "text/plain; charset=utf-8")
    named = re.findall(r"(?<!\S)/[a-z/1.]+[a-z1]", door.text)
    routes = [route.path for route in guarded.app.routes]
    assert len(named) > 8
    assert [one for one in named if not any(path.startswith(one) for path in routes)] == []
    lost = httpx.get(f"{place}/nowhere")
    assert lost.status_code == 404
    assert lost.json()["error"]["hint"] == "GET / tells what is served here"


@pytest.mark.parametrize("text", ["dtk_x_y", "nothing", "dtk_", "", "dtk_00_é"])
def test_a_key_that_is_none(guarded: Running, text: str) -> None:
    client = caller(guarded, text)
    client.get("/queues").error(401, "unauthenticated")
    client.get("/queues", Authorization="Basic ???").error(401, "unauthenticated")
    client.close()


def test_a_key_opens_in_three_ways(guarded: Running, url: str) -> None:
    text = key(url, Scope.READ)
    client = Client(guarded.port)
    for pair in (f"{text}:", f"someone:{text}"):
        basic = base64.b64encode(pair.encode()).decode()
        client.get("/queues", Authorization=f"Basic {basic}").ok()
    client.get("/queues", Authorization=f"bearer {text}").ok()
    client.get(f"/k/{text}/ojs/v1/queues").ok()
    client.get(f"/k/{text}x/ojs/v1/queues").error(401, "unauthenticated")
    client.close()


def test_a_scope_opens_what_it_says(guarded: Running, url: str) -> None:
    producer, worker = (
        caller(guarded, key(url, Scope.PRODUCE)),
        caller(guarded, key(url, Scope.WORK)),
    )
    job = producer.push()
    error = producer.get(f"/jobs/{job['id']}").error(403, "forbidden")
    assert error["details"]["scope"] == "read"
    producer.post("/workers/fetch", {"queues": ["default"]}).error(403, "forbidden")
    worker.post("/jobs", BATCH).error(403, "forbidden")
    worker.ack(worker.fetch()[0])
    worker.post("/queues/default/pause").error(403, "forbidden")
    for client in (producer, worker):
        client.close()


def test_a_key_for_some_queues_is_asked_about_every_item(guarded: Running, url: str) -> None:
    mine = caller(guarded, key(url, Scope.ADMIN, queues=["mail.*"]))
    mine.push("a", queue="mail.x")
    other = {"type": "a", "args": [], "options": {"queue": "pay"}}
    own = {"type": "a", "args": [], "options": {"queue": "mail.y"}}
    mine.post("/jobs", other).error(403, "forbidden")
    mine.post("/jobs/batch", {"jobs": [own, other]}).error(403, "forbidden")
    mine.post("/workflows", {"type": "chain", "steps": [own, other]}).error(403, "forbidden")
    mine.post("/cron", {"name": "n", "expression": "@daily", **other}).error(403, "forbidden")
    mine.post("/workers/fetch", {"queues": ["mail.x", "pay"]}).error(403, "forbidden")
    mine.get("/queues/pay/stats").error(403, "forbidden")
    mixed = mine.post("/jobs/bulk", {"jobs": [own, other]}).ok(207)
    assert [one["status"] for one in mixed["items"]] == ["created", "failed"]
    all_ = caller(guarded, key(url, Scope.ADMIN))
    theirs = all_.push("a", queue="pay")
    mine.get(f"/jobs/{theirs['id']}").error(403, "forbidden")
    flow = all_.post("/workflows", {"type": "group", "jobs": [own, other]}).ok(201)["workflow"]
    mine.get(f"/workflows/{flow['id']}").error(403, "forbidden")
    mine.delete(f"/workflows/{flow['id']}").error(403, "forbidden")
    hook = {"url": "https://hooks.example/x", "events": ["*"]}
    mine.post("/webhooks/subscriptions", hook).error(403, "forbidden")
    foreign = {"queues": ["mail.x", "pay"]}
    mine.post("/webhooks/subscriptions", {**hook, "filter": foreign}).error(403, "forbidden")
    mine.get("/metrics").error(403, "forbidden")
    all_.get("/metrics")
    assert {one["name"] for one in mine.get("/queues").ok()["queues"]} == {"mail.x", "mail.y"}
    for client in (mine, all_):
        client.close()


def test_a_key_for_one_tenant_is_in_it(guarded: Running, url: str) -> None:
    mine = caller(guarded, key(url, Scope.ADMIN, tenants=["acme"]))
    job = mine.push()
    mine.get(f"/jobs/{job['id']}", X_OJS_Tenant="acme").ok()
    mine.get("/queues", X_OJS_Tenant="other").error(403, "forbidden")
    mine.get("/admin/tenants/other/stats").error(403, "forbidden")
    all_ = caller(guarded, key(url, Scope.READ))
    all_.get(f"/jobs/{job['id']}").error(404, "not_found")
    all_.get(f"/jobs/{job['id']}", X_OJS_Tenant="acme").ok()
    for client in (mine, all_):
        client.close()


def test_a_key_runs_out_or_is_revoked(guarded: Running, url: str) -> None:
    late = caller(guarded, key(url, Scope.READ, expires_at=1))
    late.get("/queues").error(401, "unauthenticated")
    late.close()
    text = key(url, Scope.READ)
    client = caller(guarded, text)
    client.get("/queues").ok()
    on(url, lambda engine: engine.access.revoke(text.split("_")[1]))
    eventually(lambda: client.get("/queues").status == 401)
    client.close()


def test_keys_are_kept_as_digests(url: str) -> None:
    text = key(url, Scope.READ, name="bot")
    found = on(url, lambda engine: engine.access.list())
    assert text.split("_", 2)[2] not in repr(found)
    with pytest.raises(UnknownKey):
        on(url, lambda engine: engine.access.revoke("none"))
    with pytest.raises(BadOption):
        on(url, lambda engine: engine.access.create([]))
    with pytest.raises(BadOption):
        on(url, lambda engine: engine.access.create([Scope.READ], queues=[]))


def test_other_hosts_and_other_pages_are_not_let_in(guarded: Running, url: str) -> None:
    client = caller(guarded, key(url, Scope.READ))
    told = client.get("/queues", Host="evil.example").error(421, "misdirected_request")
    assert "--allow-host" in told["hint"]
    told = client.get("/queues", Origin="https://evil.example").error(403, "forbidden")
    assert "--allow-origin" in told["hint"]
    client.get("/queues", Origin=f"http://127.0.0.1:{guarded.port}").ok()
    for host in ("[::1", "evil@localhost", "localhost:abc", "localhost:80:80", "localhost/", ""):
        client.get("/queues", Host=host).error(421, "misdirected_request")
    for host in ("localhost", "LOCALHOST:80", "localhost:", "127.0.0.1:1", "[::1]", "[::1]:8080"):
        client.get("/queues", Host=host).ok()
    client.get("/queues", Origin="http://[::1").error(403, "forbidden")
    client.close()


def test_what_is_too_large_is_not_read(guarded: Running, url: str) -> None:
    client = caller(guarded, key(url, Scope.PRODUCE))
    client.post("/jobs", {"type": "a", "args": ["x" * 3_000]}).error(413, "envelope_too_large")
    client.close()
    client = caller(guarded, key(url, Scope.PRODUCE))
    client.get("/queues", X_Long="x" * 3_000).error(431, "headers_too_large")
    client.close()


def test_a_body_that_does_not_come(tmp_path: Path) -> None:
    head = b"POST /ojs/v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n{"
    with (
        running(f"sqlite:///{tmp_path}/detent.db", Settings(body_s=0.1)) as server,
        socket.create_connection(("127.0.0.1", server.port)) as raw,
    ):
        raw.sendall(head)
        assert b" 408 " in raw.recv(1_000)


@pytest.mark.parametrize("head", [b"", b"GET /live", b"GET / HTTP/1.1\r\nHost: x\r\n"])
def test_a_head_that_does_not_come(tmp_path: Path, head: bytes) -> None:
    """Whoever holds a connection and says nothing would keep others out."""
    with (
        running(f"sqlite:///{tmp_path}/detent.db", Settings(head_s=0.2)) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=10) as raw,
    ):
        client = Client(server.port)
        client.get("/livez").ok()
        raw.sendall(head)
        assert raw.recv(1_000) == b""
        # Between two requests of one connection there is another patience.
        client.get("/livez").ok()
        client.close()


@pytest.mark.parametrize("piece", [b"X: " + b"a" * 1_000 + b"\r\n", b"a" * 1_000])
def test_a_head_that_does_not_end(guarded: Running, piece: bytes) -> None:
    with socket.create_connection(("127.0.0.1", guarded.port), timeout=10) as raw:
        raw.sendall(b"GET / HTTP/1.1\r\nX: ")
        with pytest.raises(OSError, match=r"reset|[Bb]roken"):
            raw.sendall(piece * 10_000)
    client = Client(guarded.port)
    client.get("/livez").ok()
    client.close()


def test_a_rate_is_held(tmp_path: Path) -> None:
    with running(f"sqlite:///{tmp_path}/detent.db", Settings(rate=3)) as server:
        client = Client(server.port)
        answers = [client.get("/queues") for _ in range(5)]
        limited = next(one for one in answers if one.status == 429)
        assert limited.error(429, "rate_limited")["retryable"] is True
        assert limited.headers["retry-after"] == "1"
        # All who ask hear what is left, and whoever is refused hears when there is more.
        told = [
            (one.headers["x-ratelimit-limit"], one.headers["x-ratelimit-remaining"])
            for one in answers
        ]
        assert told[:2] == [("3", "2"), ("3", "1")]
        assert limited.headers["x-ratelimit-remaining"] == "0"
        assert limited.headers["x-ratelimit-reset"] == "1"
        client.close()


def test_tokens_come_back_with_time() -> None:
    now = [0.0]
    gate = Gate(Settings(rate=2), clock=lambda: now[0])

    def ask() -> bool:
        try:
            gate.throttle(OPEN_TO_ALL, "::1")
        except Problem:
            return False
        return True

    assert [ask(), ask(), ask()] == [True, True, False]
    now[0] = 0.5
    assert [ask(), ask()] == [True, False]


def test_a_store_that_gets_its_first_key_closes(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/detent.db"
    with running(url) as server:
        client = Client(server.port)
        client.get("/queues").ok()
        key(url, Scope.READ)
        eventually(lambda: client.get("/queues").status == 401)
        client.close()


def test_nobody_else_may_reach_a_server_without_keys() -> None:
    everywhere = Bind(host="0.0.0.0")  # noqa: S104 - that it is refused is the point
    with pytest.raises(OpenToAll, match="no API keys"):
        need_guard(everywhere, has_keys=False, test_mode=False)
    with pytest.raises(OpenToAll, match="Test mode"):
        need_guard(everywhere, has_keys=True, test_mode=True)
    need_guard(everywhere, has_keys=True, test_mode=False)
    for host in ("127.0.0.1", "::1", "localhost"):
        need_guard(Bind(host=host), has_keys=False, test_mode=True)
    with pytest.raises(OpenToAll):
        need_guard(Bind(host="example.org"), has_keys=False, test_mode=False)


def test_what_nobody_foresaw_is_told_without_details() -> None:
    problem = problem_of(ValueError("a secret"), "req_1")
    assert (problem.status, problem.code) == (500, "internal_error")
    assert "secret" not in problem.message


def test_a_stop_ends_those_who_wait(tmp_path: Path) -> None:
    found: list[int] = []
    with running(f"sqlite:///{tmp_path}/detent.db") as server:
        client = Client(server.port)
        client.push()
        client.fetch()

        def wait() -> None:
            found.append(len(client.fetch(wait_ms=30_000)))

        waiting = threading.Thread(target=wait)
        waiting.start()
        server.app.service.begin_stop()
        waiting.join()
    client.close()
    assert found == [0]


async def test_what_cannot_be_the_id_of_a_key_is_not_looked_up(tmp_path: Path) -> None:
    """Answers about keys are remembered, so strangers must not choose what is."""
    async with stores.open(f"sqlite:///{tmp_path}/detent.db") as store, Engine(store) as engine:
        access = engine.access
    # The store is closed: asking it would be an error.
    for text in (f"dtk_{'x' * 30_000}_y", "dtk_x_y", "dtk__", "other"):
        assert await access.principal(text) is None
    with pytest.raises(StoreClosed):
        await access.principal(f"dtk_{'0' * 18}_y")
