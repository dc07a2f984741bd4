"""How many jobs, stages and tasks are where, for Prometheus, under the names that Jobnik uses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from detent.lifecycle.views.jobnik import STAGE_WORDS, SUMMARY_KEYS, WORKFLOW_WORDS
from detent.surfaces.http.exchange import Call, Reply
from detent.surfaces.jobnik.desk import Desk, FoundStage
from detent.surfaces.jobnik.showing import summary_of

_NAMES: Final = {
    "jobnik_jobs_by_status": ("job_status",),
    "jobnik_stages_by_status": ("stage_status", "stage_type"),
    "jobnik_tasks_by_status": ("task_status", "stage_type"),
    "jobnik_tasks_count": ("stage_type", "priority", "task_status"),
}
_Counts = dict[str, Counter[tuple[str, ...]]]


class Gauges:
    """Counts jobs, stages and tasks anew whenever Prometheus asks."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def text(self, call: Call) -> Reply:
        """All gauges as they are now."""
        counts: _Counts = {name: Counter() for name in _NAMES}
        for word in WORKFLOW_WORDS.values():
            counts["jobnik_jobs_by_status"][word,] = 0
        jobs = await self._desk.all_jobs(call.caller.tenant)
        for job in jobs:
            counts["jobnik_jobs_by_status"][job.status,] += 1
        for stage in self._desk.seen_by(call, await self._desk.stages_in(*jobs)):
            _count(stage, counts)
        return Reply(200, _told(counts), "text/plain")


def _count(stage: FoundStage, counts: _Counts) -> None:
    type_, summary = stage.kept.type, summary_of(stage.tally)
    counts["jobnik_stages_by_status"][STAGE_WORDS[stage.step.state], type_] += 1
    for word, key in SUMMARY_KEYS.items():
        counts["jobnik_tasks_by_status"][word, type_] += summary[key]
        labels = (type_, _spelled(stage.job.kept.priority), _spelled(word))
        counts["jobnik_tasks_count"][labels] += summary[key]


def _told(counts: Mapping[str, Mapping[tuple[str, ...], int]]) -> bytes:
    registry = CollectorRegistry()
    for name, labels in _NAMES.items():
        says = name.removeprefix("jobnik_").replace("_", " ").capitalize() + "."
        gauge = Gauge(name, says, labels, registry=registry)
        for values, count in counts[name].items():
            gauge.labels(*values).set(count)
    return generate_latest(registry)


def _spelled(word: str) -> str:
    """The spelling of this one metric: `Very-High`, `In-Progress`."""
    return word.title().replace("_", "-")
