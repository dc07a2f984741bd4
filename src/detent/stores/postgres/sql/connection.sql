-- name: about
SELECT current_setting('server_version_num')::int AS version,
    current_setting('server_encoding') AS encoding,
    current_setting('transaction_read_only') = 'on' OR pg_is_in_recovery() AS is_read_only,
    (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS clock_us

-- name: begin
BEGIN

-- name: begin_pooled
BEGIN;
SET LOCAL enable_seqscan = off;
SET LOCAL enable_bitmapscan = off;
SET LOCAL enable_mergejoin = off;
SET LOCAL plan_cache_mode = force_generic_plan;
SET LOCAL jit = off;
SET LOCAL lock_timeout = 2000;
SET LOCAL idle_in_transaction_session_timeout = 10000

-- name: commit
COMMIT

-- name: rollback
ROLLBACK

-- name: savepoint
SAVEPOINT unit

-- name: release
RELEASE SAVEPOINT unit

-- name: undo
ROLLBACK TO SAVEPOINT unit

-- name: lock_timeout
SELECT set_config('lock_timeout', $milliseconds, true)

-- name: take_your_time
-- Whoever looks after the server may have set how long a statement takes at most; what is done once and
-- over everything would never be done.
SELECT set_config('statement_timeout', '0', true)

-- name: xact_id
SELECT pg_current_xact_id()::text AS xid

-- name: xact_status
SELECT pg_xact_status($xid::text::xid8) AS status

-- name: notify
-- Nothing is lost with a word that a crash swallows, so nobody waits for a disk to hear it.
SELECT set_config('synchronous_commit', 'off', true), pg_notify('detent', $name)

-- name: migration_lock
SELECT pg_advisory_xact_lock(7311424178)

-- name: has_meta
SELECT to_regclass('detent.meta') IS NOT NULL AS has_meta

-- name: has_tables
SELECT count(*) AS count FROM pg_catalog.pg_class AS c
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = 'detent' AND c.relkind = 'r'

-- name: meta
SELECT value FROM detent.meta WHERE name = $name
