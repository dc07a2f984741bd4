"""Enqueue inside somebody's own transaction: jobs and the caller's rows appear together, or not.

    with psycopg.connect(url) as connection:
        connection.execute("INSERT INTO orders ...")
        outcome = enqueue(connection, unit, now)

`enqueue` is for connections that block, `aenqueue` for those that are awaited; `complete` and
`acomplete` end the job of a handler in the same way. The kind of a
connection is told by its class, so no driver is imported that is not in use already. Nothing is
committed here: whatever is answered holds if the caller's transaction does. A unit that is refused
leaves nothing, and the transaction can go on.
"""

from __future__ import annotations

from detent.stores.inside.joining import acomplete, aenqueue, complete, enqueue

__all__ = ["acomplete", "aenqueue", "complete", "enqueue"]
