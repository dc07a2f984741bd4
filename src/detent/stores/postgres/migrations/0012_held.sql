-- What is held is rare among all that waits, and whoever counts it must not walk over the rest. Code that
-- knows nothing of it goes on beside.
-- min_code: 11
-- takes: about a second per million jobs; nobody else writes meanwhile

CREATE INDEX jobs_held ON detent.jobs (tenant, id) WHERE held AND ended_at IS NULL;
