"""Ways to get tokens from a verifier across a link, each a small file; `registry.py` knows them by name."""
