"""A uvicorn with other insides than we know: it is told, and all is answered in the same words."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from uvicorn.protocols.http import httptools_impl as insides

from detent.surfaces.http.connection import Protocol
from detent.surfaces.http.exchange import Settings
from detent.surfaces.http.uvicorn_fit import connections, need_fit
from tests.surfaces.server import running
from tests.surfaces.test_http_prompt import parting, replies

_BODIES = (*[b'{"type":"mail.send","args":[1]}'] * 3, b"{}", b"[")


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    """What was found out about uvicorn is found out again, by others too."""
    connections.cache_clear()
    yield
    connections.cache_clear()


def test_the_uvicorn_that_is_here_fits() -> None:
    need_fit(Protocol)
    assert connections() is Protocol


def test_what_has_another_name_is_noticed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delitem(sys.modules, "detent.surfaces.http.connection")
    monkeypatch.delattr(insides, "STATUS_LINE")
    assert connections() == "auto"
    assert "is not as we know it (ImportError" in caplog.text


@pytest.mark.parametrize("name", ["_start_asgi_task", "on_response_complete", "on_body"])
def test_what_does_something_else_is_noticed(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def other(*_: object) -> None:
        """As if it were called by nobody any more."""

    monkeypatch.setattr("detent.surfaces.http.uvicorn_fit._PATIENCE_S", 0.2)
    monkeypatch.setattr(insides.HttpToolsProtocol, name, other)
    assert connections() == "auto"


def test_the_own_connections_of_uvicorn_say_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = parting(*_BODIES)
    with running(f"sqlite:///{tmp_path}/ours.db", Settings()) as ours:
        wanted = replies(ours.port, said)
    connections.cache_clear()
    monkeypatch.setattr("detent.surfaces.http.uvicorn_fit._TOLD", b"something else")
    with running(f"sqlite:///{tmp_path}/own.db", Settings()) as own:
        assert connections() == "auto"
        assert replies(own.port, said) == wanted
    assert [re.findall(rb" (\d+) ", one)[0] for one in wanted] == [b"201"] * 3 + [b"400"] * 2
