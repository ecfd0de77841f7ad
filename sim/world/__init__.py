"""The world in virtual time: many edges, a link each, one verifier, one strategy, and what came of it."""
