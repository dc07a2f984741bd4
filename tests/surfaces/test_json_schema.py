"""JSON Schemas of arguments: versions, hostile schemas, and a server that goes on meanwhile."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from detent.engine.engine import Engine
from detent.stores.api import Record
from detent.surfaces.http.json_schema import (
    MAX_SCHEMA_BYTES,
    MAX_SCHEMA_DEPTH,
    BadSchema,
    SchemaChecker,
    declare_schema,
    find_faults,
)
from detent.surfaces.ojs.registry import BY_TYPE
from tests.surfaces.engines import Yard
from tests.surfaces.server import Client, on, running

DRAFT_7 = "http://json-schema.org/draft-07/schema#"
DRAFT_2020 = "https://json-schema.org/draft/2020-12/schema"
KEYWORDS = ("type", "pattern", "required", "minimum", "items", "enum", "properties", "anyOf")


def nested(levels: int, schema: Any = True) -> Any:
    for _ in range(levels):
        schema = {"not": schema}
    return schema


def doubling(levels: int) -> Any:
    """Each definition is twice in the one before: there are 2 ** levels ways to the last one."""
    inner = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(levels)}
    return {"$defs": {**inner, f"d{levels}": {}}, "$ref": "#/$defs/d0"}


def unevaluated(levels: int) -> Any:
    """Each level looks twice at the one below."""
    schema: Any = {"properties": {"a": {"type": "string"}}}
    for _ in range(levels):
        schema = {"allOf": [schema], "unevaluatedProperties": False}
    return {"items": schema}


@pytest.mark.parametrize(
    ("schema", "value", "wrong"),
    [
        (True, 1, None),
        (False, 1, "$"),
        ({"type": "integer"}, 2.0, None),
        ({"type": "integer"}, True, "$"),
        ({"enum": [1, "a"]}, True, "$"),
        ({"items": {"type": "string"}}, ["a", 1], "$[1]"),
        ({"prefixItems": [{"type": "string"}], "items": False}, ["a"], None),
        ({"prefixItems": [{"type": "string"}], "items": False}, ["a", 1], "$[1]"),
        ({"properties": {"a": {"items": {"required": ["b"]}}}}, {"a": [{}]}, "$.a[0].b"),
        ({"$defs": {"a/b": {"type": "string"}}, "$ref": "#/$defs/a~1b"}, 1, "$"),
        ({"type": "array", "items": {"$ref": "#"}}, [[[]]], None),
        ({"type": "array", "items": {"$ref": "#"}}, [[[1]]], "$[0][0][0]"),
        ({"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}, 1, None),
        ({"properties": {name: {"type": "string"} for name in KEYWORDS}}, {"type": "a"}, None),
        ({"properties": {name: {"type": "string"} for name in KEYWORDS}}, {"items": 1}, "$.items"),
        ({"required": list(KEYWORDS)}, dict.fromkeys(KEYWORDS, 1), None),
        # Arrays of items are tuples, unless `$schema` says that they are not.
        ({"items": [{"type": "string"}]}, [1], "$[0]"),
        ({"items": [{"type": "string"}], "additionalItems": False}, ["a", 1], "$"),
        ({"$schema": DRAFT_7, "items": [{"type": "string"}]}, ["a", 1], None),
        # In draft 7 what stands beside a reference is ignored; since then it counts.
        ({"$schema": DRAFT_7, "$ref": "#/x", "x": True, "type": "string"}, 1, None),
        ({"$ref": "#/x", "x": True, "type": "string"}, 1, "$"),
        ({"pattern": "^(a+)+$"}, "a" * 100_000 + "!", "$"),
        ({"pattern": "^.{1,255}$"}, "a" * 255, None),
        ({}, 10**400, None),
    ],
)
def test_what_fits_a_schema(schema: Any, value: Any, wrong: str | None) -> None:
    faults = find_faults(declare_schema(schema), json.dumps(value).encode(), 1)
    assert [fault.path for fault in faults] == ([] if wrong is None else [wrong])


def test_messages_show_no_values() -> None:
    schema = declare_schema({"items": {"type": "integer", "const": 1}, "maxItems": 1})
    faults = find_faults(schema, json.dumps(["s3cret", "s3cret"]).encode(), 20)
    assert len(faults) == 5
    assert "s3cret" not in str(faults)


@pytest.mark.parametrize(
    ("schema", "path", "why"),
    [
        ({"type": [{}]}, "$.type", "not valid"),
        ({"properties": {"a": {"minimum": "1"}}}, "$.properties.a.minimum", "number"),
        ({"anyOf": [{}, {"required": "a"}]}, "$.anyOf[1].required", "array"),
        ({"properties": []}, "$.properties", "object"),
        ({"minLength": "1"}, "$.minLength", "integer"),
        ({"items": [1]}, "$.items", "not valid"),
        ({"$schema": DRAFT_2020, "items": [{}]}, "$.items", "object"),
        ({"pattern": "("}, "$.pattern", "regex"),
        ({"pattern": "(a)\\1"}, "$.pattern", "back-references"),
        ({"pattern": "^(?=a)b"}, "$.pattern", "look-around"),
        ({"pattern": "((a{1,100}){1,100}){1,100}"}, "$.pattern", "repetition"),
        ({"$ref": "#/$defs/none"}, "$", "does not exist"),
        ({"$schema": "urn:none"}, "$", "Nothing is fetched"),
        ({"$ref": "urn:none"}, "$", "Nothing is fetched"),
        ({"enum": ["x" * MAX_SCHEMA_BYTES]}, "$", "bytes"),
        ({"enum": ["x" * 1_000_000]}, "$", "bytes"),
        (nested(MAX_SCHEMA_DEPTH + 1), "$", "$defs"),
        (nested(400), "$", "$defs"),
        ([], "$", "object"),
        (1, "$", "object"),
        (None, "$", "object"),
    ],
)
def test_wrong_schemas_are_refused_with_their_path(
    client: Client, schema: Any, path: str, why: str
) -> None:
    for answer in (
        client.put("/admin/schemas/wrong/1", {"schema": schema}),
        client.post("/schemas", {"uri": "urn:wrong", "schema": schema}),
    ):
        error = answer.error(422, "invalid_schema")
        assert error["details"] == {"field": "schema", "path": path}
        assert why in error["message"]
    client.get("/admin/schemas/wrong").error(404, "not_found")
    with pytest.raises(BadSchema, match=why.replace("$", "[$]")) as caught:
        declare_schema(schema)
    assert caught.value.path == path


def test_a_schema_may_be_as_deep_as_is_said(client: Client) -> None:
    schema = nested(MAX_SCHEMA_DEPTH)
    client.put("/admin/schemas/deep/1", {"schema": schema}).ok(201)
    client.push("deep", 1)
    body = b'{"schema":' + b'{"not":' * 50_000 + b"1" + b"}" * 50_001
    client.ask("PUT", "/admin/schemas/deep/2", body).error(400, "invalid_payload")


# --- what schemas may not do ----------------------------------------------------------------------


@pytest.fixture
def fetched() -> Iterator[tuple[str, list[str]]]:
    """The address of a server that serves a schema, and what was asked of it."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"type": "string"}')

        def log_message(self, *_: Any) -> None:
            """It says nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()
        thread.join()


def test_nothing_is_fetched(client: Client, fetched: tuple[str, list[str]], tmp_path: Path) -> None:
    address, asked = fetched
    file = tmp_path / "schema.json"
    file.write_text('{"type": "string"}')
    # They are there, for whoever fetches.
    jsonschema_rs.validator_for({"$ref": f"{address}/there"})
    jsonschema_rs.validator_for({"$ref": file.as_uri()})
    assert asked == ["/there"]
    for schema in (
        {"$ref": f"{address}/ref"},
        {"$ref": file.as_uri()},
        {"properties": {"a": {"items": [{"$ref": file.as_uri()}]}}},
        {"properties": {"a": {"$ref": f"{address}/inner"}}},
        {"$id": f"{address}/base/", "$ref": "relative"},
        {"$id": tmp_path.as_uri() + "/", "$ref": "schema.json"},
        {"$dynamicRef": f"{address}/dynamic"},
        {"$schema": f"{address}/meta"},
        {"$schema": DRAFT_7, "$ref": f"{address}/old"},
        {"items": [{"$ref": f"{address}/tuple"}]},
    ):
        error = client.put("/admin/schemas/far/1", {"schema": schema}).error(422, "invalid_schema")
        assert "Nothing is fetched" in error["message"]
    for version, other in enumerate(
        (
            {"$id": f"{address}/name", "type": "array"},
            {"properties": {"a": {"$id": f"{address}/i", "$schema": f"{address}/m"}}},
            {"$schema": "https://json-schema.org/draft/2019-09/schema", "$recursiveRef": address},
        )
    ):
        client.put(f"/admin/schemas/near/{version}", {"schema": other}).ok(201)
        client.push("near", 1)
    assert asked == ["/there"]


def test_a_schema_from_before_that_is_wrong_is_no_fault_of_the_server(tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'store.db'}"
    data = json.dumps({"schema": {"type": [{}]}, "created_at": 0, "type": "a", "version": 1})

    async def put(engine: Engine) -> None:
        await engine.put(Record(BY_TYPE, "a@000000001", 1, data))
        await engine.put(Record("engine-type", "A", 1, '{"type": [{}]}'))

    on(url, put)
    with running(url) as server:
        client = Client(server.port)
        error = client.post("/jobs", {"type": "a", "args": []}).error(422, "invalid_schema")
        assert error["details"]["path"] == "$.type"
        client.close()
        error = (
            Yard(url, server.port).ask("POST", "/engine/jobs", {"jobType": "A"}).ok(422)["error"]
        )
        assert (error["code"], error["path"]) == ("BAD_SCHEMA", "$.type")


# --- what takes long ------------------------------------------------------------------------------


def test_a_large_enum_is_checked_value_by_value(client: Client) -> None:
    schema = {"items": {"enum": list(range(10_000))}}
    client.put("/admin/schemas/large/1", {"schema": schema}).ok(201)
    client.push("large", 1)
    args = [9_999] * 20_000
    client.push("large", *args)
    bad = {"type": "large", "args": [*args, 10_000]}
    error = client.post("/jobs", bad).error(400, "schema_validation")
    assert "$[20000]: the value is not one of 0, 1 or" in error["message"]
    batch = {"jobs": [{"type": "large", "args": [n]} for n in range(200)]}
    client.post("/jobs/batch", batch).ok(201)


async def test_checks_in_the_process_are_those_on_the_loop() -> None:
    checker = SchemaChecker()
    try:
        schema = declare_schema({"items": {"type": "string", "pattern": "^(a+)+$"}})
        await checker.need_schema(schema)
        values = json.dumps(["a", "b", 1], indent=1).encode()
        assert await checker.find_faults(schema, values, 5) == find_faults(schema, values, 5)
        many = json.dumps(["b"] * 200_000).encode()
        [fault] = await checker.find_faults(schema, many, 5)
        assert fault.path == "$[0]"
    finally:
        checker.close()


@pytest.mark.slow
async def test_a_check_that_never_ends_is_stopped_and_the_next_one_is_made() -> None:
    checker, plain = SchemaChecker(), declare_schema({"$ref": "#/x", "x": {"type": "string"}})
    try:
        with pytest.raises(BadSchema, match="processor time"):
            await checker.need_schema(declare_schema(doubling(60)))
        assert await checker.find_faults(plain, b'"a"') == []
        with pytest.raises(BadSchema, match="processor time"):
            await checker.find_faults(declare_schema(unevaluated(29)), b'[{"a":"x"}]')
        assert [fault.path for fault in await checker.find_faults(plain, b"1")] == ["$"]
    finally:
        checker.close()


@pytest.mark.slow
def test_the_server_answers_others_while_it_checks(client: Client) -> None:
    client.put("/admin/schemas/long/1", {"schema": unevaluated(29)}).ok(201)
    answers: list[Any] = []

    def push() -> None:
        other = Client(client.port)
        answers.append(other.post("/jobs", {"type": "long", "args": [{"a": "x"}]}))
        other.close()

    thread = threading.Thread(target=push)
    thread.start()
    others = 0
    while thread.is_alive():
        client.push("short", 1)
        others += 1
    thread.join()
    [answer] = answers
    assert "processor time" in answer.error(422, "invalid_schema")["message"]
    assert others > 10, "it takes some seconds, in which a server that hangs answers one"


# --- without the package --------------------------------------------------------------------------

PROGRAM = """
import sys
sys.modules["jsonschema_rs"] = None
from detent import Detent
app = Detent("sqlite:store.db")
app.engine_type("BUILD", {"type": [{}]})

@app.job
def work(n: int) -> None: ...

print(work.enqueue(1).status().state)
app.close()
"""


def test_a_program_without_the_package_declares_and_enqueues(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(  # noqa: S603 (our own program)
        command, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "available\n"), done.stderr


def test_nobody_loads_the_package_who_checks_nothing(tmp_path: Path) -> None:
    code = "import sys, detent.app.serving; print('jsonschema_rs' in sys.modules)"
    command = [sys.executable, "-c", code]
    done = subprocess.run(  # noqa: S603 (our own program)
        command, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout == "False\n", done.stderr
