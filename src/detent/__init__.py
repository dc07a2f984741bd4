"""Detent: background jobs that are always in exactly one named state."""

__all__: list[str] = []
