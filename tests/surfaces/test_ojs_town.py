"""What is said of Open Job Spec holds whichever of several servers is asked."""

from __future__ import annotations

from collections import Counter

from tests.surfaces.town import PUSHERS, Town, job, statuses


def test_of_many_who_register_a_schedule_at_once_one_has_made_it(town: Town) -> None:
    cron = {"name": "first", "expression": "@yearly", "job_template": job("c")}
    answers = town.at_once(lambda client, _: client.post("/cron", cron))
    assert statuses(answers) == {201: 1, 200: PUSHERS - 1}
    town.client.delete("/cron/first").ok()
    again = town.at_once(lambda client, _: client.post("/cron", {**cron, "enabled": False}))
    assert Counter(one.status for one in again) == {201: 1, 200: PUSHERS - 1}
    assert town.client.get("/cron/first").ok()["cron"]["enabled"] is False
    assert town.client.post("/cron", cron).ok()["cron"]["next_run_at"] is not None
