"""Lives of worker instances, as a supervisor would report them."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from detent.lifecycle import worker as w
from detent.lifecycle.event import By, Event
from detent.lifecycle.machine import Actor
from detent.stores.api import Life

SUPERVISOR = By(Actor.SYSTEM, "supervisor")


def order(now: int) -> w.Order:
    """The supervisor's own word."""
    return w.Order(now, SUPERVISOR, f"c-{now}")


def told(answer: w.Answer) -> w.Accepted:
    """An answer that something follows from."""
    assert isinstance(answer, w.Accepted), answer
    return answer


def born(name: str, now: int, *, slot: str = "mail", tenant: str = "") -> w.Accepted:
    """A fresh instance."""
    return told(w.create(w.Birth(id=name, slot=slot, tenant=tenant), order(now)))


def whole(name: str, now: int, *, slot: str = "mail", tenant: str = "") -> list[Event]:
    """A life from birth to death: started, spawned, ready, and killed by the kernel."""
    one = born(name, now, slot=slot, tenant=tenant)
    events = list(one.events)
    seen = w.Exit.of_process(-9)
    moves: list[Callable[[w.Instance], w.Answer]] = [
        lambda it: w.start(it, order(now + 1)),
        lambda it: w.spawned(it, 4711, 123_456, order(now + 2)),
        lambda it: w.ready(it, order(now + 3)),
        lambda it: w.end(it, seen, order(now + 4)),
    ]
    for move in moves:
        one = told(move(one.instance))
        events += one.events
    return events


def life(events: list[Event], version: int = 0) -> Life:
    """What comes after that version of a history, as it is shipped."""
    instance = w.fold(events)
    assert instance is not None
    return Life(version, instance, tuple(events[version:]))


def onwards(instance: w.Instance, now: int, rng: Random) -> w.Accepted | None:
    """Something that may happen to it next; nothing, if it was refused or changes nothing."""
    at = order(max(now, instance.last_at))
    moves: list[Callable[[], w.Answer]] = [
        lambda: w.start(instance, at),
        lambda: w.hold(instance, w.Governor.BACKOFF, now + 5, at),
        lambda: w.spawned(instance, 7, 8, at),
        lambda: w.ready(instance, at),
        lambda: w.stop(instance, at, force_at=now + 9),
        lambda: w.end(instance, w.Exit.of_process(rng.choice([0, 1, -9])), at),
        lambda: w.kill(instance, at),
        lambda: w.lose(instance, at),
    ]
    answer = rng.choice(moves)()
    return answer if isinstance(answer, w.Accepted) else None
