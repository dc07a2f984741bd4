"""Schemas: kept by type and version or by name, and what they make of arguments."""

from __future__ import annotations

from urllib.parse import quote

from tests.surfaces.server import Client, eventually

OBJECT = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 1}, "s": {"type": "string", "maxLength": 3}},
    "required": ["n"],
    "additionalProperties": False,
}


def test_versions_of_a_type(client: Client) -> None:
    path = "/admin/schemas/mail.send"
    client.get(path).error(404, "not_found")
    client.put(f"{path}/1", {}).error(400, "invalid_request")
    client.put(f"{path}/x", {"schema": {}}).error(400, "invalid_request")
    assert client.put(f"{path}/1", {"schema": {}}).ok(201) == {"type": "mail.send", "version": 1}
    client.put(f"{path}/10", {"schema": OBJECT}).ok(201)
    client.put(f"{path}/10", {"schema": OBJECT}).error(409, "conflict")
    assert client.get(path).ok()["version"] == 10
    assert client.get(f"{path}/1").ok()["schema"] == {}
    assert client.get(f"{path}/versions").ok()["versions"] == [1, 10]
    bad = {"type": "mail.send", "args": [{"n": 0}]}
    assert (
        "$.n: the value is less than"
        in client.post("/jobs", bad).error(400, "schema_validation")["message"]
    )
    client.post("/jobs", {"type": "mail.send", "args": []}).error(400, "schema_validation")
    client.post("/jobs/batch", {"jobs": [bad]}).error(400, "schema_validation")
    client.push("mail.send", {"n": 1})
    client.push("mail.other", {"n": 0})
    client.delete(f"{path}/10").ok()
    client.delete(f"{path}/10").error(404, "not_found")
    client.push("mail.send", {"n": 0})


def test_schemas_by_name(client: Client) -> None:
    uri = "urn:schemas/mail:1"
    path = f"/schemas/{quote(uri, safe='')}"
    client.post("/schemas", {"schema": {}}).error(400, "invalid_request")
    sent = {"uri": uri, "type": "a", "version": "1.0", "schema": {"type": "array", "maxItems": 1}}
    made = client.post("/schemas", sent).ok(201)["schema"]
    assert (made["uri"], made["version"]) == (uri, "1.0")
    client.post("/schemas", sent).error(409, "conflict")
    assert client.get(path).ok()["schema"] == made
    assert [one["uri"] for one in client.get("/schemas").ok()["schemas"]] == [uri]
    body = {"type": "a", "args": [1, 2], "schema": uri}
    client.post("/jobs", body).error(400, "schema_validation")
    client.post("/jobs", {**body, "args": [1]}).ok(201)
    client.post("/jobs", {**body, "schema": "urn:unknown"}).ok(201)
    assert client.delete(path).ok() == {"deleted": True, "uri": uri}
    client.get(path).error(404, "not_found")
    client.delete(path).error(404, "not_found")


def test_webhooks(client: Client) -> None:
    base, sent = (
        "/webhooks/subscriptions",
        {"url": "https://hooks.example/x", "secret": "s3cret" * 3},
    )
    client.post(base, sent).error(400, "invalid_request")
    client.post(base, {**sent, "events": ["job.exploded"]}).error(400, "invalid_request")
    for bad in ("s3cret", f"{'s3cret' * 3}\r\n"):
        refused = {**sent, "events": ["*"], "secret": bad}
        client.post(base, refused).error(400, "invalid_request")
    for wrong in ({"colour": ["q"]}, {"queues": [""]}, {"job_types": "a"}, {"queues": ["q"] * 101}):
        client.post(base, {**sent, "events": ["*"], "filter": wrong}).error(400, "invalid_request")
    made = client.post(base, {**sent, "events": ["job.completed", "job.*"]}).ok(201)
    hook = made["subscription"]
    assert (hook["secret"], hook["active"]) == ("s3cret" * 3, True)
    assert hook["events"] == ["job.completed", "job.*"]
    path = f"{base}/{hook['id']}"
    assert "secret" not in client.get(path).ok()["subscription"]
    assert client.ask("PATCH", path, {"active": False}).ok()["active"] is False
    assert client.ask("PATCH", path, {"active": True, "events": ["job.discarded"]}).ok()["active"]
    assert client.post(f"{path}/rotate-secret").ok()["secret"].startswith("whsec_")
    assert [one["id"] for one in client.get(base).ok()["subscriptions"]] == [hook["id"]]
    for deaf in ({"queues": ["other"]}, {"queues": ["default"], "job_types": ["b"]}):
        client.post(base, {**sent, "events": ["job.discarded"], "filter": deaf}).ok(201)
    heard = {"queues": ["default", "x"], "job_types": ["a"]}
    assert client.ask("PATCH", path, {"filter": heard}).ok()["filter"] == heard
    client.push("a", retry={"max_attempts": 1})
    client.nack(client.fetch()[0])
    [sent_one] = eventually(lambda: client.get("/webhooks/deliveries").ok()["deliveries"])
    assert (sent_one["event_type"], sent_one["subscription_id"]) == ("job.discarded", hook["id"])
    client.post(f"/webhooks/deliveries/{sent_one['id']}/retry").ok()
    client.post("/webhooks/deliveries/none/retry").error(404, "not_found")
    tried = client.post(f"{path}/test").ok(202)["delivery"]
    assert tried["event_type"] == "webhook.test"
    found = client.get(f"/webhooks/deliveries/{tried['id']}").ok()["delivery"]
    assert found["subscription_id"] == hook["id"]
    client.get("/webhooks/deliveries/none").error(404, "not_found")
    assert client.delete(path).ok()["deleted"] is True
    client.get(path).error(404, "not_found")


def test_limits_of_keys(client: Client) -> None:
    client.get("/rate-limits/k").error(404, "not_found")
    client.push(
        "a", rate_limit={"key": "k", "concurrency": 2, "rate": {"limit": 5, "period": "PT1M"}}
    )
    client.fetch()
    found = client.get("/rate-limits/k").ok()
    assert found["concurrency"] == {"limit": 2, "active": 1, "available": 1}
    assert found["rate"] == {"limit": 5, "period": "PT1M"}
    assert client.put("/rate-limits/k", {"throttle": {"limit": 2, "period": "second"}}).ok() == {
        "key": "k",
        "throttle": {"limit": 1, "period": "PT0.5S"},
    }
    assert [one["key"] for one in client.get("/rate-limits").ok()["items"]] == ["k"]
    client.put("/rate-limits/k", {}).error(400, "invalid_request")
    client.delete("/rate-limits/k").ok()
    client.get("/rate-limits/k").error(404, "not_found")
