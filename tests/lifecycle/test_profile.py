"""The profile table says what the design says, and the matrix is what `decide` really answers."""

from __future__ import annotations

import hashlib
from collections import Counter

import msgspec
import pytest

from detent.lifecycle import job as j
from detent.lifecycle.event import Charge
from detent.lifecycle.profile import (
    CANCEL_GRACE_US,
    HEARTBEAT_LEASE_US,
    PROFILES,
    Again,
    CancelMode,
    Deadlines,
    Delivery,
    Drain,
    ProfileName,
    Surface,
)
from tools.command_matrix import Cell, matrix

GOLDEN = "dc6ca2b60688600716893f389c4ede7dc5a6f286008c463f49fb7fb1348258a6"

Cells = tuple[Cell, ...]


@pytest.fixture(scope="module")
def cells() -> Cells:
    return matrix()


def test_the_table_is_that_of_the_design() -> None:
    """Failures allowed, what a loss charges, cancel mode, drain and again, for each of the five."""
    found = {
        name: (row.allowed, row.loss, row.cancel, row.drain, row.again)
        for name, row in PROFILES.items()
    }
    back, new = Drain.HAND_BACK, Again.NEW_JOB
    assert found == {
        "python": (3, Charge.LOSS, CancelMode.COOPERATIVE, back, new),
        "ojs": (3, Charge.BOTH, CancelMode.NOW, back, Again.ALIAS),
        "rest": (1, Charge.BOTH, CancelMode.COOPERATIVE, Drain.FAIL, new),
        "jobnik": (1, Charge.LOSS, CancelMode.THROUGH_WORKFLOW, back, Again.NEVER),
        "engine": (1, Charge.BOTH, CancelMode.COOPERATIVE, back, new),
    }
    assert list(found) == [name.value for name in ProfileName]


def test_the_lengths_are_those_of_the_design() -> None:
    assert (HEARTBEAT_LEASE_US, CANCEL_GRACE_US) == (15_000_000, 10_000_000)
    assert {row.lease_us for row in PROFILES.values()} == {1_800_000_000}
    assert {row.losses_allowed for row in PROFILES.values()} == {3}
    limits = {name: row.deadlines for name, row in PROFILES.items() if row.deadlines != Deadlines()}
    assert limits == {"engine": Deadlines(30_000_000, 10_000_000, 60_000_000)}


def test_only_rest_runs_once_by_law_and_only_ojs_takes_checkpoints_at_any_time() -> None:
    assert [name for name, row in PROFILES.items() if row.allowed_is_fixed] == ["rest"]
    assert [name for name, row in PROFILES.items() if row.checkpoints_anytime] == ["ojs"]


def test_the_end_of_a_wire_lease_proves_nothing_about_a_jobnik_task() -> None:
    assert [name for name, row in PROFILES.items() if not row.poisoned_over_wire] == ["jobnik"]


def test_who_may_claim_what() -> None:
    """Our own workers any pull job, OJS workers three profiles, Jobnik's their own, engines push.

    Over the wire a worker sees only what its protocol can express.
    """
    by_surface = {
        surface: {name for name, row in PROFILES.items() if surface in row.claimed_over}
        for surface in Surface
    }
    assert by_surface == {
        "own": {"python", "ojs", "rest", "jobnik"},
        "ojs": {"python", "ojs", "rest"},
        "jobnik": {"jobnik"},
        "engine": {"engine"},
    }
    push = {name for name, row in PROFILES.items() if row.delivery is Delivery.PUSH}
    assert push == {"engine"}


@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_has_a_code_for_whatever_detent_itself_ends(name: str) -> None:
    needed = {
        ("active", "lose"),
        ("pending", "lose"),
        ("pending", "time_out"),
        ("active", "time_out"),
        ("available", "deadline"),
    }
    assert set(PROFILES[name].codes) == needed
    assert all(PROFILES[name].code(*key) for key in needed)


def cell(
    cells: Cells, profile: str, state: str, command: str, *, actor: str, cancelling: bool = False
) -> Cell:
    [found] = [
        one
        for one in cells
        if (one.profile, one.state, one.command) == (profile, state, command)
        and (one.actor, one.cancelling) == (actor, cancelling)
    ]
    return found


def test_the_matrix_has_every_profile_state_and_command(cells: Cells) -> None:
    counted = Counter((one.profile, one.state, one.cancelling) for one in cells)
    assert set(counted) == {
        (profile, state, cancelling)
        for profile in PROFILES
        for state in j.JobState
        for cancelling in (False, True)
        if not cancelling or state is j.JobState.ACTIVE
    }
    assert set(counted.values()) == {24}


def test_the_matrix_is_frozen(cells: Cells) -> None:
    """What any command does to any profile in any state is a promise; changing it is a decision."""
    assert hashlib.sha256(msgspec.json.encode(cells)).hexdigest() == GOLDEN


def test_the_matrix_tells_accepted_unchanged_and_refused_apart(cells: Cells) -> None:
    done = cell(cells, "python", "active", "Complete", actor="worker")
    assert (done.events, done.ends_in, done.refused) == (("complete",), "completed", None)
    asked = cell(cells, "python", "active", "Cancel", actor="user", cancelling=True)
    assert (asked.events, asked.ends_in, asked.refused) == ((), "active", None)
    no = cell(cells, "rest", "active", "Snooze", actor="worker")
    assert (no.events, no.ends_in, no.refused) == ((), None, "runs_once")


def test_the_profiles_differ_where_the_table_says(cells: Cells) -> None:
    lost = {name: cell(cells, name, "active", "Lose", actor="system").ends_in for name in PROFILES}
    assert lost == {
        "python": "available",
        "ojs": "available",
        "rest": "discarded",
        "jobnik": "available",
        "engine": "discarded",
    }
    failed = {
        name: cell(cells, name, "active", "Fail", actor="worker").ends_in for name in PROFILES
    }
    assert failed == {
        "python": "retryable",
        "ojs": "retryable",
        "rest": "discarded",
        "jobnik": "discarded",
        "engine": "discarded",
    }


def test_no_cell_lets_anything_leave_a_terminal_state(cells: Cells) -> None:
    for one in cells:
        if one.state in j.JOB.terminal:
            assert one.ends_in in (None, one.state)
