"""All views by name, and the one function that shows a job through one of them."""

from __future__ import annotations

from detent.lifecycle.job.record import Job
from detent.lifecycle.views.engines import ENGINE
from detent.lifecycle.views.jobnik import JOBNIK
from detent.lifecycle.views.ojs import OJS
from detent.lifecycle.views.rest import REST
from detent.lifecycle.views.table import Shown, View

VIEWS: dict[str, View] = {one.name: one for one in (OJS, REST, ENGINE, JOBNIK)}
"""Every view by its name."""


def view(record: Job, surface: str) -> Shown:
    """The job as that surface shows it."""
    return VIEWS[surface].show(record)
