-- Workflows and steps as one text each, with what statements ask about beside it; small records.

-- name: workflows_put
INSERT INTO detent.workflows (tenant, id, state, ended_at, record)
SELECT * FROM unnest(
    $tenants::text[], $ids::text[], $states::text[], $ended_ats::bigint[], $records::text[]
) AS told (tenant, id, state, ended_at, record) ORDER BY tenant, id
ON CONFLICT (tenant, id) DO UPDATE SET
    state = excluded.state, ended_at = excluded.ended_at, record = excluded.record

-- name: steps_put
INSERT INTO detent.steps (tenant, id, workflow, record)
SELECT * FROM unnest($tenants::text[], $ids::text[], $workflows::text[], $records::text[])
    AS told (tenant, id, workflow, record) ORDER BY tenant, id
ON CONFLICT (tenant, id) DO UPDATE SET record = excluded.record

-- name: steps_counted
UPDATE detent.steps AS s SET tally = told.tally
FROM unnest($tenants::text[], $ids::text[], $tallies::text[]) AS told (tenant, id, tally)
WHERE s.tenant = told.tenant AND s.id = told.id

-- name: steps_marked
UPDATE detent.steps AS s SET
    flips = s.flips OR told.flips, swept = CASE WHEN told.swept THEN 1 ELSE s.swept END
FROM unnest($tenants::text[], $ids::text[], $flips::boolean[], $swept::boolean[])
    AS told (tenant, id, flips, swept)
WHERE s.tenant = told.tenant AND s.id = told.id

-- name: records_put
INSERT INTO detent.records (kind, tenant, id, version, data, wake_at, command_id)
SELECT * FROM unnest(
    $kinds::text[], $tenants::text[], $ids::text[], $versions::bigint[], $data::text[],
    $wakes::bigint[], $commands::text[]
) AS told (kind, tenant, id, version, data, wake_at, command_id) ORDER BY kind, tenant, id
ON CONFLICT (kind, tenant, id) DO UPDATE SET
    version = excluded.version, data = excluded.data, wake_at = excluded.wake_at,
    command_id = excluded.command_id

-- name: records_dropped
DELETE FROM detent.records AS r USING unnest($kinds::text[], $tenants::text[], $ids::text[])
    AS told (kind, tenant, id)
WHERE r.kind = told.kind AND r.tenant = told.tenant AND r.id = told.id

-- name: steps_reopened
UPDATE detent.steps AS s SET swept = 1
FROM unnest($tenants::text[], $ids::text[]) AS told (tenant, id)
WHERE s.tenant = told.tenant AND s.id = told.id AND s.swept = 2
