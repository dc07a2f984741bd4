"""What tamper evidence costs: sealing a block of 1,000 events, proving and checking one life."""

from __future__ import annotations

from bench.measure import Bench, Case
from detent.lifecycle.event import Event
from detent.lifecycle.machine import Actor
from detent.lifecycle.merkle import route, skip_of
from detent.lifecycle.seal import Block, Sealed, check, head, leaf, prove, seal

__all__ = ["bench"]

BLOCK = 1_000
CHAIN = 1_000


def bench() -> Bench:
    """Per event for sealing, per record for proofs (three events in a chain of 1,000 blocks)."""
    events = [_event(f"0199-{number:08}", 1) for number in range(BLOCK)]
    leaves = [leaf(event) for event in events]
    sealing = {"leaf": leaf, "seal": seal, "events": events, "leaves": leaves, "event": events[0]}
    whole = "seal([leaf(event) for event in events], None, None)"
    return Bench(
        (
            Case("seal: canonical bytes and leaf", "leaf(event)", sealing),
            Case("seal: tree and block, per event", "seal(leaves, None, None)", sealing, BLOCK),
            Case("seal: all of it, per event", whole, sealing, BLOCK),
            *_proofs(),
        )
    )


def _proofs() -> tuple[Case, ...]:
    mine = [(index * 300, _event("mine", index + 1)) for index in range(3)]
    events = [_event(f"0199-{number:08}", 1) for number in range(BLOCK)]
    for index, event in mine:
        events[index] = event
    leaves = tuple(leaf(event) for event in events)
    chain: dict[int, Block] = {}
    for number in range(1, CHAIN + 1):
        # Only block 1 is asked about, so the others may be small.
        content = leaves if number == 1 else leaves[:1]
        chain[number] = seal(content, chain.get(number - 1), chain.get(skip_of(number)))
    sealed = [Sealed(chain[1], leaves, tuple(mine))]
    headers = {number: chain[number] for number in route(CHAIN, [1])}
    names = {
        "prove": prove,
        "check": check,
        "sealed": sealed,
        "headers": headers,
        "proof": prove(sealed, headers),
        "trusted": head(chain[CHAIN]),
    }
    return (
        Case("seal: prove a record", "prove(sealed, headers)", names),
        Case("seal: check a proof", "check(proof, trusted)", names),
    )


def _event(record: str, version: int) -> Event:
    return Event(
        tenant="",
        record=record,
        version=version,
        at=1_700_000_000_000_000,
        name="claim",
        source="available",
        target="active",
        actor=Actor.WORKER,
        actor_id="worker-1",
        command_id="0199-command",
        lease="0199-lease",
        holder="worker-1",
        wire=False,
    )
