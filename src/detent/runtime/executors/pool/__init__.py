"""Pool processes: what is said between a worker and one of them, and what happens inside one."""
