"""A worker whose jobs are kept by a server: the same worker, over HTTP instead of a database."""
