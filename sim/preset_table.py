"""The presets as a table for people and as JSON for machines."""

from __future__ import annotations

import json

from acespec.sim.presets import PRESETS, Preset

HEADER = ("preset", "down", "up", "RTT", "jitter", "loss %", "queue", "MTU", "source")
NOTE = "All approximate. Rates in Kbps of IP bytes, times in ms (RTT without serialisation), queue and MTU in bytes."


def presets_text() -> str:
    """An aligned table, one line a preset, with what each leaves out below it."""
    rows = [HEADER, *(_row(preset) for preset in PRESETS.values())]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    gaps = [f"{p.spec.name}: not modelled: {p.not_modelled}" for p in PRESETS.values() if p.not_modelled]
    return "\n".join([*lines, "", NOTE, *gaps])


def presets_json() -> str:
    """Every preset's full spec, source and gaps."""
    return json.dumps(
        {
            name: {
                "spec": preset.spec.as_json(),
                "source": preset.source,
                "not_modelled": preset.not_modelled,
                "approximate": True,
            }
            for name, preset in PRESETS.items()
        },
        indent=2,
    )


def _row(preset: Preset) -> tuple[str, ...]:
    spec = preset.spec
    numbers = (
        spec.rate_down_kbps,
        spec.rate_up_kbps,
        spec.rtt_ms,
        spec.jitter_ms,
        spec.loss_percent,
        spec.queue_bytes,
        spec.mtu,
    )
    kind = (
        " (half-duplex)"
        if spec.half_duplex
        else f" (policer, burst {spec.burst_bytes} B)"
        if spec.mode == "police"
        else ""
    )
    return (spec.name, *(f"{number:g}" for number in numbers), preset.source + kind)
