"""Detent: background jobs that are always in exactly one named state."""

from __future__ import annotations

from importlib.metadata import version as _version

__all__ = ["__version__"]

__version__ = _version("detent")
