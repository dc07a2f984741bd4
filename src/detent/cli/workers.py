"""`detent workers list|tree|history|suspend|resume|stop|start|restart|kill|logs|stacks`."""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer
from msgspec.structs import replace
from rich.text import Text
from rich.tree import Tree

from detent.cli.bundles import expanded
from detent.cli.durations import span_option, span_us
from detent.cli.output import counted, say
from detent.cli.places import Author, Place, asked, errors_end_the_command
from detent.cli.showing import answer, at, cell, state_cell, table
from detent.cli.workerlogs import logs, stacks
from detent.cli.workerpictures import Drawn, drawn_life, drawn_tree
from detent.cli.workerrows import data_of, host_of, row_of, slot_of, state_of
from detent.engine.directives import Directive, Verb
from detent.engine.engine import Engine
from detent.engine.workers import Listed
from detent.errors import AmbiguousId, BadOption, UnknownWorker, WorkerSilent
from detent.lifecycle import WORKER
from detent.lifecycle.event import Event

_ID_SHOWN = 13
_SHOWN = 5
_WAIT_S = 60.0
_LOOKED_AT = 100
"""Of how many that left a slot it is looked up whose they were."""
Which = Annotated[
    str,
    typer.Argument(
        metavar="WORKER", help="An instance by the beginning of its id, or a slot such as worker-1."
    ),
]
WhichOrAll = Annotated[
    str | None, typer.Argument(metavar="WORKER", help="An instance or a slot; all if left out.")
]
Wait = Annotated[str, span_option("--wait", meaning="How long to wait for the answer.")]
Gone = Annotated[bool, typer.Option("--gone", help="Those that have ended instead.")]
All = Annotated[
    bool, typer.Option("--all", help="Also what supervisors run in their own processes.")
]


@expanded
def list_(place: Place, gone: Gone = False, every: All = False) -> None:
    """List worker instances: where they run, in which state, since when, last heard of when."""
    found = _found(place, gone=gone, every=every)
    head = ("instance", "slot", "host", "pid", "state", "since", "last beat", "queues")
    answer(
        place,
        {"workers": [data_of(one, host) for one, host in found]},
        table(head, [row_of(one, host) for one, host in found], "There are no workers."),
    )


@expanded
def tree(place: Place, every: All = False, picture: Drawn = None) -> None:
    """Draw the workers below the supervisors that keep them."""
    found = _found(place, every=every)
    kept = _by_keeper(found)
    if picture is not None:
        _draw(place, drawn_tree(kept, picture))
        return
    drawn = Tree(counted(len(found), "worker"))
    for named, some in kept.items():
        branch = drawn.add(cell(named))
        for slot, one in some:
            branch.add(cell(f"{slot} ").append(state_of(one)).append(f" {one.id}"))
    answer(place, {"workers": [data_of(one, host) for one, host in found]}, drawn)


def _by_keeper(found: Sequence[tuple[Listed, str]]) -> dict[str, list[tuple[str, Listed]]]:
    """The workers of each supervisor, all of them by what they are called."""
    kept: defaultdict[str, list[tuple[str, Listed]]] = defaultdict(list)
    for one, host in found:
        keeper = f"supervisor {one.supervisor[:_ID_SHOWN]}" if one.supervisor else "no supervisor"
        kept[f"{host or 'unknown host'}: {keeper}"].append((slot_of(one), one))
    return {name: sorted(kept[name], key=lambda pair: pair[0]) for name in sorted(kept)}


@expanded
def history(place: Place, which: Which, picture: Drawn = None) -> None:
    """Tell the life of one instance, move by move."""

    async def work(engine: Engine) -> Sequence[Event]:
        found = [*await engine.workers.listed(), *await engine.workers.listed(gone=True)]
        one = max(_called(found, which), key=lambda one: one.since)
        return await engine.workers.history(one.id)

    events = asked(place, work)
    if picture is not None:
        _draw(place, drawn_life(events, picture))
        return
    head = ("at", "event", "to", "by", "cause", "reason")
    rows = [
        (
            *map(cell, (at(one.at), one.name)),
            state_cell(one.target, WORKER) if one.target else cell(""),
            *map(cell, (f"{one.actor} {one.actor_id}", one.cause, one.reason)),
        )
        for one in events
    ]
    answer(place, {"events": events}, table(head, rows, "Nothing is known of it."))


def _draw(place: Place, text: str) -> None:
    """Programs read it, and its format is defined in UTF-8 whatever the terminal speaks."""
    if place.as_json:
        raise typer.BadParameter("--json contradicts --format.")
    say(text, encoding="utf-8")


def _telling(verb: Verb, meaning: str) -> Callable[..., None]:
    """A command that tells the supervisor of a worker something, and waits for its answer."""

    @expanded
    def command(
        place: Place,
        author: Author,
        which: WhichOrAll = None,
        every: Annotated[
            bool, typer.Option("--all", help="All workers of all fleets, without a question.")
        ] = False,
        grace: Annotated[
            str | None, span_option(meaning="How long it may take the worker.")
        ] = None,
        wait: Wait = f"{_WAIT_S:g}s",
    ) -> None:
        _need_sure(place, verb, which, every=every)

        async def work(engine: Engine) -> list[dict[str, Any]]:
            grace_s = None if grace is None else span_us(grace) / 1_000_000
            within_s = span_us(wait) / 1_000_000
            meant = await (_empty if verb is Verb.START else _meant)(engine, which)
            wishes = [
                (one, replace(_wished(one, verb, which), grace_s=grace_s, reason=author.reason))
                for one in _once_per_slot(meant)
            ]
            # All at once: each has its own time, and one that will not keeps nobody from hearing.
            return await asyncio.gather(
                *(_told(engine, one, wish, author, within_s) for one, wish in wishes)
            )

        _report(place, verb, asked(place, work))

    command.__doc__ = meaning
    return command


def _need_sure(place: Place, verb: Verb, which: str | None, *, every: bool) -> None:
    """Ask before all workers are ended; a script has to say `--all`."""
    if which is not None and every:
        raise typer.BadParameter("--all contradicts WORKER.")
    if which is not None or every or verb not in _ENDING:
        return
    found = asked(place, lambda engine: _meant(engine, None))
    if not found:
        return
    fleets = counted(len({one.supervisor for one in found}), "fleet")
    what = f"{verb} all workers: {len(found)} of {fleets}"
    if sys.stdin.isatty() and sys.stderr.isatty():
        typer.confirm(f"This is to {what}. Go on?", abort=True, err=True)
        return
    with errors_end_the_command():
        why = f"Without a name this would {what}"
        raise BadOption(f"{why}. Name a worker, or say --all", option="all")


def _wished(one: Listed, verb: Verb, which: str | None) -> Directive:
    """Who names an instance means that one, not whoever has its slot by now; or fills the slot."""
    slot = slot_of(one)
    is_named = which is not None and which != slot and verb is not Verb.START
    name = one.id if is_named else ""
    return Directive(id="", supervisor=one.supervisor, verb=verb, slot=slot, instance=name)


async def _told(
    engine: Engine, one: Listed, wish: Directive, author: Author, within_s: float
) -> dict[str, Any]:
    said = await engine.directives.ask(wish, author.by, within_s)
    told = {"worker": one.id, "slot": wish.slot, "verb": wish.verb}
    if said is None:
        told["error"] = (
            f"its supervisor on {host_of(one) or 'an unknown host'} has not answered"
            f" within {within_s:g} s. What it did not hear was taken back"
        )
    elif said.error is not None:
        told["error"] = said.error
    return told


def _report(place: Place, verb: Verb, told: Sequence[dict[str, Any]]) -> None:
    """Who has done it, and then who has not, which ends the command."""
    done = [one for one in told if "error" not in one]
    refused = [one for one in told if "error" in one]
    lines = Text("\n").join(cell(f"{_whose(one, told)}: {verb}") for one in done)
    if not told:
        lines = Text("There are no workers.")
    if done or not refused or place.as_json:
        answer(place, {"told": done, **({"refused": refused} if refused else {})}, lines)
    with errors_end_the_command():
        if refused:
            why = "; ".join(f"{_whose(one, told)}: {one['error']}" for one in refused)
            raise WorkerSilent(why, workers=[one["worker"] for one in refused])


def _whose(one: dict[str, Any], told: Sequence[dict[str, Any]]) -> str:
    """The slot; where several fleets have one of that name, with the worker that is in it."""
    slot = one["slot"] or "all"
    is_alone = sum(other["slot"] == one["slot"] for other in told) == 1
    return slot if is_alone else f"{slot} ({one['worker']})"


# What ends a worker, and with it perhaps what it runs.
_ENDING = (Verb.STOP, Verb.RESTART, Verb.KILL)
_ACTS = {
    Verb.SUSPEND: "Let a worker finish what it does and take nothing more, until it is resumed.",
    Verb.RESUME: "Let a suspended worker go on.",
    Verb.STOP: "Stop a worker, and keep its slot empty.",
    Verb.START: "Fill a slot again that was stopped.",
    Verb.RESTART: "Stop a worker and start another in its place.",
    Verb.KILL: "End a worker and everything it has started, now.",
}
WORKERS: dict[str, Callable[..., None]] = {
    "list": list_,
    "tree": tree,
    "history": history,
    "logs": logs,
    "stacks": stacks,
    **{verb.value: _telling(verb, meaning) for verb, meaning in _ACTS.items()},
}


def _found(place: Place, *, gone: bool = False, every: bool) -> list[tuple[Listed, str]]:
    """Instances, each with its host: of one that does not tell, the host of its supervisor."""

    async def work(engine: Engine) -> list[Listed]:
        return await engine.workers.listed(gone=gone)

    found = asked(place, work)
    hosts = {one.supervisor: host for one in found if one.supervisor and (host := host_of(one))}
    shown = [one for one in found if every or one.is_process]
    return [(one, host_of(one) or hosts.get(one.supervisor, "")) for one in shown]


async def _meant(engine: Engine, which: str | None) -> list[Listed]:
    """The instances that a name stands for: one by its id, or all in slots of that name."""
    found = await engine.workers.listed()
    return [one for one in found if _is_kept(one)] if which is None else _called(found, which)


async def _empty(engine: Engine, which: str | None) -> list[Listed]:
    """Where somebody is to be started: what is known of an empty slot is who left it last.

    Without a name that is whatever is empty, at every supervisor that is there.
    """
    found = await engine.workers.listed()
    alive = {one.supervisor: one for one in found if one.instance is not None and one.supervisor}
    if which is None:
        return [Listed(one.id, "", 0, supervisor=keeper) for keeper, one in alive.items()]
    called = _called([*found, *await engine.workers.listed(gone=True)], which)
    latest = sorted(called, key=lambda one: one.since)[-_LOOKED_AT:]
    meant = [one for one in await engine.workers.kept(latest) if one.supervisor in alive]
    if not meant:
        why = f"The supervisor that kept {which!r} has ended: start it again, with its workers"
        raise UnknownWorker(why, name=which)
    return meant


def _called(found: Sequence[Listed], which: str) -> list[Listed]:
    """Those in slots of that name, or the one whose id begins so: never several by chance."""
    called = [one for one in found if which and slot_of(one) == which]
    begun = [one for one in found if which and one.id.startswith(which)]
    if not called and not begun:
        raise UnknownWorker(f"No worker is called {which!r}: see detent workers list", name=which)
    if not called and len(begun) > 1:
        named = ", ".join(f"{one.id} ({slot_of(one)})" for one in begun[:_SHOWN])
        more = " and more" if len(begun) > _SHOWN else ""
        why = f"The ids of several workers begin with {which}: {named}{more}. Give more of it"
        raise AmbiguousId(why, ids=tuple(one.id for one in begun))
    return called or begun


def _is_kept(one: Listed) -> bool:
    """Whether it is a worker process of a fleet, and not a part of the supervisor itself."""
    return one.row is not None and one.row.who is not None and not one.row.who.embedded


def _once_per_slot(meant: Sequence[Listed]) -> list[Listed]:
    return list({(one.supervisor, slot_of(one)): one for one in meant}.values())
