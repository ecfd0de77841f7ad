"""What to draft, what to ship and when: the draft tree, estimates, prices, controllers (sans-IO but for the worker)."""
