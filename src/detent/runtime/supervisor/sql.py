"""The statements of the journal."""

from __future__ import annotations

from typing import Final

VERSION: Final = 1

# Full synchronisation: a commit is on the disk before the supervisor acts on it.
PRAGMAS: Final = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA busy_timeout = 5000",
)

SCHEMA: Final = """
BEGIN;
CREATE TABLE IF NOT EXISTS entry (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    slot TEXT NOT NULL,
    instance TEXT,
    version INTEGER,
    at INTEGER NOT NULL,
    mono REAL NOT NULL,
    is_note INTEGER NOT NULL,
    body BLOB NOT NULL,
    UNIQUE (instance, version)
);
CREATE TABLE IF NOT EXISTS instance (
    id TEXT PRIMARY KEY,
    slot TEXT NOT NULL,
    ended_at INTEGER,
    last_seq INTEGER NOT NULL,
    record BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS instance_by_slot ON instance (slot, last_seq);
CREATE INDEX IF NOT EXISTS instance_live ON instance (id) WHERE ended_at IS NULL;
CREATE TABLE IF NOT EXISTS dump (instance TEXT PRIMARY KEY, stacks TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS slot (
    name TEXT PRIMARY KEY,
    resume_id TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    suspended INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS cursor (name TEXT PRIMARY KEY, seq INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS boot (one INTEGER PRIMARY KEY CHECK (one = 1), id TEXT NOT NULL);
PRAGMA user_version = 1;
COMMIT;
"""

ADD_EVENT: Final = (
    "INSERT INTO entry (slot, instance, version, at, mono, is_note, body)"
    " VALUES (?, ?, ?, ?, ?, 0, ?)"
)
ADD_NOTE: Final = (
    "INSERT INTO entry (slot, instance, version, at, mono, is_note, body)"
    " VALUES (?, ?, ?, ?, ?, 1, ?)"
)
LAST: Final = "SELECT max(seq) FROM entry"
# The number of the last entry ever written, also when it was pruned since.
WRITTEN: Final = "SELECT seq FROM sqlite_sequence WHERE name = 'entry'"
BOUNDS: Final = "SELECT min(seq), max(seq) FROM entry"
READ: Final = (
    "SELECT seq, slot, instance, at, mono, is_note, body FROM entry"
    " WHERE seq > ? ORDER BY seq LIMIT ?"
)
HISTORY: Final = "SELECT body FROM entry WHERE instance = ? AND is_note = 0 ORDER BY version"

PUT_INSTANCE: Final = (
    "INSERT INTO instance (id, slot, ended_at, last_seq, record) VALUES (?, ?, ?, ?, ?)"
    " ON CONFLICT (id) DO UPDATE SET ended_at = excluded.ended_at,"
    " last_seq = excluded.last_seq, record = excluded.record"
)
UNENDED: Final = "SELECT id FROM instance WHERE ended_at IS NULL ORDER BY last_seq"
LAST_OF: Final = (
    "SELECT record FROM instance WHERE slot = ? AND ended_at IS NOT NULL"
    " ORDER BY last_seq DESC LIMIT 1"
)
PUT_DUMP: Final = "INSERT OR REPLACE INTO dump (instance, stacks) VALUES (?, ?)"
DUMP_OF: Final = "SELECT stacks FROM dump WHERE instance = ?"

SLOT: Final = "SELECT resume_id, attempts, suspended FROM slot WHERE name = ?"
PUT_SLOT: Final = (
    "INSERT OR REPLACE INTO slot (name, resume_id, attempts, suspended) VALUES (?, ?, ?, ?)"
)
# With everything below it.
DROP_SLOT: Final = "DELETE FROM slot WHERE name = ?1 OR substr(name, 1, length(?1) + 1) = ?1 || '/'"

BEGIN_CURSOR: Final = "INSERT OR IGNORE INTO cursor (name, seq) VALUES (?, 0)"
CURSOR: Final = "SELECT seq FROM cursor WHERE name = ?"
MOVE_CURSOR: Final = (
    "INSERT INTO cursor (name, seq) VALUES (?, ?)"
    " ON CONFLICT (name) DO UPDATE SET seq = max(seq, excluded.seq)"
)

# What every reader has behind it; with no reader, everything.
PRUNABLE: Final = (
    "SELECT id FROM instance WHERE ended_at IS NOT NULL"
    " AND last_seq <= coalesce((SELECT min(seq) FROM cursor), last_seq)"
    " ORDER BY last_seq DESC LIMIT -1 OFFSET ?"
)
PRUNE_ENTRIES: Final = "DELETE FROM entry WHERE instance = ?"
PRUNE_DUMPS: Final = "DELETE FROM dump WHERE instance = ?"
PRUNE_INSTANCES: Final = "DELETE FROM instance WHERE id = ?"
# Notes without an instance go when everything around them has gone.
PRUNE_NOTES: Final = (
    "DELETE FROM entry WHERE instance IS NULL AND seq <"
    " (SELECT min(seq) FROM entry WHERE instance IS NOT NULL)"
    " AND seq <= coalesce((SELECT min(seq) FROM cursor), seq)"
)

BOOT: Final = "SELECT id FROM boot"
PUT_BOOT: Final = "INSERT OR REPLACE INTO boot (one, id) VALUES (1, ?)"
