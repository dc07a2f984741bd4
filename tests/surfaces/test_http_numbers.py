"""Numbers that are none: NaN is no JSON, `1e999` would be read as infinite; nobody takes them."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest

from detent import Detent
from detent.engine.asks import Ask
from detent.engine.limits import need_job, need_numbers, need_payload, need_result
from detent.errors import BadArguments, JobFailed, NumberTooLarge, PayloadTooDeep
from tests.surfaces.jobnik import Jobnik, fresh, problem
from tests.surfaces.rest import Rest
from tests.surfaces.server import Client

ENDLESS = ("1e999", "-1E+999", "1e309", "9" * 400 + ".0", "1" * 250 + "e99", "9" * 5_000)
FINE = (
    "1e308",
    "-1.7e308",
    "1e-999",
    '"1e999"',
    "1" * 300,
    '"' + "1" * 5_000 + '"',
    "1e0000000001",
)


@pytest.mark.parametrize(
    "number", [*ENDLESS, "NaN", "Infinity", "-Infinity"], ids=lambda text: text[:8]
)
def test_no_surface_takes_a_number_that_is_none(
    client: Client, jobnik: Jobnik, number: str
) -> None:
    """In arguments, in what goes with them, and in results; what was asked for is not changed."""
    pushed = client.post("/jobs", b'{"type":"n","args":[{"a":[%s]}]}' % number.encode())
    assert pushed.status == 400, pushed.text
    meta = client.post("/jobs", b'{"type":"n","args":[],"meta":{"a":%s}}' % number.encode())
    assert meta.status == 400, meta.text
    assert client.fetch() == []
    job = client.push("n")
    client.fetch()
    body = b'{"job_id":"%s","result":%s}' % (job["id"].encode(), number.encode())
    refused = client.post("/workers/ack", body)
    assert refused.status == 400, refused.text
    assert client.job(job["id"])["state"] == "active"
    rest = Rest(client.port)
    asked = rest.post("", b'{"action":"n","inputs":{"a":%s}}' % number.encode())
    rest.refused(asked, 400, "BAD_REQUEST")
    engines = rest.post("/engine/jobs", b'{"jobType":"n","payload":{"a":%s}}' % number.encode())
    assert (engines.status, engines.body["error"]["code"]) == (400, "BAD_MESSAGE")
    rest.close()
    work = b'{"name":"%s","data":{"a":%s},"userMetadata":{}}' % (fresh().encode(), number.encode())
    problem(jobnik.ask("POST", "/jobs", work), 400, "VALIDATION_ERROR")


def test_large_numbers_that_there_are_are_taken(client: Client) -> None:
    for number in FINE:
        body = b'{"type":"n","args":[%s]}' % number.encode()
        job = client.post("/jobs", body).ok(201)["job"]
        assert b'"args":[%s]' % number.encode() in client.get(f"/jobs/{job['id']}").text


def test_the_limit_itself() -> None:
    for number in ENDLESS:
        with pytest.raises(NumberTooLarge, match="infinite") as caught:
            need_job(Ask(type="x", payload=f"[{number}]"))
        assert caught.value.code == "number_too_large"
        with pytest.raises(NumberTooLarge):
            need_result("result", number)
    for text in (*FINE, "{1e999", "[" * 10_000 + "1e999"):
        need_numbers("text", text)


@pytest.mark.parametrize("value", [math.nan, math.inf, {"a": [1, -math.inf]}, (None, math.nan)])
def test_a_handler_that_returns_none_of_them_fails_with_a_code(value: Any) -> None:
    """It would be written as null, and somebody would calculate with that."""
    with Detent("memory:") as app:

        @app.job(retry=3)
        def measure() -> Any:
            return value

        @app.job
        def take(value: Any) -> None: ...

        handle = measure.enqueue()
        app.drain()
        with pytest.raises(JobFailed) as caught:
            handle.result(0)
        assert caught.value.fields["error_code"] == "bad_result"
        assert "no number of JSON" in str(caught.value)
        # What it returns it would return again.
        assert handle.status().attempt == 1
        with pytest.raises(BadArguments, match="no number of JSON"):
            take.enqueue(value)
        take.enqueue([None, 1.5])


def test_depth_is_that_of_brackets_outside_of_texts() -> None:
    """However they are written: with brackets, quotes and backslashes inside of texts."""
    for text in ("{[", "]}", '\\"[', "\\\\", '\\\\\\"{'):
        wrapped = f'{{"{text}":["{text}",' + "[" * 62 + f'"{text}"' + "]" * 62 + ",{}]}"
        need_payload(f"{wrapped}")
        with pytest.raises(PayloadTooDeep) as caught:
            need_payload(f"[{wrapped}]")
        assert caught.value.fields["value"] == 65


def test_a_large_body_holds_nobody_up() -> None:
    """One second is a hundred times what it takes; by the old way some took ten."""
    began = time.process_time()
    need_numbers("body", b"[" + b",".join([b"1" * 199] * 50_000) + b"]")
    need_payload("[" + ",".join(["[" * 60 + "]" * 60] * 8_000) + "]")
    assert time.process_time() - began < 1
