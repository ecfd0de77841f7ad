"""Settings of the whole suite."""

from __future__ import annotations

import os
from importlib.util import find_spec

from hypothesis import settings

# Read when a kernel is defined, so it has to stand before any of them is imported. There is no GPU to lose by it.
os.environ.setdefault("TRITON_INTERPRET", "1")

# Triton exists for Linux only.
collect_ignore_glob = [] if find_spec("triton") else ["kernels/test_*", "cloud/test_cuda_*", "bench/test_device*"]

# Wall-clock deadlines per example say more about a busy machine than about the code.
settings.register_profile("acespec", deadline=None)
settings.load_profile("acespec")
