"""`detent migrate`: bring the tables of a store up to date, or say what that would take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from detent import stores
from detent.app.connection import DEFAULT_URL
from detent.cli.output import errors_end, say, say_json, spinner
from detent.cli.places import StoreUrl
from detent.stores.migrations import Migration


def migrate(
    store: StoreUrl = DEFAULT_URL,
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; end with 1 if something is pending.")
    ] = False,
    sql: Annotated[
        bool, typer.Option("--sql", help="Change nothing; print the SQL that would be run.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Answer in JSON.")] = False,
) -> None:
    """Bring the tables of a store up to date. Any number may run it at once; one does the work."""
    if check and sql:
        raise typer.BadParameter("--check contradicts --sql: choose one.")
    with errors_end():
        found = stores.pending_migrations(store) if check or sql else _run(store)
    if as_json:
        word = "pending" if check or sql else "applied"
        say_json({word: [_data(one, with_sql=sql) for one in found]})
    elif sql:
        say(_script(found), encoding="utf-8")
    else:
        say(_told(found, "pending" if check else "applied"))
    if check and found:
        raise typer.Exit(1)


def _run(store: str) -> Sequence[Migration]:
    """What is long is told before it begins; whoever watches a terminal sees what is being run."""
    with spinner("{task.description}") as bar:
        task = bar.add_task("waiting for whoever migrates already", total=None)
        seen: list[int] = []

        def watch(migration: Migration) -> None:
            seen.append(migration.version)
            # In new tables there is nothing that could take long.
            if migration.takes and seen[0] > 1:
                told = f"{migration.file} takes {migration.takes}."
                bar.console.print(told, soft_wrap=True, markup=False, highlight=False)
            bar.update(task, description=migration.file)

        return stores.run_migrations(store, watch)


def _data(migration: Migration, *, with_sql: bool) -> dict[str, Any]:
    told = {"version": migration.version, "name": migration.name, "min_code": migration.min_code}
    return {**told, "sql": migration.sql} if with_sql else told


def _script(found: Sequence[Migration]) -> str:
    """One transaction. A shell that goes on after an error would commit half of it: hence -bail."""
    if not found:
        return "-- The tables are up to date: there is nothing to run.\n"
    parts = [f"-- {one.file}\n{one.sql}" for one in found]
    head = "-- Stop at the first error: sqlite3 -bail FILE, psql -v ON_ERROR_STOP=1.\n"
    return "\n".join([f"{head}BEGIN;\n", *parts, "COMMIT;\n"])


def _told(found: Sequence[Migration], word: str) -> str:
    if not found:
        return "The tables are up to date.\n"
    return "".join(f"{word}  {one.file}  ({_about(one, word)})\n" for one in found)


def _about(migration: Migration, word: str) -> str:
    needs = f"needs code {migration.min_code} or newer"
    return f"{needs}; takes {migration.takes}" if migration.takes and word == "pending" else needs
