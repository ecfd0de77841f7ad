"""The link as `tc` commands: exact ones, honest refusals, and against netem itself where the kernel has it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from acespec.bench import link_traffic
from acespec.proto.errors import UsageError
from acespec.sim.link import LinkSpec
from acespec.sim.loss import GilbertElliott
from acespec.sim.namespaces import CLOUD_IP, DEVICE, Namespace, cable
from acespec.sim.outages import OnOff, Outage
from acespec.sim.presets import PRESETS
from acespec.sim.rate import RateTrace
from acespec.sim.tc import FEATURES, Shaping, explain, frame_header, missing_features

from .tun_lab import PORT, needs_root, python

WAN50 = LinkSpec.preset("wan50")
CALM = replace(WAN50, jitter_ms=0, queue_bytes=15_000)


def test_the_commands_for_both_ways_on_one_device() -> None:
    spec = replace(WAN50, rate_up_kbps=20.5, loss_percent=1.5)
    netem = "netem limit {} delay 60000us 10000us distribution normal loss random 1.5% rate {}bit -14"
    assert Shaping(spec, "eth0").commands() == [
        f"tc qdisc add dev eth0 root handle 1: {netem.format(4, 20500)}",
        "tc qdisc add dev eth0 parent 1:1 handle 10: pfifo limit 1000",
        "ip link add name aceeth0 type ifb",
        "ip link set dev aceeth0 up",
        "tc qdisc add dev eth0 handle ffff: ingress",
        "tc filter add dev eth0 parent ffff: protocol all u32 match u32 0 0 action mirred egress redirect dev aceeth0",
        f"tc qdisc add dev aceeth0 root handle 1: {netem.format(4, 50000)}",
        "tc qdisc add dev aceeth0 parent 1:1 handle 10: pfifo limit 1000",
    ]
    assert Shaping(spec, "eth0").removal() == [
        "tc qdisc del dev eth0 root",
        "tc qdisc del dev eth0 ingress",
        "ip link del dev aceeth0",
    ]


def test_in_the_cloud_down_leaves() -> None:
    commands = Shaping(replace(CALM, rate_down_kbps=30), "eth0", "cloud").commands()
    assert "rate 30000bit" in commands[0]
    assert "rate 50000bit" in commands[-2]


def test_without_jitter_the_delay_is_plain_and_without_frames_nothing_is_deducted() -> None:
    (first, *_) = Shaping(CALM, "tun0", frame_header=0).commands()
    assert first == "tc qdisc add dev tun0 root handle 1: netem limit 12 delay 50000us rate 50000bit 0"


def test_a_channel_with_memory_keeps_its_four_numbers() -> None:
    spec = CALM.varied(loss=GilbertElliott(0.01, 0.25, 0.9, 0.002))
    assert " loss gemodel 1% 25% 90% 0.2% " in Shaping(spec, "eth0").commands()[0]


def test_the_limit_is_the_queue_the_packet_in_service_and_what_the_delay_holds() -> None:
    # 15000 B: 10 packets; 1 in service; 50 Kbps x 50 ms are 312.5 B under way.
    assert Shaping(CALM, "eth0").limit_packets("up") == 10 + 1 + 1
    assert Shaping(CALM, "eth0", packet_bytes=100).limit_packets("up") == 150 + 1 + 4
    assert Shaping(replace(CALM, jitter_ms=100), "eth0").limit_packets("up") == 10 + 1 + 2


def test_a_policer_is_a_bucket_behind_the_delay() -> None:
    spec = replace(WAN50, mode="police", burst_bytes=6000)
    netem, bucket = Shaping(spec, "eth0").commands()[:2]
    assert netem.endswith("netem limit 1000 delay 60000us 10000us distribution normal rate 10gbit")
    assert bucket == "tc qdisc add dev eth0 parent 1:1 handle 10: tbf rate 50000bit burst 6000 limit 1514"


@pytest.mark.parametrize(
    ("spec", "what"),
    [
        (WAN50.varied(rate_up=RateTrace(((0.0, 50.0), (1.0, 20.0)), 2.0)), "a rate that varies"),
        (replace(WAN50, outages=(Outage(1, 2),)), "outages"),
        (replace(WAN50, on_off=OnOff(10, 1)), "outages"),
        (replace(WAN50, half_duplex=True, outages=(Outage(1, 2),)), "outages and a half-duplex line"),
    ],
)
def test_what_tc_cannot_express_is_named(spec: LinkSpec, what: str) -> None:
    with pytest.raises(UsageError, match=f"has {what}, which tc cannot express"):
        Shaping(spec, "eth0")


@pytest.mark.parametrize("dev", ["", "eth0; reboot", "a/b", "sixteen-letters!"])
def test_a_device_name_cannot_smuggle_words_in(dev: str) -> None:
    with pytest.raises(UsageError, match="no name of a network device"):
        Shaping(WAN50, dev)


def test_every_preset_is_expressed_or_refused_with_a_reason() -> None:
    for preset in PRESETS.values():
        try:
            commands = Shaping(preset.spec, "eth0").commands()
        except UsageError as error:
            assert "which tc cannot express" in str(error)  # noqa: PT017 - some presets, not all
        else:
            assert len(commands) == 8


def test_loopback_counts_a_frame_header_as_ethernet_does() -> None:
    assert frame_header("lo") == frame_header("no-such-device") == 14


def test_what_is_missing_is_said_with_the_kernel_option() -> None:
    text = explain(FEATURES[:1])
    assert "netem needs CONFIG_NET_SCH_NETEM (module sch_netem)" in text
    assert "acespec-sim tun" in text


def tc_inside(namespace: Namespace, *arguments: str) -> subprocess.CompletedProcess[str]:
    main = [sys.executable, "-c", "from acespec.sim.cli import main; main()", "tc", "--dev", DEVICE]
    return subprocess.run(namespace.command([*main, *arguments]), capture_output=True, text=True, check=False)


def shown(namespace: Namespace, *command: str) -> str:
    return subprocess.run(namespace.command(command), capture_output=True, text=True, check=True).stdout


@contextmanager
def running(namespace: Namespace, *command: str) -> Iterator[None]:
    process = subprocess.Popen(namespace.command(command))
    try:
        yield
    finally:
        process.terminate()
        process.wait()


@pytest.fixture
def pair() -> Iterator[tuple[Namespace, Namespace]]:
    with cable() as ends:
        yield ends


@needs_root
@pytest.mark.root
def test_applied_and_removed_where_the_kernel_has_netem_else_said_what_is_missing(
    pair: tuple[Namespace, Namespace],
) -> None:
    edge, _ = pair
    before = shown(edge, "tc", "qdisc")
    missing = missing_features(WAN50)
    applied = tc_inside(edge, "--apply")
    if missing:
        assert applied.returncode == 2
        assert all(feature.option in applied.stderr for feature in missing)
    else:
        assert applied.returncode == 0, applied.stderr
        assert shown(edge, "tc", "qdisc").count("netem") == 2
        again = tc_inside(edge, "--apply")
        assert again.returncode == 2
        assert "shaped already" in again.stderr
        assert shown(edge, "tc", "qdisc").count("netem") == 2
        assert tc_inside(edge, "--remove").returncode == 0
    assert shown(edge, "tc", "qdisc") == before
    assert "ifb" not in shown(edge, "ip", "-d", "link")


@needs_root
@pytest.mark.root
def test_queues_of_others_are_left_alone(pair: tuple[Namespace, Namespace]) -> None:
    edge, _ = pair
    edge.tc(f"qdisc add dev {DEVICE} root tbf rate 1mbit burst 1600 limit 3000")
    removed = tc_inside(edge, "--remove")
    assert removed.returncode == 2
    assert "not shaped by us" in removed.stderr
    assert tc_inside(edge, "--apply").returncode == 2
    assert "tbf" in shown(edge, "tc", "qdisc")


@needs_root
@pytest.mark.root
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_netem_as_we_ask_for_it_is_the_modelled_link(pair: tuple[Namespace, Namespace]) -> None:
    """Round trips of IP packets of several sizes, the promptest of each, within 2 ms; goodput within 2 %."""
    if missing := missing_features(CALM):
        pytest.skip(explain(missing))
    edge, cloud = pair
    for command in Shaping(CALM, DEVICE).commands():
        shown(edge, *command.split())
    sizes = [40, 116, 576, 1500]
    upload = [sys.executable, link_traffic.__file__, "bulk", CLOUD_IP, str(PORT), "120000"]
    with (
        running(cloud, *python(ECHO, CLOUD_IP)),
        running(cloud, sys.executable, link_traffic.__file__, "serve", CLOUD_IP, str(PORT)),
    ):
        time.sleep(2)
        times = json.loads(shown(edge, *python(ROUNDS, CLOUD_IP, *sizes)))
        done = json.loads(shown(edge, *upload))
    for size, took in zip(sizes, times, strict=True):
        assert min(took) == pytest.approx(100 + 2 * size * 8 / 50, abs=2)
    assert done["bytes"] * 8 / done["seconds"] / 1000 == pytest.approx(50 * 1448 / 1500, rel=0.02)


# Datagrams echoed, and timed for IP packets of each size.
ECHO = """
import socket, sys
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.bind((sys.argv[1], 5001))
while True:
    sock.sendto(*sock.recvfrom(65536))
"""
ROUNDS = """
import json, socket, sys, time
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.connect((sys.argv[1], 5001))
def took(size):
    begin = time.monotonic()
    sock.send(bytes(size - 28))
    sock.recv(65536)
    return (time.monotonic() - begin) * 1000
print(json.dumps([[took(int(size)) for _ in range(9)] for size in sys.argv[2:]]))
"""
