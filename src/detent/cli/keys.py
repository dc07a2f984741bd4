"""`detent keys create|list|revoke`: who may call the server."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.text import Text

from detent.cli.bundles import expanded
from detent.cli.durations import span_option, span_us
from detent.cli.places import Place, asked
from detent.cli.showing import answer, at, cell, table
from detent.engine.access import Key, Scope
from detent.engine.engine import Engine


@expanded
def create(
    *,
    place: Place,
    scope: Annotated[list[Scope], typer.Option(help="What it opens; admin opens everything.")],
    name: Annotated[str, typer.Option(help="Whose key it is.")] = "",
    for_tenant: Annotated[
        list[str] | None, typer.Option(help="A pattern of tenants; all by default.")
    ] = None,
    queue: Annotated[
        list[str] | None, typer.Option(help="A pattern of queues; all by default.")
    ] = None,
    expires_in: Annotated[
        str | None, span_option(meaning="After that long it opens nothing more.")
    ] = None,
) -> None:
    """Make an API key and show it, this once. From then on the server asks for one."""

    async def work(engine: Engine) -> tuple[Key, str]:
        until = None if expires_in is None else engine.store.now() + span_us(expires_in)
        return await engine.access.create(
            scope,
            name=name,
            tenants=for_tenant or ["*"],
            queues=queue or ["*"],
            expires_at=until,
        )

    key, text = asked(place, work)
    answer(place, {"key": text, **_data(key)}, Text(text))


@expanded
def list_(place: Place) -> None:
    """List the keys and what they open; the keys themselves are kept nowhere."""

    async def work(engine: Engine) -> list[Key]:
        return await engine.access.list()

    found = asked(place, work)
    head = ("id", "name", "scopes", "tenants", "queues", "created", "expires", "revoked")
    data = {"keys": [_data(one) for one in found]}
    answer(place, data, table(head, map(_row, found), "There are no keys."))


@expanded
def revoke(
    place: Place, key_id: Annotated[str, typer.Argument(metavar="ID", help="The id of the key.")]
) -> None:
    """Let a key open nothing more."""

    async def work(engine: Engine) -> Key:
        return await engine.access.revoke(key_id)

    key = asked(place, work)
    answer(place, _data(key), Text(f"Key {key.id} opens nothing more."))


def _data(key: Key) -> dict[str, Any]:
    return {
        "id": key.id,
        "name": key.name,
        "scopes": key.scopes,
        "tenants": key.tenants,
        "queues": key.queues,
        "created_at": at(key.created_at),
        "expires_at": at(key.expires_at),
        "revoked_at": at(key.revoked_at),
    }


def _row(key: Key) -> tuple[Any, ...]:
    return tuple(
        cell(one)
        for one in (
            key.id,
            key.name,
            " ".join(key.scopes),
            " ".join(key.tenants),
            " ".join(key.queues),
            at(key.created_at),
            at(key.expires_at),
            at(key.revoked_at),
        )
    )


KEYS = {"create": create, "list": list_, "revoke": revoke}
