"""Databases in which jobs and what they are about stood in two tables: nothing of it is lost."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import sql as words

from detent import stores
from detent.lifecycle.retry import RetryPolicy
from detent.stores.postgres import migrate
from detent.stores.postgres.statements import MIGRATIONS
from detent.stores.select import Filter
from tests.cli.commands import detent
from tests.contract.world import World
from tests.postgres.running import in_world, sql
from tests.postgres.server import databases

_LAST = 10
"""The last version with two tables."""
_LONG = "x" * 100_000
_ROWS = """
    INSERT INTO detent.lanes (digest, tenant, queue, type, profile, delivery, key)
    VALUES (detent.digest_of(ARRAY['', 'default', 'mail.send', 'python', 'pull', '']),
        '', 'default', 'mail.send', 'python', 'pull', '');
    INSERT INTO detent.jobs (
        tenant, id, version, state, profile, queue, priority, delivery, allowed, losses_allowed,
        created_at, state_at, last_at, place, held, attempt, failures, losses, handed_back, wire,
        enqueued_at, ready_at, lane
    )
    SELECT '', id, 1, 'available', 'python', 'default', 0, 'pull', 3, 3, 1, 1, 1, place, false,
        0, 0, 0, 0, false, 1, 1, 1
    FROM (VALUES ('plain', 1), ('rich', 2)) AS told (id, place);
    INSERT INTO detent.bodies (tenant, id, type, payload, meta, tags, retry, schema) VALUES
        ('', 'plain', 'mail.send', '[1]', '{}', NULL, NULL, NULL),
        ('', 'rich', 'mail.send', '["LONG"]', '{"a":1}', '["red"]', '{"max_attempts":7}', 'v2');
    INSERT INTO detent.tags (tenant, tag, id) VALUES ('', 'red', 'rich');
    INSERT INTO detent.tallies (lane, state, count) VALUES (1, 'available', 2);
    INSERT INTO detent.events (
        tenant, record, version, at, name, target, actor, actor_id, command_id, kind, rest
    )
    SELECT '', id, 1, 1, 'enqueue', 'available', 'user', 'u', id, 'job', replace(
        '{"made":{"profile":"python","delivery":"pull","allowed":3,"losses_allowed":3},"queue":"default","priority":0,"place":0,"held":false}',
        '"place":0', '"place":' || place
    )
    FROM detent.jobs
"""


@pytest.fixture
def url() -> str:
    """A store as code of that version has left it."""
    found = databases().empty()
    with psycopg.connect(found, autocommit=True) as one:
        for migration in MIGRATIONS[:_LAST]:
            one.execute(migrate.complete(migration).sql.encode())
        one.execute(_ROWS.replace("LONG", _LONG).encode())
    return found


def test_what_jobs_are_about_moves_into_their_own_rows(url: str) -> None:
    assert stores.run_migrations(url)[0].version == _LAST + 1

    async def read(world: World) -> None:
        plain, rich = await world.store.get([("", "plain"), ("", "rich")])
        assert plain is not None
        assert rich is not None
        assert (plain.body.type, plain.body.payload, plain.body.tags) == ("mail.send", "[1]", ())
        assert (rich.body.payload, rich.body.meta) == (f'["{_LONG}"]', '{"a":1}')
        assert (rich.body.tags, rich.body.schema) == (("red",), "v2")
        assert rich.body.retry == RetryPolicy(max_attempts=7)
        [red] = await world.store.find(Filter(tag="red"))
        assert red == rich
        assert await world.claim_ids() == ["plain", "rich"]

    in_world(url, read)


_MANY = """
    INSERT INTO detent.jobs SELECT (jsonb_populate_record(j, jsonb_build_object('id', n))).*
    FROM detent.jobs AS j CROSS JOIN generate_series(1, 20000) AS n WHERE j.id = 'plain';
    INSERT INTO detent.bodies (tenant, id, type, payload, meta)
    SELECT b.tenant, n, b.type, b.payload, b.meta
    FROM detent.bodies AS b CROSS JOIN generate_series(1, 20000) AS n WHERE b.id = 'plain'
"""


def test_a_migration_takes_as_long_as_it_takes_whatever_the_server_allows(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as one:
        one.execute(_MANY)
        asked = words.SQL("ALTER DATABASE {} SET statement_timeout = 200")
        one.execute(asked.format(words.Identifier(one.info.dbname)))
    assert stores.run_migrations(url)[0].version == _LAST + 1


def test_whoever_migrates_is_told_first_how_long_it_takes(url: str) -> None:
    """In a new database everything is quick, and nothing is said."""
    new = detent("migrate", "--store", databases().empty())
    assert (new.code, new.complained) == (0, "")
    asked = detent("migrate", "--store", url, "--check")
    assert "(needs code 11 or newer; takes about half a minute per million jobs" in asked.said
    run = detent("migrate", "--store", url)
    assert run.code == 0
    assert run.complained.startswith("0011_bodies takes about half a minute per million jobs")


def test_a_row_that_is_no_job_is_refused(url: str) -> None:
    stores.run_migrations(url)
    for change in (
        "version = 0",
        "state = 'asleep'",
        "lease = 'somebody''s'",
        "state = 'active'",
        "state = 'completed'",
        "ended_at = 1",
    ):
        with pytest.raises(psycopg.errors.CheckViolation, match="jobs_are_sound"):
            sql(url, f"UPDATE detent.jobs SET {change} WHERE id = 'plain'")  # noqa: S608 - ours
