"""The operations of this surface as a page for people, without scripts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from detent.surfaces.http.routing import Route

CLOSED: Final = ("content-security-policy", "default-src 'none'; style-src 'unsafe-inline'")
"""The page may load nothing."""
_HEAD: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Jobnik API</title><style>
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem }
table { border-collapse: collapse; width: 100% }
th, td { border-bottom: 1px solid #ccc; padding: .4rem; text-align: left; vertical-align: top }
code { white-space: nowrap }
</style></head><body><h1>Jobnik API</h1>
<p>The same for programs: <a href="api.json">api.json</a>, <a href="api.yaml">api.yaml</a>.</p>
<table><thead><tr><th>Request</th><th>Does</th><th>Answers</th><th>Scope</th></tr></thead><tbody>
"""
_TAIL: Final = "</tbody></table></body></html>\n"


def page_of(routes: Sequence[Route]) -> bytes:
    """The page."""
    return "".join([_HEAD, *_rows(routes), _TAIL]).encode()


def _rows(routes: Iterable[Route]) -> Iterable[str]:
    for route in routes:
        cells = (
            f"<code>{escape(route.method)} {escape(route.path)}</code>",
            escape(route.says),
            ", ".join(map(str, route.statuses)),
            "" if route.scope is None else escape(route.scope.value),
        )
        yield "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>\n"
