"""Pictures of a sweep: curves over what varied, and distributions over edges. Needs matplotlib (extra `sim`)."""
