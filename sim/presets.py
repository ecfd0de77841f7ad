"""Named links. All are approximate; each says where its numbers come from and what of it is not modelled.

The queue holds about half a second at the slower rate, and two full packets at least: enough to keep the line busy, too
little for seconds of stale drafts. A policer has no queue but a burst of 1.5 s of its rate, a common router setting.
Full packets are 1500 bytes, save below 5 Kbps, where one would hold the line for seconds and modem links use 576.
"""

from __future__ import annotations

from dataclasses import dataclass

from acespec.proto.errors import UsageError
from acespec.sim.spec import LinkSpec

DIAL_UP_MTU = 576
QUEUE_SECONDS = 0.48
BURST_SECONDS = 1.5


@dataclass(frozen=True, slots=True)
class Preset:
    """A spec with the sources of its numbers, and the behaviour of the real link that it leaves out."""

    spec: LinkSpec
    source: str
    not_modelled: str = ""


def _preset(
    name: str,
    *,
    down: float,
    up: float,
    rtt: float,
    jitter: float,
    source: str,
    loss: float = 0.0,
    half_duplex: bool = False,
    policed: bool = False,
    not_modelled: str = "",
) -> Preset:
    """Rates in Kbps, times in ms, loss in percent."""
    slower = min(up, down)
    mtu = DIAL_UP_MTU if slower < 5 else 1500
    bytes_a_second = slower * 1000 / 8
    spec = LinkSpec(
        rate_up_kbps=up,
        rate_down_kbps=down,
        delay_ms=rtt / 2,
        jitter_ms=jitter,
        loss_percent=loss,
        queue_bytes=max(2 * mtu, int(bytes_a_second * QUEUE_SECONDS)),
        mtu=mtu,
        half_duplex=half_duplex,
        name=name,
        mode="police" if policed else "queue",
        burst_bytes=max(2 * mtu, int(bytes_a_second * BURST_SECONDS)),
    )
    return Preset(spec, source, not_modelled)


_ALL = (
    _preset("wan50", down=50, up=50, rtt=100, jitter=10, source="the project's own target"),
    _preset(
        "gprs",
        down=50,
        up=20,
        rtt=500,
        jitter=100,
        loss=1.5,
        source="Firefox DevTools; RFC 3481; loss (1-2 %) estimated",
        not_modelled="stalls of 1-10 s at a change of cell: add --outage or --on-off",
    ),
    _preset("dialup56", down=49, up=30, rtt=120, jitter=10, source="WebPageTest connectivity.ini"),
    _preset(
        "edge",
        down=240,
        up=200,
        rtt=840,
        jitter=100,
        loss=1.5,
        source="the EDGE radio: WebPageTest; loss: common practice",
    ),
    _preset("2g_regular", down=250, up=50, rtt=300, jitter=50, loss=1, source="Firefox DevTools"),
    _preset(
        "nbiot",
        down=26,
        up=16,
        rtt=1500,
        jitter=500,
        loss=0.5,
        half_duplex=True,
        source="single-tone uplink: Anritsu, Pycom; RTT (1-10 s) estimated",
        not_modelled="power-saving and eDRX sleeps: add --outage or --on-off",
    ),
    _preset(
        "nbiot_multitone",
        down=26,
        up=62,
        rtt=1500,
        jitter=500,
        loss=0.5,
        half_duplex=True,
        source="multi-tone uplink: Anritsu, Pycom; RTT (1-10 s) estimated",
        not_modelled="power-saving and eDRX sleeps: add --outage or --on-off",
    ),
    _preset(
        "ltem_capped",
        down=300,
        up=375,
        rtt=100,
        jitter=30,
        loss=0.5,
        source="Pycom (rate), Arduino docs (50-100 ms)",
    ),
    _preset(
        "iridium_dial",
        down=2.4,
        up=2.4,
        rtt=2000,
        jitter=300,
        loss=1,
        source="sailing forums (pings of 2-3 s)",
        not_modelled="20 s of call set-up, dropped calls: add --outage or --on-off",
    ),
    _preset(
        "certus100",
        down=88,
        up=22,
        rtt=700,
        jitter=150,
        loss=2,
        source="FFI report 20/01338 (plan of 352); rates estimated",
        not_modelled="gaps of up to 70 s: add --outage or --on-off",
    ),
    _preset(
        "bgan_stream32",
        down=32,
        up=32,
        rtt=1000,
        jitter=50,
        loss=0.5,
        source="Wikipedia (I-4 classes); RTT of a geostationary path estimated",
    ),
    _preset(
        "bgan_stream64",
        down=64,
        up=64,
        rtt=1000,
        jitter=50,
        loss=0.5,
        source="Wikipedia (I-4 classes); RTT of a geostationary path estimated",
    ),
    _preset(
        "mobile_throttled128",
        down=128,
        up=128,
        rtt=80,
        jitter=20,
        policed=True,
        source="Ultra Mobile (128 Kbps after the cap); burst estimated",
    ),
    _preset(
        "mobile_throttled64",
        down=64,
        up=64,
        rtt=80,
        jitter=20,
        policed=True,
        source="Ultra Mobile, halved; rate and burst estimated",
    ),
)

PRESETS: dict[str, Preset] = {preset.spec.name: preset for preset in _ALL}


def find_preset(name: str) -> Preset:
    """The preset of that name. Raises UsageError that lists the names."""
    try:
        return PRESETS[name]
    except KeyError:
        raise UsageError(f"no link preset {name!r}: choose one of {', '.join(PRESETS)}") from None
