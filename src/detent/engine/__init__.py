"""The engine: connects the lifecycle, which decides, with the stores, which remember."""
