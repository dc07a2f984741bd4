"""Benchmarks. They print what they measure and never fail because of it: `python -m bench`."""
