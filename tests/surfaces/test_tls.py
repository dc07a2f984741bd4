"""A server with a certificate, and a worker's client that believes it or does not."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest

from detent.errors import ServerRefused
from detent.runtime.remote.address import Server
from detent.runtime.remote.client import Client
from detent.surfaces.http.server import Bind
from tests.engine.receiver import certified
from tests.surfaces.server import running


def test_a_worker_reaches_a_server_whose_certificate_it_trusts(tmp_path: Path) -> None:
    _, trust = certified(tmp_path, "127.0.0.1")
    bind = Bind(port=0, certfile=str(tmp_path / "cert.pem"))
    with running(f"sqlite:///{tmp_path}/detent.db", bind=bind) as server:
        url = f"https://127.0.0.1:{server.port}"
        assert asyncio.run(waited(url, trust))["now"] > 0
        with pytest.raises(ServerRefused) as caught:
            asyncio.run(waited(url, None))
    assert caught.value.fields["why"] == "tls"


async def waited(url: str, trust: ssl.SSLContext | None) -> dict[str, Any]:
    client = Client(Server(urls=(url,)), trust=trust)
    try:
        return await client.post("/workers/wait", {}, dict[str, Any])
    finally:
        client.close()
