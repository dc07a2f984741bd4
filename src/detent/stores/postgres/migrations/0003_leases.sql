-- A lease is made once per claim, so two jobs never have the same one. A claim whose connection was cut
-- is made again, perhaps while the server is still busy with it: then one of the two waits here for the
-- other, fails, and finds what the other has taken.
-- min_code: 2

DROP INDEX detent.jobs_holding;

CREATE UNIQUE INDEX jobs_holding ON detent.jobs (holder, lease) WHERE lease IS NOT NULL;
