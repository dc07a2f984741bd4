"""What a worker is told when it is made, and what it tells when it is asked."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from detent.engine import limits
from detent.engine.access import ALL_QUEUES, Principal
from detent.errors import BadOption
from detent.lifecycle.profile import CANCEL_GRACE_US
from detent.stores.api import Fair

SLOTS_MAX = 10_000
STALL_S_MIN = 5.0


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What it works on, and how much of it at once.

    Queues are served from left to right, or with `fair` in turn; tenants always in turn. `queues`
    of `None` are those that the program names, which `serving` puts in their place. `slots` is
    how many jobs run at once, `sync_slots` how many of them in threads and processes. `types` of
    `None` are all that there are handlers for. `grace_s` is how long a run that was called off has
    until it is interrupted, and again until it is killed, unless its type says otherwise. `stall_s`
    is how long a coroutine may hold up the loop of all before it is given up; `None` is for ever.
    """

    queues: tuple[str, ...] | None = None
    slots: int = 100
    sync_slots: int = 10
    types: tuple[str, ...] | None = None
    tenants: tuple[str, ...] = ("",)
    fair: Fair | None = None
    grace_s: float = CANCEL_GRACE_US / 1_000_000
    stall_s: float | None = 60.0

    def __post_init__(self) -> None:
        for option in ("slots", "sync_slots"):
            if not 1 <= getattr(self, option) <= SLOTS_MAX:
                why = f"{option} is how many jobs run at once: from 1 to {SLOTS_MAX}"
                raise BadOption(why, option=option, value=getattr(self, option))
        if self.stall_s is not None and not self.stall_s >= STALL_S_MIN:
            why = f"stall_s is {STALL_S_MIN:g} s or more: less may be a busy machine"
            raise BadOption(why, option="stall_s", value=self.stall_s)
        for option in ("queues", "tenants"):
            if getattr(self, option) == ():
                raise BadOption(f"A worker without {option} has nothing to do", option=option)
        # Names that no job can have would be waited for in vain.
        for what, names in (("queue", self.served), ("tenant", filter(None, self.tenants))):
            for name in names:
                limits.need_name(what, name)

    @property
    def served(self) -> tuple[str, ...]:
        """The queues that it serves."""
        return ("default",) if self.queues is None else self.queues

    def serving(self, named: Iterable[str], key_queues: tuple[str, ...] = ALL_QUEUES) -> Settings:
        """The same for a program that names these queues: all of them in turn, if none were said.

        A job on a queue of its own runs without another word; nobody waits behind anybody else.
        Whoever has a key for some queues only serves those of them that it or the program names.
        """
        key = Principal(queues=key_queues)
        if self.queues is not None:
            _need_opened(key, self.queues)
            return self
        known = dict.fromkeys(("default", *named, *key.named_queues))
        queues = tuple(one for one in known if key.may_use(one))
        if not queues:
            _need_opened(key, tuple(known))
        fair = Fair.QUEUES if self.fair is None and len(queues) > 1 else self.fair
        return replace(self, queues=queues, fair=fair)


def _need_opened(key: Principal, queues: tuple[str, ...]) -> None:
    shut = [one for one in queues if not key.may_use(one)]
    if shut:
        why = f"The key is for the queues {', '.join(key.queues)}, and not for {', '.join(shut)}"
        fix = "say with --queue which to serve, or make another key"
        raise BadOption(f"{why}: {fix}", option="queues", value=tuple(shut))


class Running(msgspec.Struct, frozen=True):
    """A job that runs. `step` is how far its stopping has gone, `why` is why it is to stop."""

    tenant: str
    id: str
    type: str
    attempt: int
    since: int
    executor: str
    step: str
    why: str | None = None


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """A worker at one moment.

    `state` is working, quiet, stopping or stopped. `abandoned` counts runs in threads that could
    not be stopped; each keeps its slot, and with too many of them `wants_recycling` is true.
    `step_at` is when the store last answered it, `loop_at` when the handlers' loop last did: in
    microseconds, like every instant.
    """

    state: str
    running: tuple[Running, ...]
    slots: int
    free: int
    done: int
    failed: int
    lost: int
    abandoned: int
    wants_recycling: bool
    step_at: int
    loop_at: int
