"""The lifecycles of jobs, workflows, steps and workers: tables of data and pure functions.

Nothing below this package reads a clock, a file or chance. Whatever would make an answer
unpredictable is handed in, so every rule can be tested and every past decision repeated.
"""

from __future__ import annotations

from detent.lifecycle.job.table import JOB
from detent.lifecycle.machine import Machine
from detent.lifecycle.worker.table import WORKER
from detent.lifecycle.workflow.table import STEP, WORKFLOW

__all__ = ["JOB", "MACHINES", "STEP", "WORKER", "WORKFLOW", "Machine"]

MACHINES: dict[str, Machine] = {one.name: one for one in (JOB, WORKFLOW, STEP, WORKER)}
"""Every lifecycle by its name, in the order in which one meets them."""
