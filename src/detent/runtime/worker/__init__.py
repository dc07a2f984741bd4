"""The worker in one process: claims jobs, runs them, and says how they ended."""
