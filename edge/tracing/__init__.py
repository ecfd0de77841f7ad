"""Traces of a run: written, read, summed up and drawn."""
