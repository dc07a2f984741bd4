-- What is held is rare among all that waits, and whoever counts it must not walk over the rest. Code that
-- knows nothing of it goes on beside.
-- min_code: 1

CREATE INDEX detent_jobs_held ON detent_jobs (tenant, id) WHERE held = 1 AND ended_at IS NULL;
