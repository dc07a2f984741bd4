"""How an instance ended, and what that makes of it: one answer that everybody uses.

Intent (was it asked to end, was it forced) and outcome (how the end looked) together give the final
state. The order of the questions is the rule; the first that holds answers.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from detent.lifecycle.worker.table import Cause, WorkerState

# Numbers, not the `signal` module: they are part of what a recorded end means on every platform.
_SIGINT: Final = 2
_SIGKILL: Final = 9
_SIGTERM: Final = 15
_SHELL_OFFSET: Final = 128
_POLITE: Final = frozenset((_SIGINT, _SIGTERM))
_NOT_SPAWNED: Final = -1


class Ending(StrEnum):
    """What was seen of the end."""

    EXITED = "exited"
    SIGNALLED = "signalled"
    RETURNED = "returned"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    TIMED_OUT = "timed_out"
    INPUT_ENDED = "input_ended"
    RAISED = "raised"
    UNSPAWNED = "unspawned"
    INIT_TIMED_OUT = "init_timed_out"
    CALLED_OFF = "called_off"


class Exit(msgspec.Struct, frozen=True):
    """One observed end. `number` is the exit code or the signal, where the end has one.

    `is_forced`: we sent the SIGKILL. `is_oom`: the kernel says that memory ran out.
    `is_interactive`: the worker lives on typed input, so the end of that input is an interruption
    and no error. `code` is the error's stable code; message and traceback live elsewhere.
    """

    how: Ending
    number: int | None = None
    is_forced: bool = False
    is_oom: bool = False
    is_interactive: bool = False
    code: str | None = None

    @classmethod
    def of_process(cls, returncode: int, *, is_forced: bool = False, is_oom: bool = False) -> Exit:
        """A reaped process, from the `returncode` that Python gives it (a signal is negative)."""
        how = Ending.SIGNALLED if returncode < 0 else Ending.EXITED
        return cls(how, abs(returncode), is_forced, is_oom)

    @property
    def exit_code(self) -> int | None:
        """The number to record: Python's convention, and -1 for what never came to be."""
        if self.how is Ending.UNSPAWNED:
            return _NOT_SPAWNED
        if self.how is Ending.SIGNALLED and self.number is not None:
            return -self.number
        return self.number


def derive_final_status(
    end: Exit, *, stop_requested: bool, killed: bool, initialising: bool = False
) -> tuple[WorkerState, Cause]:
    """The terminal state and its cause; `killed` is the flag that only a kill order raises."""
    if killed:
        return WorkerState.KILLED, Cause.GRACE_EXCEEDED
    if is_interruption(end, stop_requested=stop_requested):
        return WorkerState.STOPPED, _why_interrupted(end, stop_requested)
    fault = _fault(end, initialising)
    if fault is not None:
        return WorkerState.FAILED, fault
    if stop_requested:
        return WorkerState.STOPPED, Cause.REQUESTED
    return WorkerState.FINISHED, Cause.NATURAL


def is_interruption(end: Exit, *, stop_requested: bool) -> bool:
    """Whether this end is the normal answer to being asked, and so no error."""
    match end.how:
        case Ending.CANCELLED | Ending.INTERRUPTED | Ending.CALLED_OFF:
            return True
        case Ending.SIGNALLED:
            return end.number in _POLITE
        case Ending.EXITED:
            # A shell reports its child's signal as an exit code, but so may a program that chose
            # that number itself: believed only when we did ask.
            return stop_requested and (end.number or 0) - _SHELL_OFFSET in _POLITE
        case Ending.INPUT_ENDED:
            return end.is_interactive
        case _:
            return False


def _why_interrupted(end: Exit, stop_requested: bool) -> Cause:
    from_outside = end.how in (Ending.SIGNALLED, Ending.INTERRUPTED)
    return Cause.EXTERNAL_SIGNAL if from_outside and not stop_requested else Cause.REQUESTED


def _fault(end: Exit, initialising: bool) -> Cause | None:
    match end.how:
        case Ending.EXITED:
            return Cause.EXIT_CODE if end.number else None
        case Ending.SIGNALLED if end.number == _SIGKILL:
            return _killed_by(end, initialising)
        case Ending.SIGNALLED:
            return Cause.CRASH_SIGNAL
        case Ending.UNSPAWNED:
            return Cause.SPAWN_ERROR
        case Ending.INIT_TIMED_OUT:
            return Cause.INIT_TIMEOUT
        case Ending.RAISED | Ending.TIMED_OUT | Ending.INPUT_ENDED:
            return Cause.EXCEPTION
        case _:
            return None


def _killed_by(end: Exit, initialising: bool) -> Cause:
    # We force without the flag in one place only: during initialisation. Anywhere else a kill that
    # nobody ordered on record is like one from outside, whoever claims to have sent it.
    if end.is_forced and initialising:
        return Cause.INIT_KILLED
    return Cause.OOM if end.is_oom else Cause.SIGKILL_EXTERNAL
