"""The sections of `acespec.bench.device` by name: generators of figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from acespec.bench.device_figures import Figure
from acespec.bench.device_lab import Lab, prepare

Sections = Mapping[str, Callable[[], Iterator[Figure]]]


@contextmanager
def sections(profile_out: Path | None) -> Iterator[Sections]:
    """All sections, for as long as the context is open: on the GPU if there is one, else in the interpreter."""
    # Kernels are imported only now, because they must know where they will run.
    prepare()
    from acespec.bench.device_attention import attention_speed
    from acespec.bench.device_checks import noise_and_sampling_bits, product_bits
    from acespec.bench.device_model_bits import model_bits
    from acespec.bench.device_speed import device_facts, product_speed, sampling_speed, small_kernel_speed
    from acespec.bench.device_steps import steps, timing_profile

    lab = Lab.here(profile_out)
    with lab.fixed_order():
        yield {
            "device": partial(device_facts, lab),
            "product bits": partial(product_bits, lab),
            "noise and sampling bits": partial(noise_and_sampling_bits, lab),
            "model bits": partial(model_bits, lab),
            "attention": partial(attention_speed, lab),
            "steps, bf16": partial(steps, lab, "bf16"),
            "steps, w4": partial(steps, lab, "w4"),
            "products": partial(product_speed, lab),
            "sampling": partial(sampling_speed, lab),
            "small kernels": partial(small_kernel_speed, lab),
            "timing profile": partial(timing_profile, lab),
        }
