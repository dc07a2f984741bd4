-- name: stored
SELECT s.* FROM unnest($tenants::text[], $ids::text[]) AS told (tenant, id)
JOIN detent.stored AS s ON s.tenant = told.tenant AND s.id = told.id

-- name: stored_heads
-- The same without what may be large: such values are not even read.
SELECT
    {{job_of_j}}, j.wake_at, j.type, '' AS payload, '{}' AS meta, j.tags, j.retry, j.schema, j.key,
    NULL AS result,
    CASE WHEN j.has_failures THEN (
        SELECT json_agg(
            json_build_array(f.attempt, f.at, f.code, f.message, f.type, NULL, NULL)
            ORDER BY f.number
        )::text
        FROM detent.failures AS f WHERE f.tenant = j.tenant AND f.id = j.id
    ) END AS errors,
    CASE WHEN j.has_note THEN (
        SELECT json_build_array(n.at, n.attempt, n.percent, n.text)::text
        FROM detent.notes AS n WHERE n.tenant = j.tenant AND n.id = j.id
    ) END AS note,
    NULL AS checkpoint
FROM unnest($tenants::text[], $ids::text[]) AS told (tenant, id)
JOIN detent.jobs AS j ON j.tenant = told.tenant AND j.id = told.id

-- name: unquiet
SELECT told.tenant, told.id
FROM unnest($tenants::text[], $ids::text[], $leases::text[]) AS told (tenant, id, lease)
LEFT JOIN LATERAL (
    -- Kept apart, or all jobs would be gone through.
    SELECT j.lease FROM detent.jobs AS j
    WHERE j.tenant = told.tenant AND j.id = told.id AND j.cancel_at IS NULL OFFSET 0
) AS held ON true
WHERE held.lease IS DISTINCT FROM told.lease

-- part: tenants
-- The one that is asked for, or all that there are, one step of the index each. Whether it is asked for is
-- not known when the plan is made: in one condition with the other way, all tenants before it are walked over.
WITH RECURSIVE tenants AS (
    (
        SELECT $tenant::text COLLATE "C" AS tenant WHERE $tenant::text IS NOT NULL
        UNION ALL
        (SELECT j.tenant FROM detent.{{apart}} AS j WHERE $tenant::text IS NULL ORDER BY j.tenant LIMIT 1)
    )
    UNION ALL
    SELECT (
        SELECT j.tenant FROM detent.{{apart}} AS j WHERE j.tenant > tenants.tenant
        ORDER BY j.tenant LIMIT 1
    ) FROM tenants WHERE tenants.tenant IS NOT NULL AND $tenant::text IS NULL
)

-- part: within
-- Plain bounds, so that the index begins where the page before has ended.
{{apart}}.id <= $upto::text AND {{apart}}.id >= $beyond::text
    AND ({{apart}}.id < $upto OR {{apart}}.tenant < $after_tenant::text)

-- part: fits
AND ($queue::text IS NULL OR j.queue = $queue)
AND ($state::text IS NULL OR j.state = $state)
AND ($type::text IS NULL OR j.type = $type)
AND ($profile::text IS NULL OR j.profile = $profile)
AND ($key::text IS NULL OR j.key = $key)
AND ($workflow::text IS NULL OR j.workflow = $workflow)
AND ($step::text IS NULL OR j.step = $step)
AND ($held::boolean IS NULL OR j.held = $held)

-- part: page
SELECT s.* FROM (
    {{tenants jobs}}
    SELECT one.tenant, one.id FROM tenants CROSS JOIN LATERAL (
        SELECT j.tenant, j.id FROM detent.jobs AS j
        WHERE j.tenant = tenants.tenant AND {{within j}}
            {{apart}}
            {{fits}}
        ORDER BY j.id DESC LIMIT $most::bigint
    ) AS one
    ORDER BY one.id DESC, one.tenant DESC LIMIT $most::bigint
) AS page JOIN detent.stored AS s ON s.tenant = page.tenant AND s.id = page.id
ORDER BY s.id DESC, s.tenant DESC

-- name: found
{{page}}

-- name: found_rare
{{page AND j.state = $state AND j.state = ANY (
    ARRAY['discarded', 'cancelled', 'retryable', 'scheduled']
)}}

-- name: found_letters
{{page AND j.state = 'discarded' AND j.state = ANY (
    ARRAY['discarded', 'cancelled', 'retryable', 'scheduled']
) AND {{is_letter}} AND ($tag::text IS NULL OR EXISTS (
    SELECT FROM detent.tags AS t
    WHERE t.tenant = j.tenant AND md5(t.tag) = md5($tag) AND t.tag = $tag AND t.id = j.id
))}}

-- name: found_ready
SELECT s.* FROM (
    SELECT j.tenant, j.id FROM detent.lanes AS l JOIN detent.jobs AS j ON j.lane = l.lane
    WHERE ($tenant::text IS NULL OR l.tenant = $tenant)
        AND ($queue::text IS NULL OR l.queue = $queue)
        AND ($type::text IS NULL OR l.type = $type)
        AND ($key::text IS NULL OR (l.key = $key AND $key <> ''))
        AND j.state = 'available' AND NOT j.held AND NOT j.gated
        AND ($tag::text IS NULL OR EXISTS (
            SELECT FROM detent.tags AS t
            WHERE t.tenant = j.tenant AND md5(t.tag) = md5($tag) AND t.tag = $tag AND t.id = j.id
        ))
        AND {{within j}}
        {{fits}}
    ORDER BY j.id DESC, j.tenant DESC LIMIT $most::bigint
) AS page JOIN detent.stored AS s ON s.tenant = page.tenant AND s.id = page.id
ORDER BY s.id DESC, s.tenant DESC

-- name: found_held
{{page AND j.state = $state AND j.lease IS NOT NULL}}

-- name: found_on_hold
{{page AND j.held AND j.ended_at IS NULL}}

-- name: found_in_workflow
{{page AND j.workflow = $workflow AND j.workflow IS NOT NULL}}

-- name: found_tagged
-- From the newest that has the tag; each is looked up for itself, for there may be very many.
SELECT s.* FROM (
    {{tenants jobs}}
    SELECT one.tenant, one.id FROM tenants CROSS JOIN LATERAL (
        SELECT t.tenant, t.id FROM detent.tags AS t CROSS JOIN LATERAL (
            SELECT FROM detent.jobs AS j
            WHERE j.tenant = t.tenant AND j.id = t.id
                {{fits}}
            OFFSET 0
        ) AS job
        WHERE t.tenant = tenants.tenant AND md5(t.tag) = md5($tag) AND t.tag = $tag AND {{within t}}
        ORDER BY t.id DESC LIMIT $most::bigint
    ) AS one
    ORDER BY one.id DESC, one.tenant DESC LIMIT $most::bigint
) AS page JOIN detent.stored AS s ON s.tenant = page.tenant AND s.id = page.id
ORDER BY s.id DESC, s.tenant DESC

-- name: beyond
-- The last of the next so many jobs, if there are more than that.
SELECT j.id FROM detent.jobs AS j
WHERE j.tenant = $tenant AND j.id <= $upto::text
ORDER BY j.id DESC OFFSET $look::bigint LIMIT 1

-- name: found_workflows
{{tenants workflows}}
SELECT one.record FROM tenants CROSS JOIN LATERAL (
    SELECT w.record, w.id, w.tenant FROM detent.workflows AS w
    WHERE w.tenant = tenants.tenant AND {{within w}} AND ($state::text IS NULL OR w.state = $state)
    ORDER BY w.id DESC LIMIT $most::bigint
) AS one
ORDER BY one.id DESC, one.tenant DESC LIMIT $most::bigint

-- name: records
SELECT kind, id, version, data, wake_at, tenant FROM detent.records
WHERE kind = $kind AND tenant = $tenant AND id >= coalesce($after::text, '') AND id IS DISTINCT FROM $after
ORDER BY id LIMIT $most::bigint

-- name: record_named
SELECT r.kind, r.id, r.version, r.data, r.wake_at, r.tenant
FROM unnest($kinds::text[], $tenants::text[], $ids::text[]) AS told (kind, tenant, id)
JOIN detent.records AS r ON r.kind = told.kind AND r.tenant = told.tenant AND r.id = told.id

-- name: limits
SELECT l.kind, l.name, l.concurrency, l.rate, l.period_us, l.spacing_us,
    l.period_at, l.starts, l.last_at, coalesce((
        SELECT sum(t.count) FROM (
            SELECT lane FROM detent.lanes
            WHERE l.kind = 'queue' AND tenant = l.tenant AND queue = l.name
            UNION ALL
            SELECT lane FROM detent.lanes
            WHERE l.kind = 'key' AND tenant = l.tenant AND key = l.name AND key <> ''
        ) AS one CROSS JOIN LATERAL ({{held_in one}}) AS t
    ), 0)::bigint AS active
FROM detent.limits AS l WHERE l.tenant = $tenant ORDER BY l.kind, l.name

-- name: leaves
SELECT pos, leaf FROM detent.leaves WHERE pos > $after::bigint ORDER BY pos LIMIT $most::bigint

-- name: held_by
SELECT s.* FROM detent.stored AS s WHERE s.holder = $holder AND s.lease IS NOT NULL
AND s.lease <> ALL ($but::text[])
ORDER BY s.tenant, s.id LIMIT $most::bigint

-- name: weight
SELECT coalesce(sum(octet_length(j.payload)), 0)::bigint AS bytes FROM detent.jobs AS j
WHERE j.tenant = $tenant AND j.queue = $queue AND j.ended_at IS NULL

-- name: counts
SELECT c.tenant, c.queue, c.state, sum(c.count)::bigint AS count
FROM (
    SELECT l.tenant, l.queue, t.state, t.count
    FROM detent.tallies AS t JOIN detent.lanes AS l ON l.lane = t.lane
    UNION ALL
    SELECT j.tenant, j.queue, j.state, 1
    FROM detent.unplaced AS u JOIN detent.jobs AS j ON j.tenant = u.tenant AND j.id = u.id
) AS c
WHERE $tenant::text IS NULL OR c.tenant = $tenant
GROUP BY c.tenant, c.queue, c.state HAVING sum(c.count) > 0
ORDER BY c.tenant, c.queue, c.state

-- name: gates
SELECT kind, name, closed, opened_at, queue_deleted FROM detent.gates
WHERE tenant = $tenant ORDER BY kind, name

-- name: history
SELECT {{event_of_e}} FROM detent.events AS e
WHERE e.tenant = $tenant AND e.record = $record ORDER BY e.version

-- name: histories
SELECT told.number, coalesce(f.pos, 0) AS pos, {{event_of_e}}
FROM unnest($tenants::text[], $records::text[]) WITH ORDINALITY AS told (tenant, record, number)
JOIN detent.events AS e ON e.tenant = told.tenant AND e.record = told.record
LEFT JOIN detent.feed AS f
    ON f.tenant = e.tenant AND f.record = e.record AND f.version = e.version
ORDER BY told.number, e.version

-- name: leases
SELECT lease, until FROM detent.leases WHERE lease = ANY ($leases::text[])

-- name: logs
SELECT l.tenant, l.id, l.cursor, l.at, l.text, l.level, coalesce(t.pos, 0) AS pos
FROM detent.logs AS l LEFT JOIN detent.tail AS t ON t.line = l.pos
WHERE l.tenant = $tenant AND l.id = $id AND l.cursor > $after::bigint
ORDER BY l.cursor LIMIT $most::bigint

-- name: log_tail
SELECT l.tenant, l.id, l.cursor, l.at, l.text, l.level, t.pos
FROM detent.tail AS t JOIN detent.logs AS l ON l.pos = t.line
WHERE t.pos > $after::bigint ORDER BY t.pos LIMIT $most::bigint

-- name: keys
SELECT tenant, id FROM detent.jobs
WHERE (tenant, id) > ($tenant::text, $id::text) ORDER BY tenant, id LIMIT $most::bigint
