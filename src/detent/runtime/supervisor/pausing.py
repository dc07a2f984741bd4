"""Ending now to go on later: a worker says where it stands, ends, and the next one is told.

Unlike going quiet this frees everything that the worker holds. What it says, its token, is opaque
and kept on disk: it is handed to the next instance of the slot, whoever starts that, and forgotten
when that one is ready.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol, runtime_checkable

from detent.errors import BadSpec, NotSuspendable
from detent.runtime.supervisor.clock import done_within
from detent.runtime.supervisor.instance import Live
from detent.runtime.supervisor.slot import Slot
from detent.runtime.supervisor.stopping import tried
from detent.runtime.supervisor.suspending import need_answer

TOKEN_CHARS_MAX: Final = 65_536


@runtime_checkable
class Resumable(Protocol):
    """A body that may be able to say where it stands."""

    @property
    def resumable(self) -> bool:
        """Whether it can say where it stands."""
        ...

    async def pause(self) -> str:
        """Finish the unit at hand, take no other, and say where to go on."""
        ...


async def take_token(slot: Slot, live: Live, within_s: float) -> None:
    """Have it say where it stands, and keep that; too late, it works on as if nobody had asked."""
    body = live.body
    if not isinstance(body, Resumable) or not body.resumable:
        raise NotSuspendable(
            f"The worker in slot {slot.path} cannot say where it stands. Suspend or stop it",
            slot=slot.path,
            instance=live.id,
        )
    pausing = asyncio.ensure_future(body.pause())
    try:
        await done_within(live.tree.clock, within_s, pausing, live.done)
        need_answer(live, pausing, within_s, "say where it stands")
        slot.keep(resume_token=_checked(slot, pausing.result()))
    except Exception:
        # Without a token on the disk it has nowhere to go on from, so it does not stop here.
        await tried(live, body.resume(), "resume")
        raise
    finally:
        pausing.cancel()


def _checked(slot: Slot, token: str) -> str:
    # It travels in an environment, which ends at the first zero.
    if not 0 < len(token) <= TOKEN_CHARS_MAX or "\0" in token:
        why = f"of slot {slot.path} is a text of at most {TOKEN_CHARS_MAX} characters"
        raise BadSpec(f"The token {why}, not empty, without zeros", field="token")
    return token
