"""Open Job Spec 1.0: jobs, workers, queues, schedules and workflows over HTTP."""
