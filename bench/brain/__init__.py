"""What the edge's brain is worth: its decisions against oracles, closed forms and the clock."""
