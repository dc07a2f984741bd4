"""Which units can be sent at once and which must be asked about first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Final

import msgspec

from detent.lifecycle.event import Event
from detent.lifecycle.job import JOB, Job
from detent.lifecycle.job.table import IN_HANDS
from detent.stores.api import Key, Move, New, Unit, key_of, name_of
from detent.stores.births import Births
from detent.stores.postgres.bearing import Shared, shared
from detent.stores.postgres.ends import Ends, ends_of
from detent.stores.postgres.lanes import Lane, lane_of


class Batch(msgspec.Struct, frozen=True):
    """The units of one step, and how they may be sent.

    `moves` are single moves and `news` new jobs that nothing but the version, the lease or the id
    can speak against; either stands for all units, or neither. `fusable` moves leave what a claim
    takes alone, so both may be one statement. `reports` are moves that only take a job out of its
    holder's hands, `ends` are such that complete alike, and `fresh` jobs were enqueued and nothing
    else. Of those that are `born` of one mould only what is their own is told. A `keyed` batch may
    have to wait for somebody's transaction.
    """

    units: Sequence[Unit]
    lanes: frozenset[Lane]
    moves: bool = False
    news: bool = False
    fusable: bool = False
    reports: bool = False
    ends: Ends | None = None
    fresh: bool = False
    born: Shared | None = None
    keyed: bool = False


def sort(units: Sequence[Unit]) -> Batch:
    """Sort the units by how they may be sent."""
    common = _shared(units) if isinstance(units, Births) and units else None
    if common is not None:
        return Batch(units, frozenset((common.lane,)), born=common)
    ends = ends_of(units) if units and _is_end(units[0]) else None
    if ends is not None:
        return Batch(units, frozenset(), moves=True, fusable=True, reports=True, ends=ends)
    units = tuple(units)
    sound = [is_sound(unit) for unit in units]
    news = [new for unit, is_good in zip(units, sound, strict=True) if is_good for new in unit.new]
    keyed = any(new.unique is not None or new.idempotency is not None for new in news)
    lanes = frozenset(lane_of(new.job, new.body) for new in news)
    if not all(sound) or keyed or not _are_apart(units):
        return Batch(units, lanes, keyed=keyed)
    moves = all(_is_plain_move(unit) for unit in units)
    reports = moves and all(_is_report(unit.moves[0]) for unit in units)
    plain = not moves and all(_is_plain_news(unit) for unit in units)
    return Batch(
        units,
        lanes,
        moves=moves,
        news=plain,
        fresh=plain and all(_is_fresh(new) for new in news),
        fusable=reports or (moves and all(_leaves_claims_alone(unit.moves[0]) for unit in units)),
        reports=reports,
    )


def _shared(births: Births) -> Shared | None:
    """What all of them share, if they have one mould."""
    mould = births.rows[0][0]
    return shared(mould) if all(birth[0] is mould for birth in births.rows) else None


def _keys(unit: Unit) -> Iterator[Key]:
    for move in unit.moves:
        yield move.job.tenant, move.job.id
    for new in unit.new:
        yield new.job.tenant, new.job.id


def _are_apart(units: Sequence[Unit]) -> bool:
    """Whether no record stands in two of them."""
    keys = [key for unit in units for key in _keys(unit)]
    return len(keys) == len(set(keys))


def _is_more(unit: Unit) -> bool:
    """Whether it is about anything else than jobs."""
    return unit.flow is not None or bool(unit.puts or unit.gates or unit.limits)


def _is_plain_move(unit: Unit) -> bool:
    if unit.new or _is_more(unit) or len(unit.moves) != 1:
        return False
    move = unit.moves[0]
    if not move.events or move.lost or move.taken_by is not None or _is_rich(move):
        return False
    # A change of queue needs another lane, and a new holder may be one that was given up.
    return all(event.queue is None and event.lease is None for event in move.events)


def _is_plain_news(unit: Unit) -> bool:
    if unit.moves or _is_more(unit):
        return False
    return all(new.job.workflow is None and new.job.step is None for new in unit.new)


_untouched: Final = attrgetter(
    *("version", "previous", "attempt", "failures", "losses", "handed_back", "lease", "holder"),
    *("wire", "lease_us", "activated_at", "claimed_at", "started_at", "received_at", "start_us"),
    *("ended_at", "erased_at", "cancel_at", "force_at", "cause", "returned_by", "delay_us"),
)
_UNTOUCHED: Final = (1, None, 0, 0, 0, 0, None, None, False, *(None,) * 13)


def _is_fresh(new: New) -> bool:
    """Whether it came by one event and the record says no more than that."""
    job, event = new.job, new.events[0]
    if len(new.events) > 1 or event.name != "enqueue" or event.source is not None:
        return False
    at = event.at
    ready_at = at if job.state == "available" else None
    told = (job.created_at, job.state_at, job.last_at, job.enqueued_at, job.ready_at, event.target)
    if told != (at, at, at, ready_at, ready_at, job.state):
        return False
    return _untouched(job) == _UNTOUCHED


def _is_rich(move: Move) -> bool:
    """Whether it brings what is kept in tables of its own, takes it away, or has a workflow."""
    job = move.job
    if job.erased_at is not None or job.workflow is not None:
        return True
    return move.checkpoint is not None or move.meta is not None


def _leaves_claims_alone(move: Move) -> bool:
    return move.events[0].source != "available" and move.job.state != "available"


def _is_report(move: Move) -> bool:
    """Whether one event ends the lease that it names, and the record says no more than that.

    Whatever such an event leaves alone is as it was at the version that the move is fenced by.
    """
    job, event = move.job, move.events[0]
    if move.lease is None or len(move.events) > 1 or event.source not in IN_HANDS:
        return False
    told = (event.source, event.target, event.at, event.at)
    if told != (job.previous, job.state, job.state_at, job.last_at):
        return False
    if job.state in IN_HANDS or job.state == "available":
        return False
    rest = (job.lease, job.lease_us, job.received_at, job.start_us)
    return not job.wire and rest == (None, None, None, None)


def _is_end(unit: Unit) -> bool:
    """Whether it is the report of one completion, with a result and nothing else beside it."""
    if not is_sound(unit) or not _is_plain_move(unit):
        return False
    move = unit.moves[0]
    is_bare = move.failure is None and not move.lines and move.wake_at is None
    return is_bare and _is_report(move) and move.events[0].name == "complete"


def is_sound(unit: Unit) -> bool:
    """Whether its histories go on where its records stand.

    Texts and numbers that cannot be kept are left for the server to refuse.
    """
    keys = list(_keys(unit))
    if len(keys) != 1 and len(keys) != len(set(keys)):
        return False
    return all(_follows(move.job, move.events, move.version) for move in unit.moves) and all(
        new.events and new.body.key != "" and _follows(new.job, new.events, 0) for new in unit.new
    )


def _follows(job: Job, events: tuple[Event, ...], version: int) -> bool:
    for event in events:
        version += 1
        if event.version != version or event.record != job.id or event.tenant != job.tenant:
            return False
        if event.kind != JOB.name:
            return False
    return job.version == version


def flow_keys(unit: Unit) -> set[Key]:
    """The workflows that this unit moves, or that hear of its jobs."""
    jobs = [move.job for move in unit.moves] + [new.job for new in unit.new]
    keys = {(job.tenant, job.workflow) for job in jobs if job.workflow is not None}
    if unit.flow is not None:
        keys.add(key_of(unit.flow.answer.flow.workflow))
    return keys


def waves(units: Sequence[Unit]) -> Iterator[list[Unit]]:
    """Runs of units that do not ask about each other; each run sees what those before it did.

    Any number of moves may be heard by one workflow in a run: no fence asks how it stands, and what
    follows for it is found out move by move. Who moves the workflow itself, or brings it new jobs,
    is judged by how it stands, and so comes before or after all of them.
    """
    wave: list[Unit] = []
    seen: set[object] = set()
    heard: set[object] = set()
    for unit in units:
        names, hears = set(_names(unit)), _hearing(unit)
        # A fingerprint may be that of a job which an earlier unit moves.
        asks = any(new.unique is not None for new in unit.new)
        if names & (seen | heard) or hears & seen or (asks and any(one.moves for one in wave)):
            yield wave
            wave, seen, heard = [], set(), set()
        wave.append(unit)
        seen |= names
        heard |= hears
    if wave:
        yield wave


def _hearing(unit: Unit) -> set[object]:
    """The workflows that only hear of what its jobs do."""
    heard: set[object] = {("flow", *key) for key in flow_keys(unit)}
    return heard - set(_names(unit))


def _names(unit: Unit) -> Iterator[object]:
    yield from _keys(unit)
    if unit.flow is not None or unit.new:
        yield from (("flow", *key) for key in flow_keys(unit))
    yield from (name_of(record) for record in unit.puts)
    yield from (("gate", row.tenant, row.kind, row.name) for row in unit.gates)
    yield from (("limit", row.tenant, row.kind, row.name) for row in unit.limits)
    for new in unit.new:
        if new.unique is not None:
            yield "unique", new.job.tenant, new.unique.fingerprint
        if new.idempotency is not None:
            yield "idempotency", new.job.tenant, new.idempotency.key
