"""Values that nobody foresaw: each is refused with its reason, and nothing breaks inside."""

from __future__ import annotations

from typing import Any

import pytest

from tests.surfaces.rest import Rest
from tests.surfaces.server import Client


@pytest.mark.parametrize(
    "options",
    [
        {"retry": {"backoff_coefficient": 10**400}},
        {"retry": {"non_retryable_errors": ["\0"]}},
        {"unique": {"on_conflict": []}},
        {"unique": {"on_conflict": {}}},
        {"unique": {"keys": ["type", "meta"], "meta_keys": 5}},
        {"unique": {"meta_keys": "name"}},
        {"tags": ["a\0b"]},
    ],
)
def test_options_that_cannot_be(client: Client, options: dict[str, Any]) -> None:
    for path, body in (
        ("/jobs", {"type": "x", "args": [], "options": options}),
        ("/jobs/batch", {"jobs": [{"type": "x", "args": [], "options": options}]}),
        ("/workflows", {"type": "group", "jobs": [{"type": "x", "args": [], "options": options}]}),
    ):
        assert client.post(path, body).status in (400, 422), path
    assert client.fetch() == []


@pytest.mark.parametrize("override", ["x", 5, [], {"meta": 5}, {"meta": ["a"]}])
def test_overrides_of_a_dead_letter_that_cannot_be(client: Client, override: Any) -> None:
    job = client.push("x")
    client.fetch()
    client.nack(job, "DEAD_LETTER")
    path = f"/dead-letter/{job['id']}"
    client.post(f"{path}/retry", {"override": override}).error(400, "invalid_request")
    client.get(path).ok()
    empty = {"override": {"queue": None, "meta": None, "retry": None}}
    assert client.post(f"{path}/retry", empty).ok()["job"]["queue"] == "default"


def test_names_with_nul(client: Client) -> None:
    client.delete("/rate-limits/%00").error(400, "invalid_request")
    rest = Rest(client.port)
    rest.refused(rest.post("", b'{"action":"a\\u0000b"}'), 400, "BAD_REQUEST")
    rest.close()
