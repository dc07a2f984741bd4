"""An app on a database of Django's: jobs live and die with its atomic blocks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import django
import psycopg
import pytest
from django.conf import settings
from django.db import connections, transaction

from detent import Detent
from detent.errors import BadUrl
from detent.frameworks.django import url_of
from detent.stores import run_migrations
from tests.postgres.server import databases

if not settings.configured:
    settings.configure(DATABASES={})
    django.setup()


def known(alias: str, facts: dict[str, Any]) -> str:
    """Add a database to Django's settings."""
    found = connections.configure_settings({"default": {}, alias: facts})
    connections.databases[alias] = found[alias]
    return alias


def facts_of(database: str, folder: Path) -> dict[str, Any]:
    if database == "sqlite":
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": folder / "shop.db"}
    told = psycopg.conninfo.conninfo_to_dict(databases().of(folder))
    words = {"dbname": "NAME", "user": "USER", "password": "PASSWORD"}
    facts = {word: told.get(name) or "" for name, word in words.items()}
    where = {"HOST": told.get("host") or "", "PORT": str(told.get("port") or "")}
    return {"ENGINE": "django.db.backends.postgresql", **facts, **where}


@pytest.fixture(params=["sqlite", "postgresql"])
def alias(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database with our tables in it, known to Django."""
    alias = known(f"of {tmp_path}", facts_of(request.param, tmp_path))
    run_migrations(url_of(alias))
    yield alias
    connections[alias].close()


def test_a_job_lives_and_dies_with_its_atomic_block(alias: str) -> None:
    with Detent(url_of(alias)) as app:

        @app.job
        def mail(number: int) -> int:
            return number

        inside = mail.using(conn=connections[alias])
        with transaction.atomic(using=alias):
            kept = inside.enqueue(1)
            with transaction.atomic(using=alias):
                inside.enqueue(2)
                transaction.set_rollback(True, using=alias)
            if connections[alias].vendor == "postgresql":
                # A file has one writer, so there nobody else could look without waiting.
                assert app.drain() == []
        assert app.drain() == [kept.id]
        assert kept.result() == 1


SERVER = {"ENGINE": "django.db.backends.postgresql", "NAME": "my shop"}


@pytest.mark.parametrize(
    ("more", "url"),
    [
        ({}, "postgresql:///my%20shop"),
        ({"USER": "a@b", "HOST": "db"}, "postgresql://a%40b@db/my%20shop"),
        (
            {"USER": "ada", "PASSWORD": "p/w", "HOST": "db", "PORT": 5433},
            "postgresql://ada:p%2Fw@db:5433/my%20shop",
        ),
        ({"HOST": "/run/pg"}, "postgresql:///my%20shop?host=%2Frun%2Fpg"),
        (
            {"HOST": "/run/pg", "PORT": 5433, "OPTIONS": {"sslmode": "require"}},
            "postgresql:///my%20shop?sslmode=require&host=%2Frun%2Fpg&port=5433",
        ),
        ({"HOST": "::1", "PORT": 5433}, "postgresql://[::1]:5433/my%20shop"),
        (
            {"HOST": "db", "OPTIONS": {"sslmode": "verify-full", "sslrootcert": "/etc/ca.pem"}},
            "postgresql://db/my%20shop?sslmode=verify-full&sslrootcert=%2Fetc%2Fca.pem",
        ),
        ({"OPTIONS": {"service": "shop", "pool": True}}, "postgresql:///my%20shop?service=shop"),
    ],
)
def test_the_address_says_what_the_settings_say(more: dict[str, Any], url: str) -> None:
    assert url_of(known(f"settings {url}", {**SERVER, **more})) == url


@pytest.mark.parametrize(
    "facts",
    [
        {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"},
        {"ENGINE": "django.db.backends.mysql", "NAME": "shop"},
    ],
)
def test_a_database_that_cannot_be_a_store_is_refused(
    facts: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    alias = known("impossible", {"ENGINE": "django.db.backends.sqlite3", "NAME": "x"})
    monkeypatch.setattr(connections[alias], "settings_dict", facts)
    vendor = str(facts["ENGINE"]).rpartition(".")[2].removesuffix("3")
    monkeypatch.setattr(connections[alias], "vendor", vendor)
    with pytest.raises(BadUrl):
        url_of(alias)
