"""Views: one job lifecycle, told in the words of each document that speaks about jobs.

    view(job, ViewName.REST).state      # "pending", "running", "success", ...

Each view is a table: words for states, fields that appear, the moves its document names, and the
extensions that its readers may see besides. A view reads the record and nothing else.
"""

from __future__ import annotations

from detent.lifecycle.views.engines import (
    CANCELLED_CODE,
    CATEGORIES,
    ENGINE,
    OLD_NAMES,
    TELEMETRY,
    TELEMETRY_PROGRESS,
    Category,
    category,
)
from detent.lifecycle.views.jobnik import (
    DEFAULT_PRIORITY,
    JOBNIK_PRIORITIES,
    STAGE_WORDS,
    SUMMARY_KEYS,
    WORKFLOW_WORDS,
)
from detent.lifecycle.views.ojs import OJS, OJS_PRIORITIES, OJS_WORKFLOW_WORDS
from detent.lifecycle.views.rest import REST
from detent.lifecycle.views.shapes import as_args, as_object, inputs_of
from detent.lifecycle.views.showing import VIEWS, view
from detent.lifecycle.views.table import Extension, Shown, View, ViewName

__all__ = [
    "CANCELLED_CODE",
    "CATEGORIES",
    "DEFAULT_PRIORITY",
    "ENGINE",
    "JOBNIK_PRIORITIES",
    "OJS",
    "OJS_PRIORITIES",
    "OJS_WORKFLOW_WORDS",
    "OLD_NAMES",
    "REST",
    "STAGE_WORDS",
    "SUMMARY_KEYS",
    "TELEMETRY",
    "TELEMETRY_PROGRESS",
    "VIEWS",
    "WORKFLOW_WORDS",
    "Category",
    "Extension",
    "Shown",
    "View",
    "ViewName",
    "as_args",
    "as_object",
    "category",
    "inputs_of",
    "view",
]
