"""The document says what is so: a program that knows nothing else asks all that it allows."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.surfaces.rest import Rest
from tests.surfaces.server import Client, running

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
)
LEFT_OUT = "events|stream|admin/reset|workers/.*/health"
"""What does not end, what ends everything, and what answers 503 for a worker that drains."""


@pytest.mark.slow
@pytest.mark.parametrize("base", ["/ojs/v1", "/api"])
def test_the_document_is_true(tmp_path: Path, base: str) -> None:
    with running(f"sqlite:///{tmp_path}/detent.db") as server:
        address = f"http://127.0.0.1:{server.port}{base}/openapi.json"
        options = ("--max-examples", "3", "--phases", "fuzzing", "--seed", "1")
        choice = ("--checks", ",".join(CHECKS), "--exclude-path-regex", LEFT_OUT)
        command = [sys.executable, "-m", "schemathesis.cli", "run", address, *options, *choice]
        done = subprocess.run(  # noqa: S603
            command, capture_output=True, text=True, cwd=tmp_path, timeout=300, check=False
        )
        assert done.returncode == 0, done.stdout


def test_every_route_for_front_ends_is_in_their_document(tmp_path: Path) -> None:
    with running(f"sqlite:///{tmp_path}/detent.db") as server:
        client = Rest(server.port)
        told = client.get("/api/openapi.json").ok()
        client.close()
        routes = {route.path for route in server.app.routes if route.path.startswith("/api/")}
        assert routes == set(told["paths"])
        start = told["paths"]["/api/jobs"]["post"]
        assert [one["name"] for one in start["parameters"]] == ["Idempotency-Key"]
        assert start["requestBody"]["content"].keys() == {"application/json"}
        assert set(start["responses"]) == {"202", "4XX", "5XX"}
        shapes = told["components"]["schemas"]
        named = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(told)))
        assert named | {"Error"} == set(shapes)


def test_every_route_is_in_it(tmp_path: Path) -> None:
    with running(f"sqlite:///{tmp_path}/detent.db") as server:
        client = Client(server.port)
        told = client.get("/openapi.json").ok()
        client.close()
        names = [one["operationId"] for path in told["paths"].values() for one in path.values()]
        assert len(names) == len(set(names))
        # Jobnik's clients, web front ends and engines have documents of their own.
        others = ("/v1/", "/api/", "/docs/", "/liveness", "/service-metrics", "/metrics")
        pushed = ("/engine/", "/socket.io/")
        paths = {route.path for route in server.app.routes} - {"/"}
        routes = {path for path in paths if not path.startswith((*others, *pushed))}
        assert routes == set(told["paths"])
        assert told["paths"]["/ojs/v1/jobs"]["post"]["x-detent-scope"] == "produce"
        shapes = told["components"]["schemas"]
        assert {"Error", "Job", "JobRequest"} <= set(shapes)
