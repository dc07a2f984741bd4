-- name: over
SELECT j.ended_at, j.tenant, j.id FROM detent_jobs AS j
WHERE j.state = :state AND j.ended_at IS NOT NULL AND j.ended_at < :before
    AND (:tenant IS NULL OR j.tenant = :tenant) AND (:queue IS NULL OR j.queue = :queue)
    AND (:letters OR NOT ({{is_letter}}))
    AND :sealed >= (
        SELECT e.pos FROM detent_events AS e
        WHERE e.tenant = j.tenant AND e.record = j.id ORDER BY e.version DESC LIMIT 1
    )
    AND (j.workflow IS NULL OR EXISTS (
        SELECT 1 FROM detent_workflows AS w
        WHERE w.tenant = j.tenant AND w.id = j.workflow AND w.ended_at IS NOT NULL
    ))
ORDER BY j.ended_at, j.tenant, j.id LIMIT :limit

-- name: is_over
-- Whatever rule had found it holds on: a job that has ended never moves, but it can be annotated.
SELECT j.seq FROM detent_jobs AS j
WHERE j.ended_at = ?1 AND j.tenant = ?2 AND j.id = ?3
    AND ?4 >= (
        SELECT e.pos FROM detent_events AS e
        WHERE e.tenant = j.tenant AND e.record = j.id ORDER BY e.version DESC LIMIT 1
    )

-- name: sealed
SELECT coalesce(max(pos), 0) FROM detent_leaves

-- name: forget_unique
DELETE FROM detent_uniques WHERE seq = ?

-- name: forget_promise
DELETE FROM detent_idempotency WHERE seq = ?

-- name: forget_body
DELETE FROM detent_bodies WHERE seq = ?

-- name: forget_job
DELETE FROM detent_jobs WHERE seq = ?

-- name: forget_events
DELETE FROM detent_events WHERE tenant = ? AND record = ?

-- name: forget_promises
DELETE FROM detent_idempotency WHERE (tenant, key) IN (
    SELECT tenant, key FROM detent_idempotency WHERE expires_at <= ? LIMIT ?
)

-- name: forget_turns
DELETE FROM detent_served WHERE (tenant, fair, name) IN (
    SELECT tenant, fair, name FROM detent_served WHERE turn < ?
    ORDER BY turn, tenant, fair, name LIMIT ?
)

-- name: empty_workflows
SELECT w.tenant, w.id FROM detent_workflows AS w
WHERE w.ended_at IS NOT NULL AND w.ended_at < :before AND (:tenant IS NULL OR w.tenant = :tenant)
    AND NOT EXISTS (
        SELECT 1 FROM detent_jobs AS j
        WHERE j.tenant = w.tenant AND j.workflow = w.id AND j.workflow IS NOT NULL
    )
    AND NOT EXISTS (
        SELECT 1 FROM detent_events AS e
        WHERE e.tenant = w.tenant AND e.pos > :sealed AND e.record IN (
            SELECT w.id UNION ALL
            SELECT s.id FROM detent_steps AS s INDEXED BY detent_steps_of_workflow
            WHERE s.tenant = w.tenant AND s.workflow = w.id
        )
    )
ORDER BY w.tenant, w.id LIMIT :limit

-- name: is_empty_workflow
SELECT 1 FROM detent_workflows AS w
WHERE w.tenant = :tenant AND w.id = :id AND w.ended_at IS NOT NULL
    AND NOT EXISTS (
        SELECT 1 FROM detent_jobs AS j
        WHERE j.tenant = w.tenant AND j.workflow = w.id AND j.workflow IS NOT NULL
    )
    AND NOT EXISTS (
        SELECT 1 FROM detent_events AS e
        WHERE e.tenant = w.tenant AND e.pos > :sealed AND e.record IN (
            SELECT w.id UNION ALL
            SELECT s.id FROM detent_steps AS s INDEXED BY detent_steps_of_workflow
            WHERE s.tenant = w.tenant AND s.workflow = w.id
        )
    )

-- name: step_ids
SELECT id FROM detent_steps INDEXED BY detent_steps_of_workflow WHERE tenant = ? AND workflow = ?

-- name: forget_steps
DELETE FROM detent_steps INDEXED BY detent_steps_of_workflow WHERE tenant = ? AND workflow = ?

-- name: forget_workflow
DELETE FROM detent_workflows WHERE tenant = ? AND id = ?

-- name: results_over
SELECT seq FROM detent_results WHERE until IS NOT NULL AND until <= ? ORDER BY until LIMIT ?

-- name: keep_result
-- Whoever comes later in its workflow may still ask for it.
UPDATE detent_results SET until = ?2
WHERE seq = ?1 AND EXISTS (
    SELECT 1 FROM detent_jobs AS j
    JOIN detent_workflows AS w ON w.tenant = j.tenant AND w.id = j.workflow
    WHERE j.seq = ?1 AND w.ended_at IS NULL
)

-- name: forget_result
DELETE FROM detent_results WHERE seq = ? AND until IS NOT NULL AND until <= ?
