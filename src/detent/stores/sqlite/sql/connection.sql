-- name: begin
BEGIN IMMEDIATE

-- name: begin_read
BEGIN DEFERRED

-- name: commit
COMMIT

-- name: rollback
ROLLBACK

-- name: savepoint
SAVEPOINT unit

-- name: release
RELEASE unit

-- name: undo
ROLLBACK TO unit

-- name: save_operation
SAVEPOINT operation

-- name: release_operation
RELEASE operation

-- name: undo_operation
ROLLBACK TO operation

-- name: data_version
PRAGMA data_version

-- name: has_meta
SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'detent_meta'

-- name: meta
SELECT value FROM detent_meta WHERE name = ?

-- name: stamp
-- What the tables say about themselves from now on. It stands at the end of every migration.
INSERT INTO detent_meta (name, value) VALUES ('schema_version', '{{version}}'), ('min_code', '{{min_code}}')
ON CONFLICT (name) DO UPDATE SET value = excluded.value;
INSERT INTO detent_meta (name, value) VALUES ('store_id', '{{store_id}}') ON CONFLICT (name) DO NOTHING;

-- name: set_wal
PRAGMA journal_mode = WAL

-- name: set_full
PRAGMA synchronous = FULL

-- name: set_foreign_keys
PRAGMA foreign_keys = ON

-- name: set_journal_size
PRAGMA journal_size_limit = 67108864

-- name: set_fullfsync
PRAGMA fullfsync = ON

-- name: set_checkpoint_fullfsync
PRAGMA checkpoint_fullfsync = ON

-- name: set_query_only
PRAGMA query_only = ON

-- name: set_moment
-- While SQLite waits for somebody, a caller that writes by itself hears no signal.
PRAGMA busy_timeout = 100

-- name: get_journal_mode
PRAGMA journal_mode

-- name: get_synchronous
PRAGMA synchronous

-- name: get_foreign_keys
PRAGMA foreign_keys

-- name: get_busy_timeout
PRAGMA busy_timeout

-- name: get_fullfsync
PRAGMA fullfsync

-- name: get_checkpoint_fullfsync
PRAGMA checkpoint_fullfsync

-- name: get_query_only
PRAGMA query_only
