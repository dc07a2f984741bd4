"""Executors: where a handler runs, and how it can be stopped there."""
