"""Engines: programs elsewhere that get jobs pushed to them over Socket.IO."""
