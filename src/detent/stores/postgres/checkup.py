"""What can be wrong with a server: its settings, its load, its clock, who holds it up, our rights.

All of it is asked on one connection of its own, with little patience. Nothing is changed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Final

from detent.errors import StoreError, StoreUnavailable
from detent.stores.checks import Check, Grade, fine, harm, notice, refused, sealed, warning
from detent.stores.migrations import checked
from detent.stores.postgres.address import Address, read
from detent.stores.postgres.connection import Connection, open_connection
from detent.stores.postgres.faults import FAULTS, translated
from detent.stores.postgres.migrate import versions
from detent.stores.postgres.server import LOSES, ServerClock, need_fit, promises
from detent.stores.postgres.statements import MIGRATIONS

LONG_S: Final = 300
"""A transaction that is open for so long keeps what was deleted since from being cleaned away."""
_BESIDE: Final = 4
"""How many connections a process has beside those that it shares among its calls."""
_DEAD: Final = 50_000
_APART_US: Final = 2_000_000
_NAMED: Final = 5
_COUNTED: Final = 100_000


async def checkup(url: str, within_s: float) -> list[Check]:
    """Everything that can be found out about this database."""
    address = read(url)
    try:
        async with asyncio.timeout(within_s):
            connection = await open_connection(address, answer_s=within_s)
    except FAULTS as error:
        return [_away(address, _told(error, within_s))]
    try:
        async with asyncio.timeout(2 * within_s):
            return await _asked(connection, address)
    except StoreError as error:
        return [_away(address, error)]
    except FAULTS as error:
        return [_away(address, _told(error, within_s))]
    finally:
        connection.drop()


def _told(error: Exception, within_s: float) -> StoreError:
    if isinstance(error, TimeoutError):
        return StoreUnavailable(f"The server does not answer within {within_s:g} s")
    return translated(error)


def _away(address: Address, error: StoreError) -> Check:
    why = "without the database nothing is enqueued, claimed or ended"
    mend = f"see that psql '{address.shown}' gets in from this machine, with this role"
    return refused("store", error, why, mend)


async def _asked(connection: Connection, address: Address) -> list[Check]:
    clock = await need_fit(connection)
    rights = await _rights(connection)
    found = [
        fine("store", f"PostgreSQL {connection.driver.get_server_version().major}"),
        rights,
        apart(clock() - time.time_ns() // 1_000),
        *_kept(promises(await connection.fetch("promises"))),
        *await _load(connection, address),
        await open_long(connection, LONG_S),
        await _dead(connection),
        await _pooler(connection, address),
    ]
    # Who may not look into the tables learns nothing more than that.
    return found if rights.grade is Grade.BAD else [*found, *await _tables(connection, clock)]


async def _tables(connection: Connection, clock: ServerClock) -> list[Check]:
    tables = checked(MIGRATIONS, await versions(connection))
    if tables.grade is Grade.BAD:
        return [tables]
    try:
        row = await connection.fetch_row("unsealed", most=_COUNTED)
    except FAULTS as error:
        why = "somebody has locked it, so jobs may wait, too"
        return [tables, refused("seals", translated(error), why, "see who waits for whom")]
    behind, at = row or (0, None)
    return [tables, sealed(max(behind, 0), 0 if at is None else clock() - at)]


def apart(us: int) -> Check:
    """Whether the server's clock, by which everybody goes, is also that of this machine."""
    found = f"the server's clock is {us / 1_000_000:+.1f} s from that of this machine"
    if abs(us) <= _APART_US:
        return fine("clock", found)
    why = "jobs go by the server's clock: what this machine says to run at noon runs at another"
    return warning("clock", found, why, "let both keep time by NTP")


def _kept(broken: Sequence[Check]) -> Sequence[Check]:
    all_on = ", ".join(sorted(LOSES))
    return broken or [fine("durability", f"what is committed is on the disk: {all_on} are on")]


async def _load(connection: Connection, address: Address) -> list[Check]:
    row = await connection.fetch_row("load")
    most, used, has_autovacuum = row or (0, 0, True)
    one = address.connections + _BESIDE
    found = f"{used} of {most} connections are taken; a process of ours takes up to {one}"
    why = "who finds none free cannot start, and after a failover all come back at once"
    mend = "raise max_connections, lower connections= in the address, or use a pooler"
    room = warning("connections", found, why, mend)
    return [
        fine("connections", found) if most - used >= 2 * one else room,
        fine("autovacuum", "is on")
        if has_autovacuum
        else warning(
            "autovacuum",
            "is off for the server",
            "a queue lives by changing rows: what is dead is never cleaned away, and claims slow"
            " down",
            "set autovacuum = on",
        ),
    ]


async def open_long(connection: Connection, older_s: int) -> Check:
    """Who has had a transaction open for so long."""
    rows = await connection.fetch("open_long", older_s=older_s)
    if not rows:
        return fine("transactions", f"none that we are shown is open for {older_s} s")
    found = "; ".join(f"{who} is {what} for {seconds} s" for who, what, seconds in rows)
    why = "nothing that was changed since can be cleaned away, so claims get slower all the time"
    mend = "end it: SELECT pg_terminate_backend(PID), or ROLLBACK PREPARED; set"
    return warning(
        "transactions", found, why, f"{mend} idle_in_transaction_session_timeout for that role"
    )


async def _dead(connection: Connection) -> Check:
    rows = await connection.fetch("dead_rows", least=_DEAD)
    if not rows:
        return fine("dead rows", "no table has more dead rows than live ones")
    found = ", ".join(f"{table}: {dead} dead beside {live}" for table, dead, live in rows)
    why = "claims walk over them; autovacuum is off, cannot keep up, or is held up by somebody"
    return warning("dead rows", found, why, "end long transactions, then VACUUM the table")


async def _pooler(connection: Connection, address: Address) -> Check:
    """A pooler makes up the number by which a query is called off; the server knows its own."""
    row = await connection.fetch_row("backend")
    is_pooled = row is not None and row[0] != connection.driver.get_server_pid()
    if not is_pooled:
        return fine("pooler", "none in between")
    if address.listen_url != address.url:
        return fine("pooler", "in between; news come by listen_url")
    why = "news do not come through it: workers look once a second instead of being told"
    mend = "name the server itself in listen_url= of the address"
    return warning("pooler", "in between, and no listen_url in the address", why, mend)


async def _rights(connection: Connection) -> Check:
    row = await connection.fetch_row("rights")
    role, is_superuser, may_use, missing = row or ("", False, True, [])
    lacking = [*([] if may_use else ["USAGE on the schema detent"]), *missing]
    if lacking:
        more = f" and {len(lacking) - _NAMED} more" if len(lacking) > _NAMED else ""
        why = "calls that need it fail with store_refused, some of them only months later"
        mend = f"GRANT it to {role}; the page on PostgreSQL lists what a role needs"
        return harm("rights", f"{role} lacks {', '.join(lacking[:_NAMED])}{more}", why, mend)
    if is_superuser:
        why = "whoever gets hold of its password has the whole server, histories included"
        mend = "make a role that owns the schema detent and nothing else"
        return notice("rights", f"{role} is a superuser", why, mend)
    return fine("rights", f"{role} may do what it has to")
