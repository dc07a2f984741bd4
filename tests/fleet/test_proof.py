"""The proof of a worker: whoever is not renewed in time ends, and whoever is goes on."""

from __future__ import annotations

from threading import Event

from detent.app.fleet.proof import Proof
from tests.waiting import eventually


class Clock:
    """A clock that counts how often somebody looks at it."""

    def __init__(self) -> None:
        self.now = 100.0
        self.looks = 0

    def __call__(self) -> float:
        self.looks += 1
        return self.now


def test_who_is_not_renewed_ends_before_the_lease_does() -> None:
    clock, ended = Clock(), Event()
    proof = Proof(ended.set, clock)
    proof.renew(until=115.0)
    eventually(lambda: clock.looks >= 2)
    assert not ended.is_set()
    clock.now = 114.0
    assert ended.wait(30)


def test_one_look_too_late_is_no_end_if_there_is_news() -> None:
    clock, ended = Clock(), Event()
    proof = Proof(ended.set, clock)
    proof.renew(until=115.0)
    clock.now = 130.0
    looks = clock.looks
    eventually(lambda: clock.looks > looks)
    proof.renew(until=145.0)
    looks = clock.looks
    eventually(lambda: clock.looks >= looks + 2)
    assert not ended.is_set()
