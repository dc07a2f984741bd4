"""A process that is killed around the commit that ends its job: `python -m tests.app.completer`."""

from __future__ import annotations

import os
import sqlite3
import sys

import psycopg

from detent import Context, Detent


def work(url: str, dies: str) -> None:
    """Run one job that ends in its own transaction; say when, and wait for the end there."""
    app = Detent(url)

    @app.job(name="pay", retry=2)
    def pay(ctx: Context, _number: int) -> None:
        is_file = url.startswith("sqlite:")
        connection = sqlite3.connect(url[9:]) if is_file else psycopg.connect(url)
        connection.execute("INSERT INTO orders (what) VALUES ('one')")
        ctx.complete("paid", conn=connection)
        if dies == "after":
            connection.commit()
        os.write(1, b"there\n")
        sys.stdin.read()

    app.drain()


if __name__ == "__main__":
    work(sys.argv[1], sys.argv[2])
