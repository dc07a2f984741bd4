"""`detent replay`: a job as it was at any moment, rebuilt from its history alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import msgspec
import typer

from detent.cli.bundles import expanded
from detent.cli.jobdata import event_data
from detent.cli.places import Place, asked
from detent.cli.showing import answer, at, facts
from detent.engine.engine import Engine
from detent.engine.naming import meant
from detent.engine.queries import Shown
from detent.lifecycle.event import Event
from detent.lifecycle.job import Job
from detent.lifecycle.replay import at_time, audit
from detent.lifecycle.views import VIEWS

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_US = timedelta(microseconds=1)


@expanded
def replay(
    place: Place,
    job: Annotated[str, typer.Argument(metavar="JOB", help="The id of the job.")],
    when: Annotated[
        str | None,
        typer.Option("--at", metavar="TIME", help="An instant such as 2026-01-31T12:00:00Z."),
    ] = None,
) -> None:
    """Show a job as it was at an instant, in the words of every protocol; now by default.

    Nothing but its history is read. Ends with 1 if it was not there yet, or if no legal life could
    have such a history.
    """
    until = None if when is None else _instant(when)

    async def work(engine: Engine) -> Shown:
        return await engine.queries.show(await meant(engine.store, (place.tenant, job)))

    shown = asked(place, work)
    events = [one for one in shown.history if until is None or one.at <= until]
    # The record of today is a witness only where nothing is left out.
    fault = audit(shown.history, shown.stored.job)
    record: Job | None = at_time(events, until or shown.stored.job.last_at)
    data = _data(shown.stored.job.id, record, events, None if fault is None else fault.message)
    answer(place, data, _told(data))
    if record is None or fault is not None:
        raise typer.Exit(1)


def _instant(text: str) -> int:
    try:
        found = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no instant like 2026-01-31T12:00:00Z.") from None
    if found.tzinfo is None:
        raise typer.BadParameter(f"{text!r} has no time zone; for UTC put a Z behind it.")
    return (found - _EPOCH) // _US


def _data(job: str, record: Job | None, events: list[Event], fault: str | None) -> dict[str, Any]:
    told: dict[str, Any] = {"id": job, "existed": record is not None, "fault": fault}
    if record is not None:
        told["version"], told["state"] = record.version, record.state.value
        told["views"] = {name: view.word(record) for name, view in VIEWS.items()}
        told["record"] = msgspec.to_builtins(record)
        told["last_event"] = event_data(events[-1])
    return told


def _told(data: dict[str, Any]) -> Any:
    if not data["existed"]:
        return facts(("job", data["id"]), ("state", "it was not there yet"))
    record, last = data["record"], data["last_event"]
    return facts(
        ("job", data["id"]),
        ("state", data["state"]),
        ("since", at(record["state_at"])),
        ("version", data["version"]),
        ("last event", f"{last['event']} at {last['at']}"),
        ("attempt", record.get("attempt", 0)),
        ("holder", record.get("holder")),
        *((f"in {name}", word) for name, word in data["views"].items()),
        ("fault", data["fault"]),
    )
