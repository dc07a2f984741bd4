-- How long a result is kept. Code that knows nothing of it goes on beside, and its results stay.
-- min_code: 1

ALTER TABLE detent_results ADD COLUMN until INTEGER;

CREATE INDEX detent_results_until ON detent_results (until) WHERE until IS NOT NULL;
