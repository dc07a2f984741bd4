"""The ends of workers of a server: what costs their jobs nothing, and what is told until heard."""

from __future__ import annotations

from typing import Any

from detent.app.fleet.graves import Graves
from detent.app.fleet.orders import LOST
from detent.errors import ServerAway
from tests.waiting import until

KILLED = -9


class Listener:
    """As much of a client as ends are told through; its server may be away."""

    def __init__(self) -> None:
        self.is_away = False
        self.heard: dict[str, bool] = {}

    async def post(self, _: str, body: dict[str, Any], *__: object, **___: object) -> Any:
        if self.is_away:
            raise ServerAway("it is away")
        self.heard[body["worker_id"]] = body["lapsed"]


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def made() -> tuple[Listener, Clock, Graves]:
    listener: Any = Listener()
    clock = Clock()
    return listener, clock, Graves(listener, [""], clock=clock, again_s=0.01)


async def test_who_was_not_renewed_has_lapsed_however_it_ended() -> None:
    """One that hears nothing is killed by its own proof, and says no code."""
    listener, clock, one = made()
    for instance, code in (("asked", LOST), ("deaf", KILLED)):
        one.proven(instance, 115.0)
        clock.now = 114.0
        assert await one.gone(instance, "lost", code, crowded=False)
    assert listener.heard == {"asked": True, "deaf": True}


async def test_a_handler_cannot_say_that_its_worker_has_lapsed() -> None:
    listener, clock, one = made()
    one.proven("liar", 115.0)
    clock.now = 105.0
    await one.gone("liar", "exit_code", LOST, crowded=False)
    await one.gone("unborn", "exit_code", LOST, crowded=False)
    assert listener.heard == {"liar": False, "unborn": False}


async def test_a_crash_is_no_fault_of_the_server() -> None:
    """A handler that holds the interpreter lets nobody renew its worker."""
    listener, clock, one = made()
    one.proven("crashed", 115.0)
    clock.now = 114.0
    await one.gone("crashed", "crash_signal", -11, crowded=False)
    assert listener.heard == {"crashed": False}


async def test_it_is_told_until_it_is_heard() -> None:
    listener, clock, one = made()
    listener.is_away = True
    one.proven("deaf", 115.0)
    clock.now = 114.0
    assert not await one.gone("deaf", "lost", KILLED, crowded=False)
    assert list(one.untold) == ["deaf"]
    listener.is_away = False
    await one.buried()
    assert listener.heard == {"deaf": True}
    assert not one.untold
    await until(lambda: not one._late)  # noqa: SLF001 - nothing of it goes on
