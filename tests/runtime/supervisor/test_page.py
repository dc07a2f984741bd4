"""The table of defaults on the page is the defaults of the code."""

from __future__ import annotations

import re
from pathlib import Path

from detent.runtime.supervisor.breaker import Breaker
from detent.runtime.supervisor.core import Plan
from detent.runtime.supervisor.spec import Probe, Recycle, Spec, StartRate
from tests.runtime.supervisor.stage import Puppet

PAGE = Path(__file__).parents[3] / "docs" / "operate" / "supervisor.md"


def test_the_page_tells_the_defaults() -> None:
    spec = Spec("a", Puppet)
    rooms = {
        "": spec,
        "backoff": spec.backoff,
        "breaker": Breaker(),
        "probe": Probe(),
        "recycle": Recycle(),
        "plan": Plan(),
        "rate": StartRate(),
    }
    section = PAGE.read_text("utf-8").split("## Defaults")[1].split("##")[0]
    told = re.findall(r"^\| `([\w.]+)` \| (\S+) \|$", section, re.MULTILINE)
    assert len(told) > 15
    for setting, value in told:
        room, _, field = setting.rpartition(".")
        assert str(getattr(rooms[room], field)) == value, setting
