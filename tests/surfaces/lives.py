"""Random lives of jobs that are pushed to engines, with everything that goes wrong on the way.

Engines here are those of the protocol: each believes what it was told, says things late, twice, out
of turn and under leases that are over, loses its connection, comes back as the same run or as
another, or never. Servers are killed; the next one knows only what is stored. Time is virtual.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from typing import Any, NamedTuple

from detent.engine.asks import Ask
from detent.engine.commands import Beside, Change
from detent.engine.engine import Engine
from detent.engine.engines import Seated
from detent.engine.enqueueing import Enqueued
from detent.errors import EngineInUse
from detent.lifecycle import job as j
from detent.lifecycle.event import By
from detent.lifecycle.job.table import ENDED
from detent.lifecycle.machine import Actor, Refusal
from detent.lifecycle.profile import Deadlines, ProfileName
from detent.lifecycle.retry import ErrorInfo, RetryPolicy
from detent.stores.api import Failure, Key, Store, Want, key_of
from detent.surfaces.engines.projecting import Item, page_of
from tests.contract.making import SECOND, USER, Clock

TYPES = ("BUILD_SCENE", "LOAD_ASSETS", "SPAWN_ENTITY")
CODES = ("BAD_ASSET", "INVALID_ENTITY", "OUT_OF_MEMORY", "own.code")
_DISPATCH = By(Actor.SYSTEM, "dispatch")
_LONG = 60 * SECOND
CAPACITY = 30


class Hand(NamedTuple):
    """A job in the hands of an engine, as it believes."""

    key: Key
    lease: str
    holder: str
    attempt: int


class Player:
    """An engine: who it says it is, and what it believes to have."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.boot = f"{name}-boot"
        self.holder = ""
        self.seat = ""
        self.away_until = 0
        self.offered: dict[str, Hand] = {}
        self.begun: dict[str, Hand] = {}

    @property
    def hands(self) -> dict[str, Hand]:
        return {**self.offered, **self.begun}

    def forget(self, name: str) -> None:
        self.offered.pop(name, None)
        self.begun.pop(name, None)


class Lives:
    """Some thousand of them, from the first word to the last."""

    def __init__(self, store: Store, clock: Clock, seed: int) -> None:
        self.store = store
        self.clock = clock
        self.chance = random.Random(seed)
        self.engine = Engine(store, jitter=lambda: 0.5)
        self.players = [Player(f"engine-{number}") for number in range(4)]
        self.live: dict[str, Key] = {}
        self.made: list[Key] = []
        self.heard: defaultdict[str, list[Item]] = defaultdict(list)
        self.succeeded: set[str] = set()
        self.given: set[tuple[str, str]] = set()
        self.happened: Counter[str] = Counter()
        self._old: list[Change] = []
        self._cursor = 0
        self._seats = 0

    async def run(self, count: int) -> None:
        """So many jobs, until all of them have ended."""
        while len(self.made) < count or self.live:
            self.clock.move(self.chance.randrange(10, 3_000) * 1_000)
            if len(self.made) < count:
                await self._submit(min(self.chance.randrange(20, 60), count - len(self.made)))
            if self.chance.random() < 0.12:
                await self._restart()
            for player in self.players:
                await self._play(player)
            await self._call_off()
            while (await self.engine.upkeep.turn()).is_busy:
                pass
            await self._listen()
        await self._listen()
        await self.engine.__aexit__(None, None, None)

    # --- somebody who submits -------------------------------------------------------------------

    async def _submit(self, count: int) -> None:
        answers = await self.engine.enqueue([self._ask() for _ in range(count)], USER)
        for answer in answers:
            assert isinstance(answer, Enqueued)
            self.live[answer.job.id] = key_of(answer.job)
            self.made.append(key_of(answer.job))

    def _ask(self) -> Ask:
        chance = self.chance
        spans = [chance.choice((1, 5, 30)) * SECOND for _ in range(2)]
        policy = RetryPolicy(max_attempts=chance.choice((1, 1, 2, 3)), initial_us=100_000)
        return Ask(
            type=chance.choice(TYPES),
            payload='{"args":[],"kwargs":{}}',
            meta='{"userId":"ann"}',
            profile=ProfileName.ENGINE,
            queue="engines",
            deadlines=Deadlines(chance.choice((2, 30)) * SECOND, *spans),
            retry=policy,
        )

    async def _call_off(self) -> None:
        for name in self.chance.sample(sorted(self.live), min(2, len(self.live))):
            await self.engine.operators.cancel(self.live[name], USER)
            self.happened["cancel"] += 1

    # --- engines --------------------------------------------------------------------------------

    async def _play(self, player: Player) -> None:
        now = self.clock.now
        if not player.seat:
            if now >= player.away_until:
                await self._enter(player)
            return
        if self.chance.random() < 0.15:
            await self._break(player)
            return
        [is_alive] = await self.engine.engines.beat([player.holder])
        if not is_alive:
            await self._break(player)
            return
        await self._dispatch(player)
        await self._report(player)

    async def _enter(self, player: Player) -> None:
        """Come, or come back: as the same run with some of what it had, or as another."""
        if self.chance.random() < 0.35:
            player.boot = f"{player.boot}x"[-40:]
            player.offered, player.begun = {}, {}
            self.happened["another boot"] += 1
        kept = {one: hand for one, hand in player.hands.items() if self.chance.random() < 0.8}
        self._seats += 1
        coming = Seated(
            boot=player.boot,
            seat=f"s{self._seats}",
            types=TYPES,
            queues=("engines",),
            capacity=CAPACITY,
        )
        presented = {name: hand.lease for name, hand in kept.items()}
        try:
            entered = await self.engine.engines.enter(("", player.name), coming, presented)
        except EngineInUse:
            self.happened["in use"] += 1
            player.away_until = self.clock.now + SECOND
            return
        if player.hands:
            self.happened["resume"] += 1
        player.holder, player.seat = entered.holder, coming.seat
        held = {stored.job.id for stored in entered.held}
        for name in player.hands:
            if name not in held:
                player.forget(name)

    async def _break(self, player: Player, *, is_crash: bool = False) -> None:
        """The connection ends; whether the server notices is another matter."""
        self.happened["disconnect"] += 1
        if not is_crash:
            await self.engine.engines.leave(("", player.name), player.seat)
        player.seat = ""
        player.away_until = self.clock.now + self.chance.choice((1, 2, 5, 14, 40)) * SECOND

    async def _restart(self) -> None:
        """The server is killed: what it knew is gone, and so are all connections."""
        self.happened["restart"] += 1
        self.engine = Engine(self.store, jitter=lambda: 0.5)
        for player in self.players:
            if player.seat:
                await self._break(player, is_crash=True)

    async def _dispatch(self, player: Player) -> None:
        room = CAPACITY - len(player.hands)
        if room <= 0:
            return
        new = self.engine.identity.id
        leases = tuple(new() for _ in range(room))
        want = Want(
            command_id=new(),
            by=_DISPATCH,
            holder=player.holder,
            leases=leases,
            queues=("engines",),
            types=TYPES,
            push=True,
        )
        for stored in (await self.engine.claim(want)).jobs:
            job = stored.job
            self.given.add((job.id, player.name))
            if self.chance.random() < 0.03:
                # The message was lost with its connection, or is read too late.
                self.happened["late"] += 1
                continue
            hand = Hand(key_of(job), job.lease or "", player.holder, job.attempt)
            player.offered[job.id] = hand

    async def _report(self, player: Player) -> None:
        """Each job says something, or nothing; some of it twice, some of it long ago."""
        chance, said = self.chance, list[Change]()
        for name, hand in player.hands.items():
            for command, error in self._words(name in player.begun):
                said.append(self._change(hand, command(hand.lease), error))
        again = [one for one in said if chance.random() < 0.1]
        old = chance.sample(self._old, min(5, len(self._old)))
        self._old = [*self._old[-200:], *chance.sample(said, min(5, len(said)))]
        for batch in (said, again, old):
            self.happened["repeated" if batch is again else "said"] += len(batch)
            answers = await self.engine.carry_out(batch)
            for change, answer in zip(batch, answers, strict=True):
                self._hear(player, change, answer)

    def _words(self, is_begun: bool) -> list[Any]:
        """What an engine says about a job in this round: a command of its lease, and an error."""
        code, dice = self.chance.choice(CODES), self.chance.random()
        error = ErrorInfo(code, retryable=self.chance.choice((None, None, False)))
        complete = (lambda lease: j.Complete(lease=lease), None)
        if dice < 0.25:
            return []
        if not is_begun:
            if dice < 0.32:
                return [(lambda lease: j.Refuse(lease=lease, code=code), error)]
            if dice < 0.37:
                return [complete]
            if dice < 0.5:
                return [(lambda lease: j.Receive(lease=lease, start_us=_LONG), None)]
            return [(lambda lease: j.Acknowledge(lease=lease), None)]
        if dice < 0.4:
            return [(lambda lease: j.Fail(lease=lease, code=code), error)]
        if dice < 0.5:
            return [(lambda lease: j.ConfirmCancel(lease=lease), None)]
        return [complete]

    def _change(self, hand: Hand, command: j.Command, error: ErrorInfo | None) -> Change:
        beside = Beside()
        if error is not None:
            beside = Beside(failure=Failure(hand.attempt, self.clock.now, error.code, "it broke"))
        by = By(Actor.WORKER, hand.holder)
        return Change(hand.key, command, by, beside=beside, error=error)

    def _hear(self, player: Player, change: Change, answer: j.Answer) -> None:
        name = change.key[1]
        if isinstance(answer, Refusal):
            self.happened[f"refused {type(change.command).__name__}"] += 1
            if answer.code in ("lease_ended", "final"):
                player.forget(name)
            return
        if answer.job.state.value == "completed" and isinstance(change.command, j.Complete):
            self.succeeded.add(name)
        if isinstance(change.command, j.Acknowledge) and name in player.offered:
            player.begun[name] = player.offered.pop(name)
        if answer.job.lease is None:
            player.forget(name)

    # --- a subscriber ---------------------------------------------------------------------------

    async def _listen(self) -> None:
        """Reads on from its cursor, in pages of any size, now and then; it too may be restarted."""
        while self.chance.random() < 0.8 or not self.live:
            page = await self.store.feed(self._cursor, self.chance.randrange(50, 700))
            if not page:
                break
            for item in await page_of(self.store, page):
                self.heard[item.data["jobId"]].append(item)
            self._cursor = page[-1].pos
        found = await self.store.get(list(self.live.values()))
        for name, stored in zip(list(self.live), found, strict=True):
            if stored is not None and stored.job.state in ENDED:
                del self.live[name]
