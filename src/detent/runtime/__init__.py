"""The runtime: runs the functions of users, and tells the engine how they ended."""
