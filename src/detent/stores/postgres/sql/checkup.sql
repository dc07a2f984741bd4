-- name: promises
-- What a server must be set to so that what it says is stored is stored.
SELECT name, setting FROM pg_catalog.pg_settings
WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit') ORDER BY name

-- name: load
SELECT current_setting('max_connections')::int
        - current_setting('superuser_reserved_connections')::int AS most,
    (
        SELECT count(*) FROM pg_catalog.pg_stat_activity WHERE backend_type = 'client backend'
    )::int AS used,
    current_setting('autovacuum') = 'on' AS has_autovacuum

-- name: open_long
-- Whoever looks may not be shown what other roles do; what is prepared is in nobody's hands.
SELECT who, what, seconds FROM (
    SELECT format('pid %s (%s, %s)', pid, usename, coalesce(nullif(application_name, ''), 'no name'))
            AS who,
        state AS what, extract(epoch FROM clock_timestamp() - xact_start)::bigint AS seconds
    FROM pg_catalog.pg_stat_activity
    WHERE datname = current_database() AND backend_type = 'client backend'
        AND pid <> pg_backend_pid()
    UNION ALL
    SELECT format('prepared transaction %s (%s)', gid, owner), 'prepared',
        extract(epoch FROM clock_timestamp() - prepared)::bigint
    FROM pg_catalog.pg_prepared_xacts WHERE database = current_database()
) AS open WHERE seconds >= $older_s::bigint ORDER BY seconds DESC LIMIT 5

-- name: dead_rows
SELECT relname, n_dead_tup::bigint AS dead, n_live_tup::bigint AS live
FROM pg_catalog.pg_stat_user_tables
WHERE schemaname = 'detent' AND n_dead_tup > $least::bigint AND n_dead_tup > n_live_tup
ORDER BY n_dead_tup DESC LIMIT 5

-- name: rights
-- Of a schema that is not there yet nothing can be lacking.
SELECT current_user::text AS role, current_setting('is_superuser') = 'on' AS is_superuser,
    coalesce(has_schema_privilege(to_regnamespace('detent')::oid, 'USAGE'), true) AS may_use,
    ARRAY(
        SELECT format('%s on %s', wanted, c.relname) FROM pg_catalog.pg_class AS c
        JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
        CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'USAGE']) AS wanted
        WHERE n.nspname = 'detent' AND CASE
            WHEN c.relkind = 'S' AND wanted = 'USAGE' THEN NOT has_sequence_privilege(c.oid, wanted)
            WHEN c.relkind = 'r' AND wanted <> 'USAGE' THEN NOT has_table_privilege(c.oid, wanted)
            ELSE false
        END
        ORDER BY c.relname, wanted
    ) AS missing

-- name: backend
SELECT pg_backend_pid() AS pid

-- name: unsealed
-- What has a place in the feed and no seal, and what has not even that, as far as it is counted.
WITH told AS (
    SELECT s.pos, s.snapshot, coalesce((
        SELECT b.first_pos + b.count - 1 FROM detent.blocks AS b ORDER BY b.number DESC LIMIT 1
    ), 0) AS sealed FROM detent.sequencer AS s
), news AS (
    SELECT e.at FROM told CROSS JOIN LATERAL (
        SELECT e.at FROM detent.events AS e
        WHERE e.xid >= pg_snapshot_xmax(told.snapshot) ORDER BY e.xid LIMIT $most::bigint
    ) AS e
)
SELECT told.pos - told.sealed + (SELECT count(*) FROM news) AS behind, coalesce((
    SELECT e.at FROM detent.feed AS f JOIN detent.events AS e
        ON e.tenant = f.tenant AND e.record = f.record AND e.version = f.version
    WHERE f.pos = told.sealed + 1
), (SELECT min(at) FROM news)) AS at
FROM told
