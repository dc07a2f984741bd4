"""Finds out what is wrong with a store, its surroundings and its fleet. Nothing is changed."""

from __future__ import annotations

from detent.engine.doctor.examination import Patient, examined
from detent.engine.doctor.starting import doubts

__all__ = ["Patient", "doubts", "examined"]
