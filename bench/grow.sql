-- Jobs with their bodies and first events, numbered from :first to :last, in one state.
INSERT INTO detent_jobs (
    seq, tenant, id, version, state, profile, queue, priority, delivery, allowed, losses_allowed,
    created_at, state_at, last_at, place, held, attempt, failures, losses, handed_back, wire,
    ended_at, type, wake_at
)
WITH RECURSIVE n (i) AS (SELECT :first UNION ALL SELECT i + 1 FROM n WHERE i < :last)
SELECT
    i, '', printf('job-%08d', i), 1, :state, 'python', 'default', 0, 'pull', 3, 3,
    i, i, i, i, 0, 0, 0, 0, 0, 0,
    CASE WHEN :is_over THEN i END, 'mail.send', NULL
FROM n;

INSERT INTO detent_bodies (seq, payload, meta)
SELECT seq, '[]', '{}' FROM detent_jobs WHERE seq BETWEEN :first AND :last;

INSERT INTO detent_events (
    tenant, record, version, at, name, source, target, actor, actor_id, command_id, kind
)
SELECT '', id, 1, seq, 'enqueue', NULL, 'available', 'user', '', 'c', 'job'
FROM detent_jobs WHERE seq BETWEEN :first AND :last;

INSERT OR REPLACE INTO detent_counters (tenant, queue, state, count)
SELECT tenant, queue, state, count(*) FROM detent_jobs GROUP BY 1, 2, 3;

INSERT OR REPLACE INTO detent_lanes (tenant, queue, delivery, type, profile, key, count)
SELECT tenant, queue, delivery, type, profile, '', count(*) FROM detent_jobs
WHERE state = 'available' GROUP BY 1, 2, 3, 4, 5;
