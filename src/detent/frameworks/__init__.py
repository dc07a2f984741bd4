"""Detent in other people's frameworks. Nothing here imports one that is not in use already."""
