"""Every row of the document that this surface is made from, and the test that names it."""

from __future__ import annotations

from types import ModuleType

import pytest

from detent.lifecycle.views import REST
from tests.surfaces import test_rest_lifecycle, test_rest_requests, test_rest_streams
from tests.surfaces.rest import DOORS, Rest, door
from tests.surfaces.test_rest_lifecycle import instant

MODULES: tuple[ModuleType, ...] = (test_rest_lifecycle, test_rest_requests, test_rest_streams)
ROWS = {
    "states: pending, running, success, failed, cancelled": "test_states_are_these_five",
    "a parcel never goes back into the bin": "test_a_lost_worker_fails_the_job",
    "[*] -> pending": "test_move_new_to_pending_sets_created_at",
    "pending -> running": "test_move_pending_to_running_sets_started_at",
    "pending -> cancelled": "test_move_pending_to_cancelled_before_start",
    "running -> success": "test_move_running_to_success_with_output",
    "running -> failed": "test_move_running_to_failed_with_error",
    "running -> cancelled": "test_move_running_to_cancelled_by_its_user",
    "success, failed, cancelled -> [*]": "test_ends_are_absorbing",
    "createdAt: always": "test_instants_are_set_when_their_state_is_entered",
    "startedAt: on entry to running": "test_instants_are_set_when_their_state_is_entered",
    "completedAt: on entry to any end": "test_instants_are_set_when_their_state_is_entered",
    "logs are append-only and outlive the end": "test_logs_outlive_the_end_and_never_change",
    "the stream closes after a terminal status": (
        "test_whoever_comes_after_the_end_gets_the_rest_and_one_status"
    ),
    "cancelling what waits is cheap": "test_move_pending_to_cancelled_before_start",
    "cancelling what runs signals the worker": "test_cancelling_a_running_job_twice_asks_once",
    "Q: can failed become success after a retry": (
        "test_question_can_failed_become_success_after_a_retry"
    ),
    "A: Idempotency-Key controls duplicate creation": "test_the_same_request_is_one_job",
    "Q: is completedAt set on cancelled": "test_question_is_completed_at_set_on_cancelled",
    "Q: what is shown during pending": "test_question_what_is_shown_during_pending",
    "the example": "test_example_trigger_watch_and_a_single_final_status",
}


@pytest.mark.parametrize("row", ROWS)
def test_every_row_has_a_test(row: str) -> None:
    here = globals()
    assert ROWS[row] in here or any(hasattr(module, ROWS[row]) for module in MODULES)


def test_states_are_these_five() -> None:
    words = list(dict.fromkeys(row.word for row in REST.words))
    assert words == ["pending", "running", "success", "failed", "cancelled"]


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ("pending", {"createdAt"}),
        ("running", {"createdAt", "startedAt"}),
        ("success", {"createdAt", "startedAt", "completedAt"}),
        ("failed", {"createdAt", "startedAt", "completedAt"}),
        ("cancelled", {"createdAt", "startedAt", "completedAt", "cancelRequestedAt"}),
        ("cancelled before it began", {"createdAt", "completedAt"}),
    ],
)
def test_instants_are_set_when_their_state_is_entered(
    rest: Rest, state: str, told: set[str]
) -> None:
    job = job_in(rest, state)
    assert {name for name in job if name.endswith("At")} == told
    order = ("createdAt", "startedAt", "cancelRequestedAt", "completedAt")
    at = [instant(job[name]) for name in order if name in told]
    assert at == sorted(at)


def job_in(rest: Rest, state: str) -> dict[str, str]:
    """A job that has come as far as that."""
    opener = door()
    actions = {"success": "greet", "failed": "break", "cancelled": "heed", "running": "wait"}
    inputs = {"success": {"name": "x"}, "running": {"door": opener}}.get(state, {})
    name: str = rest.start(actions.get(state, "idle"), **inputs)["id"]
    if state == "cancelled":
        rest.in_state(name, "running")
    if state.startswith("cancelled"):
        rest.post(f"/{name}/cancel")
    job = rest.in_state(name, state.split(maxsplit=1)[0])
    DOORS[opener].set()
    return job
