"""Settings of the whole suite."""

from __future__ import annotations

from hypothesis import settings

# Wall-clock deadlines per example say more about a busy machine than about the code.
settings.register_profile("acespec", deadline=None)
settings.load_profile("acespec")
