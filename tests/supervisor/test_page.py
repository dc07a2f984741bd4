"""The settings on the page about the supervisor have the defaults of the code."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from detent import supervisor

PAGE = Path(__file__).parents[2] / "docs" / "operate" / "supervisor.md"


def test_the_page_names_every_default() -> None:
    section = PAGE.read_text("utf-8").split("## Settings")[1].split("##")[0]
    rows = dict(re.findall(r"^\| `([\w.]+)` \| (\S+) \|$", section, re.MULTILINE))
    defaults = {
        f"{kind}.{name}": str(parameter.default)
        for kind in ("Spec", "Backoff", "Probe", "Supervisor")
        for name, parameter in inspect.signature(getattr(supervisor, kind)).parameters.items()
        if isinstance(parameter.default, str | int | float)
    }
    assert rows == defaults
