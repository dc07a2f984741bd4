"""What the page about monitoring names is there to be watched."""

from __future__ import annotations

import re
from pathlib import Path

import httpx

from tests.docs.blocks import ROOT
from tests.surfaces.server import Client, running

_COUNTED = r'"(?:\{PREFIX\})?([a-z_{}]+_(?:total|seconds|ratio))"'
_FORMS = r"_(?:bucket|count|sum|total|created)$"


def test_every_metric_and_probe_of_the_page_is_told(tmp_path: Path) -> None:
    page = (ROOT / "docs/operate/monitoring.md").read_text("utf-8")
    with running(f"sqlite:///{tmp_path}/detent.db") as server:
        place = f"http://127.0.0.1:{server.port}"
        httpx.get(f"{place}/metrics")
        client = Client(server.port)
        client.push("a")
        client.ack(client.fetch()[0])
        client.close()
        told = httpx.get(f"{place}/metrics").text
        for path in re.findall(r"^\| `(/\w+)`", page, re.M):
            assert httpx.get(place + path).status_code == 200
    there = {re.sub(_FORMS, "", name) for name in re.findall(r"^# HELP (\w+)", told, re.M)}
    named = {re.sub(_FORMS, "", name) for name in re.findall(r"\bdetent_\w+", page)}
    assert len(named) > 9
    assert named <= there
    labels = dict(re.findall(r"`(detent_\w+)\{([\w,]+)\}", page))
    for name, words in labels.items():
        seen = re.search(rf"^{name}\w*\{{([^}}]+)\}}", told, re.M)
        assert seen is None or set(words.split(",")) <= set(re.findall(r"(\w+)=", seen[1])), name


def test_every_number_of_a_supervisor_is_on_the_page_and_no_other() -> None:
    page = (ROOT / "docs/operate/monitoring.md").read_text("utf-8")
    named = set(re.findall(r"`lifecycle_(\w+)", page))
    sources = (ROOT / "src/detent/runtime").rglob("*.py")
    counted = {name for path in sources for name in re.findall(_COUNTED, path.read_text("utf-8"))}
    fitting = {re.sub(r"\{\w+\}", r"[a-z]+", name) for name in counted}
    assert len(fitting) > 25
    assert [one for one in named if not any(re.fullmatch(name, one) for name in fitting)] == []
    assert [name for name in fitting if not any(re.fullmatch(name, one) for one in named)] == []
