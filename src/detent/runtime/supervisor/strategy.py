"""Who is started again after an end, and whether anybody is: decisions without side effects."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from detent.lifecycle.worker import Instance, WorkerState
from detent.runtime.supervisor.body import PERMANENT
from detent.runtime.supervisor.spec import OnKilled, Restart, Spec


class Strategy(StrEnum):
    """Which siblings share the fate of one that ended.

    Siblings of `one_for_one` know nothing of each other, so they become ready and drain side by
    side. In the other two they build on each other: each waits for the one before it.
    """

    ONE_FOR_ONE = "one_for_one"
    ONE_FOR_ALL = "one_for_all"
    REST_FOR_ONE = "rest_for_one"

    @property
    def is_group(self) -> bool:
        return self is not Strategy.ONE_FOR_ONE


def is_restarted(spec: Spec, ended: Instance) -> bool:
    """What the policy says of an end that was not a stop of the slot."""
    if ended.state is WorkerState.KILLED:
        return _after_kill(spec)
    if ended.exit_code == PERMANENT and ended.state is WorkerState.FAILED:
        return False
    match spec.restart:
        case Restart.ALWAYS:
            return True
        case Restart.ON_FAILURE:
            return ended.state is WorkerState.FAILED
        case Restart.NEVER:
            return False


def _after_kill(spec: Spec) -> bool:
    """It ended on somebody's order, which is no failure."""
    if spec.on_killed in (OnKilled.RESTART, OnKilled.HOLD):
        return spec.on_killed is OnKilled.RESTART
    return spec.restart is Restart.ALWAYS


def affected(strategy: Strategy, names: Sequence[str], fallen: str) -> tuple[str, ...]:
    """Who is started again, in the order of the list, when `fallen` is."""
    match strategy:
        case Strategy.ONE_FOR_ONE:
            return (fallen,)
        case Strategy.ONE_FOR_ALL:
            return tuple(names)
        case Strategy.REST_FOR_ONE:
            return tuple(names[names.index(fallen) :])
