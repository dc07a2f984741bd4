"""Finds out what is wrong with a store, its surroundings and its fleet. Nothing is changed."""
