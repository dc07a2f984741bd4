-- name: tables
CREATE TABLE job (
    id text COLLATE "C" PRIMARY KEY,
    version int NOT NULL,
    state text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    priority int NOT NULL,
    place bigint NOT NULL,
    lease text COLLATE "C",
    holder text COLLATE "C",
    created_at bigint NOT NULL,
    state_at bigint NOT NULL,
    wake_at bigint,
    payload text NOT NULL
);

CREATE INDEX job_claimable ON job (queue, priority DESC, place, id) WHERE state = 'available';

CREATE TABLE event (
    record text COLLATE "C" NOT NULL,
    version int NOT NULL,
    at bigint NOT NULL,
    name text COLLATE "C" NOT NULL,
    actor text COLLATE "C" NOT NULL,
    rest text,
    PRIMARY KEY (record, version)
)

-- name: push
WITH made AS (
    INSERT INTO job
    SELECT id, 1, 'available', 'default', 0, place, NULL, NULL, at, at, NULL, payload
    FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::text[]) AS new (id, place, at, payload)
    RETURNING id, created_at
)
INSERT INTO event SELECT id, 1, created_at, 'enqueue', 'user', NULL FROM made

-- name: step
WITH done AS (
    UPDATE job SET version = job.version + 1, state = 'completed', state_at = $3, lease = NULL
    FROM unnest($1::text[], $2::text[]) AS told (id, lease)
    WHERE job.id = told.id AND job.lease = told.lease
    RETURNING job.id, job.version
), picked AS (
    SELECT id FROM job WHERE queue = 'default' AND state = 'available'
    ORDER BY priority DESC, place, id LIMIT $4 FOR UPDATE SKIP LOCKED
), turns AS (
    SELECT id, row_number() OVER () AS turn FROM picked
), taken AS (
    UPDATE job SET version = job.version + 1, state = 'active', state_at = $3, holder = 'w1',
        lease = ($5::text[])[turns.turn]
    FROM turns WHERE job.id = turns.id
    RETURNING job.*
), told AS (
    INSERT INTO event
    SELECT id, version, $3, 'complete', 'worker', NULL FROM done
    UNION ALL
    SELECT id, version, $3, 'claim', 'worker', NULL FROM taken
)
SELECT * FROM taken
