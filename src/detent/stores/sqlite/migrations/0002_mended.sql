-- What came to light in use. Code that knows nothing of it goes on beside.
-- min_code: 1

-- A lease is made once per claim, so two jobs in the hands of one holder never have the same one.
DROP INDEX detent_jobs_holding;

CREATE UNIQUE INDEX detent_jobs_holding ON detent_jobs (holder, lease) WHERE lease IS NOT NULL;

-- The history of a record goes after the record, and so nobody's before it has ended.
CREATE TRIGGER detent_jobs_live_on BEFORE DELETE ON detent_jobs
WHEN OLD.ended_at IS NULL
BEGIN
    SELECT RAISE(ABORT, 'a job is never deleted before it has ended');
END;

CREATE TRIGGER detent_workflows_live_on BEFORE DELETE ON detent_workflows
WHEN OLD.ended_at IS NULL
BEGIN
    SELECT RAISE(ABORT, 'a workflow is never deleted before it has ended');
END;

CREATE TRIGGER detent_steps_live_on BEFORE DELETE ON detent_steps
WHEN EXISTS (
    SELECT 1 FROM detent_workflows
    WHERE tenant = OLD.tenant AND id = OLD.workflow AND ended_at IS NULL
)
BEGIN
    SELECT RAISE(ABORT, 'a step is never deleted before its workflow has ended');
END;

-- There may be a key for every customer. Where neither limits nor turns ask about keys, all of a type are
-- one lane; what has no key stands in the other index already.
CREATE INDEX detent_jobs_claimable_keyed
    ON detent_jobs (tenant, queue, delivery, type, profile, priority DESC, place, id, expires_at)
    WHERE state = 'available' AND held = 0 AND gated = 0 AND key IS NOT NULL;

-- Whoever was served so long ago is first in turn either way.
CREATE INDEX detent_served_turn ON detent_served (turn);
