"""Who may ask for what: keys and tenants, idempotency, secrets, errors, request ids, limits."""

from __future__ import annotations

import asyncio
import hashlib
import json
import sqlite3
import threading
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from detent import stores
from detent.engine.access import Scope
from detent.engine.engine import Engine
from detent.errors import StoreUnavailable
from detent.surfaces.http.exchange import Settings
from detent.surfaces.http.problems import problem_of
from detent.surfaces.rest.faults import CODES, problem_reply
from tests.surfaces.rest import DOORS, Rest, Site, door, follow
from tests.surfaces.server import running


@contextmanager
def plain_server(site: Site, settings: Settings | None = None) -> Iterator[Rest]:
    """A second server on the same store, which knows no program."""
    with running(site.url, settings or Settings()) as found:
        rest = Rest(found.port)
        yield rest
        rest.close()


# --- errors -----------------------------------------------------------------------------------


def test_error_bad_request(rest: Rest) -> None:
    for body in (b"{", b"[]", b'{"inputs":{}}', b'{"action":1}', b'{"action":"a","inputs":[1]}'):
        rest.refused(rest.post("", body), 400, "BAD_REQUEST")
    wrong = rest.ask("POST", "", b"{}", Content_Type="text/plain")
    assert wrong.status in (400, 415)
    rest.refused(rest.post("", {"action": "greet"}, Idempotency_Key=""), 400, "BAD_REQUEST")
    rest.refused(rest.post("", {"action": "greet"}, Idempotency_Key="ü"), 400, "BAD_REQUEST")
    rest.refused(rest.get("?limit=none"), 400, "BAD_REQUEST")
    rest.refused(rest.get(f"/{rest.start('break')['id']}/events?cursor=-1"), 400, "BAD_REQUEST")


def test_error_validation_names_each_field(rest: Rest) -> None:
    error = rest.refused(rest.post("", {"action": "nothing"}), 400, "VALIDATION_ERROR")
    assert error["details"]["fields"].keys() == {"action"}
    wrong = {"action": "greet", "inputs": {"times": "many", "color": "red"}}
    error = rest.refused(rest.post("", wrong), 400, "VALIDATION_ERROR")
    assert error["details"]["fields"].keys() == {
        "inputs.name",
        "inputs.times",
        "inputs.color",
    }
    rest.refused(rest.get("?state=lost"), 400, "VALIDATION_ERROR")
    rest.refused(rest.post("", {"action": "x" * 300}), 400, "VALIDATION_ERROR")
    deep: Any = "end"
    for _ in range(100):
        deep = [deep]
    nested = {"action": "greet", "inputs": {"name": deep}}
    rest.refused(rest.post("", nested), 400, "VALIDATION_ERROR")


def test_error_not_found(rest: Rest) -> None:
    for path in (f"/{uuid.uuid4()}", f"/{uuid.uuid4()}/events", "/nonsense", "/a/b/c"):
        rest.refused(rest.get(path), 404, "NOT_FOUND")
    rest.refused(rest.post(f"/{uuid.uuid4()}/cancel"), 404, "NOT_FOUND")
    rest.refused(rest.get("/api/elsewhere"), 404, "NOT_FOUND")


def test_error_payload_too_large(rest: Rest) -> None:
    large = {"action": "greet", "inputs": {"name": "x" * 1_100_000}}
    rest.refused(rest.post("", large), 413, "PAYLOAD_TOO_LARGE")


def test_error_rate_limited_says_when_to_come_back(site: Site) -> None:
    with plain_server(site, Settings(rate=1)) as rest:
        answers = [rest.get("?limit=1") for _ in range(3)]
        refused = next(one for one in answers if one.status != 200)
        rest.refused(refused, 429, "RATE_LIMITED")
        assert int(refused.headers["retry-after"]) >= 1
    with plain_server(site, Settings(readers_max=0)) as rest:
        name = rest.start("nobody_takes_it")["id"]
        refused = rest.get(f"/{name}/events")
        rest.refused(refused, 429, "RATE_LIMITED")
        assert int(refused.headers["retry-after"]) >= 1


def test_error_method_keeps_its_status(rest: Rest) -> None:
    answer = rest.ask("DELETE", "/x/events")
    rest.refused(answer, 405, "BAD_REQUEST")
    assert answer.headers["allow"] == "GET"


def test_error_upstream_keeps_its_own_code(rest: Rest) -> None:
    inputs = {"pat": "canary-pat-1", "login": {"token": "canary-token-1"}}
    job = rest.ended(rest.start("deploy", **inputs)["id"])
    assert job["error"]["code"] == "GITHUB_DOWN"
    assert job["error"]["message"].startswith("no answer for ")


def test_error_service_unavailable_and_internal_tell_nothing_of_the_inside() -> None:
    away = problem_reply(problem_of(StoreUnavailable("at 10.0.0.1"), "r"), "r")
    assert away.status == 503
    assert b"SERVICE_UNAVAILABLE" in away.body
    assert dict(away.headers) == {"retry-after": "1"}
    broken = problem_reply(problem_of(RuntimeError("canary trace"), "r"), "r")
    assert broken.status == 500
    assert b"INTERNAL_SERVER_ERROR" in broken.body
    for one in (away, broken):
        assert b"canary" not in one.body
        assert b"10.0.0.1" not in one.body
    assert len(CODES) == 11


# --- request ids ------------------------------------------------------------------------------


def test_request_ids_are_uuids_and_fresh(rest: Rest) -> None:
    mine = str(uuid.uuid4())
    assert rest.get("?limit=1", X_Request_Id=mine).body["requestId"] == mine
    for wrong in ("hello", "req_1"):
        found = rest.get("?limit=1", X_Request_Id=wrong)
        assert found.body["requestId"] == found.headers["x-request-id"] != wrong
        uuid.UUID(found.body["requestId"])
    name = rest.start("break")["id"]
    first, second = rest.get(f"/{name}").body, rest.get(f"/{name}").body
    assert first["requestId"] != second["requestId"]
    assert first["job"]["metadata"] == second["job"]["metadata"]


# --- lists ------------------------------------------------------------------------------------


def test_lists_are_newest_first_and_paged(site: Site) -> None:
    with plain_server(site) as rest:
        action = f"listed-{uuid.uuid4().hex}"
        names = [rest.start(action)["id"] for _ in range(5)]
        rest.post(f"/{names[2]}/cancel").ok(200)
        found, path = list[str](), f"?action={action}&limit=2"
        while path:
            page = rest.get(path).ok()
            found += [one["id"] for one in page["jobs"]]
            after = page.get("nextCursor")
            path = f"?action={action}&limit=2&cursor={after}" if after else ""
        assert found == names[::-1]
        pending = rest.get(f"?action={action}&state=pending").ok()["jobs"]
        assert [one["id"] for one in pending] == [names[4], names[3], names[1], names[0]]
        gone = rest.get(f"?action={action}&state=cancelled").ok()["jobs"]
        assert [one["id"] for one in gone] == [names[2]]
        assert rest.get(f"?action={action}&state=running").ok()["jobs"] == []


def test_the_manifest_says_whether_unknown_actions_are_taken(site: Site, rest: Rest) -> None:
    told = rest.get("/api/manifest").ok()
    assert told["unknownActions"] == "refused"
    assert "greet" in told["actions"]
    with plain_server(site) as other:
        assert other.get("/api/manifest").ok()["unknownActions"] == "accepted"
        assert other.start("whatever")["state"] == "pending"


# --- idempotency ------------------------------------------------------------------------------


def test_the_same_request_is_one_job(rest: Rest) -> None:
    key, opener = str(uuid.uuid4()), door()
    body = {"action": "wait", "inputs": {"door": opener, "before": 1}}
    first = rest.post("", body, Idempotency_Key=key).ok(202)["job"]
    turned = {"inputs": {"before": 1, "door": opener}, "action": "wait"}
    rest.in_state(first["id"], "running")
    again = rest.post("", turned, Idempotency_Key=key).ok(202)["job"]
    assert (again["id"], again["state"]) == (first["id"], "running")
    assert again["metadata"]["requestId"] == first["metadata"]["requestId"]
    DOORS[opener].set()
    rest.ended(first["id"])
    over = rest.post("", body, Idempotency_Key=key).ok(202)["job"]
    assert (over["id"], over["state"]) == (first["id"], "success")
    for wrong in ({"action": "break"}, {"action": "wait", "inputs": {"door": "other"}}):
        rest.refused(rest.post("", wrong, Idempotency_Key=key), 409, "CONFLICT")
    assert (
        rest.post("", body, Idempotency_Key=str(uuid.uuid4())).ok(202)["job"]["id"] != (first["id"])
    )


def test_simultaneous_requests_make_one_job(site: Site) -> None:
    key, ids, start = str(uuid.uuid4()), list[str](), threading.Barrier(8)

    def ask() -> None:
        rest = Rest(site.port)
        start.wait()
        body = {"action": "greet", "inputs": {"name": "once"}}
        ids.append(rest.post("", body, Idempotency_Key=key).ok(202)["job"]["id"])
        rest.close()

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(ids) == 8
    assert len(set(ids)) == 1


def test_keys_are_kept_for_24_hours(site: Site, rest: Rest) -> None:
    key = str(uuid.uuid4())
    ids = [
        rest.post("", {"action": "break"}, Idempotency_Key=key).ok(202)["job"]["id"],
        *(_after(site, rest, key, hours) for hours in (23, 2)),
    ]
    assert ids[0] == ids[1] != ids[2]


def _after(site: Site, rest: Rest, key: str, hours: int) -> str:
    """The job of that key when so many hours have passed for it."""
    is_file = site.url.startswith("sqlite")
    table = "detent_idempotency" if is_file else "detent.idempotency"
    past = f"UPDATE {table} SET expires_at = expires_at - {hours * 3_600_000_000}"  # noqa: S608
    kept = f"{past} WHERE key = '{hashlib.sha256(f'rest {key}'.encode()).hexdigest()}'"
    if is_file:
        with closing(sqlite3.connect(site.folder / "detent.db")) as file, file:
            file.execute(kept)
    else:
        with psycopg.connect(site.url) as connection:
            connection.execute(kept.encode())
    found: str = rest.post("", {"action": "break"}, Idempotency_Key=key).ok(202)["job"]["id"]
    return found


# --- tenants ----------------------------------------------------------------------------------


@pytest.fixture
def who(tmp_path: Path) -> Iterator[dict[str, Rest]]:
    """A server with keys: of two tenants, one that may only read, one for another queue."""
    url = f"sqlite:///{tmp_path}/keys.db"
    keys: dict[str, str] = {}

    async def make() -> None:
        async with stores.open(url) as store, Engine(store) as engine:
            both = (Scope.PRODUCE, Scope.READ)
            create = engine.access.create
            keys["acme"] = (await create(both, name="ann", tenants=("acme",)))[1]
            keys["umbrella"] = (await create(both, tenants=("umbrella",)))[1]
            keys["reader"] = (await create((Scope.READ,), tenants=("acme",)))[1]
            keys["mail"] = (await create(both, tenants=("acme",), queues=("mail",)))[1]
            keys["both"] = (await create(both, tenants=("acme", "umbrella")))[1]

    asyncio.run(make())
    with running(url, Settings()) as found:
        callers = {name: Rest(found.port, Authorization=f"Bearer {k}") for name, k in keys.items()}
        callers["nobody"] = Rest(found.port)
        callers["liar"] = Rest(found.port, Authorization="Bearer dtk_1_2")
        callers["path"] = Rest(found.port, key=keys["reader"])
        yield callers
        for one in callers.values():
            one.close()


def test_tenants_and_users_come_from_the_key(who: dict[str, Rest]) -> None:
    acme, umbrella = who["acme"], who["umbrella"]
    body = {"action": "a", "userId": "mallory", "orgId": "umbrella", "metadata": {"userId": "m"}}
    job = acme.post("", body).ok(202)["job"]
    assert (job["metadata"]["userId"], job["metadata"]["orgId"]) == ("ann", "acme")
    for path in ("", "/events", "/logs"):
        umbrella.refused(umbrella.get(f"/{job['id']}{path}"), 404, "NOT_FOUND")
    for verb in ("cancel", "retry"):
        umbrella.refused(umbrella.post(f"/{job['id']}/{verb}"), 404, "NOT_FOUND")
    assert umbrella.get().ok()["jobs"] == []
    assert [one["id"] for one in acme.get().ok()["jobs"]] == [job["id"]]
    key = str(uuid.uuid4())
    first = acme.post("", {"action": "a"}, Idempotency_Key=key).ok(202)["job"]["id"]
    other = umbrella.post("", {"action": "b"}, Idempotency_Key=key).ok(202)["job"]["id"]
    assert first != other


def test_error_unauthorized_and_forbidden(who: dict[str, Rest]) -> None:
    nobody, liar, reader = who["nobody"], who["liar"], who["reader"]
    answer = nobody.get()
    nobody.refused(answer, 401, "UNAUTHORIZED")
    assert answer.headers["www-authenticate"] == "Bearer"
    liar.refused(liar.post("", {"action": "a"}), 401, "UNAUTHORIZED")
    reader.refused(reader.post("", {"action": "a"}), 403, "FORBIDDEN")
    assert reader.get().ok()["jobs"] == []
    for name in ("mail", "both"):
        who[name].refused(who[name].post("", {"action": "a"}), 403, "FORBIDDEN")
    # A browser that follows a stream can set nothing but an address.
    assert nobody.get(f"/k/{who['path'].key}/api/jobs").ok()["jobs"] == []


# --- secrets ----------------------------------------------------------------------------------


CANARIES = (b"canary-pat-77", b"canary-token-77")


@pytest.mark.parametrize("action", ["deploy", "redeploy"])
def test_canaries_are_nowhere_in_clear_text(
    site: Site, rest: Rest, caplog: pytest.LogCaptureFixture, action: str
) -> None:
    caplog.set_level(0)
    opener, key = door(), str(uuid.uuid4())
    inputs = {"pat": "canary-pat-77", "login": {"token": "canary-token-77"}, "door": opener}
    body = {"action": action, "inputs": inputs}
    told = [answer := rest.post("", body, Idempotency_Key=key)]
    job = answer.ok(202)["job"]
    assert job["metadata"]["inputs"]["pat"] == "[secret]"
    assert job["metadata"]["inputs"]["login"] == {"token": "[secret]"}
    assert job["metadata"]["inputs"]["door"] == opener
    # The same secrets are the same request, and other ones are not.
    assert rest.post("", body, Idempotency_Key=key).ok(202)["job"]["id"] == job["id"]
    other = {**body, "inputs": {**inputs, "pat": "canary-pat-78"}}
    rest.refused(rest.post("", other, Idempotency_Key=key), 409, "CONFLICT")
    DOORS[opener].set()
    assert rest.ended(job["id"])["logs"] == ["the token is [secret]"]
    again = rest.post(f"/{job['id']}/retry")
    assert rest.ended(again.ok(202)["job"]["id"])["error"]["code"] == "GITHUB_DOWN"
    misfit = {**body, "inputs": {**inputs, "login": "canary-token-77"}}
    told += [again, rest.post("", misfit), rest.get(f"/{job['id']}"), rest.get()]
    told += [rest.get(f"/{job['id']}/logs"), rest.get("/api/manifest")]
    told += [rest.get("/ojs/v1/events"), rest.get(f"/ojs/v1/jobs/{job['id']}")]
    told += [rest.get("/metrics"), rest.get("/ojs/v1/admin/jobs")]
    said = b"".join(one.text for one in told) + repr(follow(site.port, job["id"])).encode()
    said += caplog.text.encode()
    _need_clean(site, said, job["id"])
    # Whoever guesses the inputs cannot try the guess out: the digest needs the key.
    guess = json.dumps([action, {"args": [], "kwargs": inputs}], sort_keys=True)
    assert hashlib.sha256(guess.encode()).hexdigest().encode() not in _everything(site)


def test_canaries_are_locked_by_servers_that_know_no_function(site: Site, rest: Rest) -> None:
    """What `redact=` would change nobody else can know: they lock all inputs."""
    opener = door()
    DOORS[opener].set()
    inputs = {"pat": "canary-pat-77", "login": {"token": "canary-token-77"}, "door": opener}
    with plain_server(site) as other:
        body = {"action": "redeploy", "inputs": inputs}
        told = [answer := other.post("", body, Idempotency_Key=str(uuid.uuid4()))]
        job = answer.ok(202)["job"]
        assert job["metadata"]["inputs"] == "[secret]"
        # By another way in they have no names, so that nothing could be told apart.
        pushed = {"type": "redeploy", "args": ["canary-pat-77", {"token": "canary-token-77"}]}
        told.append(other.post("/ojs/v1/jobs", pushed))
        assert told[-1].status == 400
    assert rest.ended(job["id"])["error"]["code"] == "GITHUB_DOWN"
    told += [rest.get(f"/{job['id']}"), rest.get(f"/ojs/v1/jobs/{job['id']}")]
    _need_clean(site, b"".join(one.text for one in told), job["id"])


def _need_clean(site: Site, said: bytes, name: str) -> None:
    kept = _everything(site)
    assert name.encode() in kept
    for canary in CANARIES:
        assert canary not in said
        assert canary not in kept


def _everything(site: Site) -> bytes:
    """Every byte that the store has."""
    if site.url.startswith("sqlite"):
        return b"".join(one.read_bytes() for one in site.folder.iterdir() if one.is_file())
    with psycopg.connect(site.url) as connection:
        names = connection.execute(
            "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables"
            " WHERE schemaname = 'detent'"
        ).fetchall()
        rows = [
            connection.execute(f"SELECT t::text FROM {name} t").fetchall()  # noqa: S608 - our own tables
            for (name,) in names
        ]
    return b"\n".join(row[0].encode() for some in rows for row in some)
