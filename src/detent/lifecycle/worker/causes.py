"""Which words for why may stand on which move: a history with any other was not decided here."""

from __future__ import annotations

from typing import Final

from detent.lifecycle.worker.table import Cause, WorkerState

_C, _S = Cause, WorkerState
STOP_CAUSES: Final = frozenset((_C.REQUESTED, _C.RECYCLED, _C.PROBE_FAILED))
_ENDED_BADLY = frozenset(
    (
        _C.EXCEPTION,
        _C.EXIT_CODE,
        _C.CRASH_SIGNAL,
        _C.OOM,
        _C.SIGKILL_EXTERNAL,
        _C.LOST,
    )
)
_ENDED_EARLY = frozenset((_C.SPAWN_ERROR, _C.INIT_TIMEOUT, _C.INIT_KILLED, _C.EXITED_BEFORE_READY))
_QUIET = frozenset((_C.EXIT_WHILE_SUSPENDED,))

# By where the move starts and its event. A move that is not here tells no cause.
_CARRIED: dict[tuple[str, str], frozenset[Cause | None]] = {
    (_S.PENDING, "cancel"): frozenset((*STOP_CAUSES, _C.LOST)),
    (_S.STARTING, "stop_requested"): frozenset(STOP_CAUSES),
    (_S.STARTING, "fail"): frozenset(_ENDED_BADLY | _ENDED_EARLY),
    (_S.STARTING, "comply"): frozenset((*STOP_CAUSES, _C.EXTERNAL_SIGNAL)),
    (_S.RUNNING, "stop"): frozenset(STOP_CAUSES),
    (_S.RUNNING, "finish"): frozenset((_C.NATURAL, *_QUIET)),
    (_S.RUNNING, "fail"): frozenset(_ENDED_BADLY | _QUIET),
    (_S.RUNNING, "interrupt"): frozenset((_C.EXTERNAL_SIGNAL, _C.REQUESTED, *_QUIET)),
    # Only an end that found the worker quiet says why it was woken.
    (_S.SUSPENDED, "resume"): frozenset((None, *_QUIET)),
    (_S.SUSPENDED, "stop"): frozenset(STOP_CAUSES),
    (_S.STOPPING, "comply"): frozenset(STOP_CAUSES),
    (_S.STOPPING, "fail"): frozenset(_ENDED_BADLY),
    (_S.STOPPING, "kill"): frozenset((_C.GRACE_EXCEEDED, _C.LOST)),
}
_SILENT: frozenset[Cause | None] = frozenset((None,))


def may_carry(source: str | None, event: str, cause: str | None) -> bool:
    """Whether an event that starts there may name that cause, or none."""
    return cause in _CARRIED.get((source or "", event), _SILENT)
