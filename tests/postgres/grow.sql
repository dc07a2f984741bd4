-- Many jobs of one state out of nothing, each with a body and one event.
INSERT INTO detent.jobs (
    tenant, id, version, state, profile, queue, priority, delivery, allowed, losses_allowed,
    created_at, state_at, last_at, place, held, attempt, failures, losses, handed_back, wire,
    enqueued_at, ready_at, ended_at, wake_at, lane, type, payload, meta
)
SELECT '', 'job-' || lpad(n::text, 8, '0'), 1, %(state)s, 'python', 'default', n %% 3, 'pull', 3, 3,
    n, n, n, n, false, 0, 0, 0, 0, false, n, n, CASE WHEN %(is_over)s THEN n END,
    CASE WHEN n %% 50 = 0 AND NOT %(is_over)s THEN n + 1000000000 END, 1 + n %% 20,
    'type' || n %% 20, '[]', '{}'
FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS n;

INSERT INTO detent.events (
    tenant, record, version, at, name, target, actor, actor_id, command_id, kind
)
SELECT '', 'job-' || lpad(n::text, 8, '0'), 1, n, 'enqueue', 'available', 'user', 'u', 'c' || n, 'job'
FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS n
