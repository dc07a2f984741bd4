"""Surfaces: one wire protocol each, thin views on one engine."""
