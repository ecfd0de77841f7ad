"""The stream over a narrow link in virtual time: its bytes are those measured, its order holds, its sender waits."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acespec.sim.agenda import Agenda
from acespec.sim.link import LinkSpec
from acespec.sim.narrow_stream import NarrowStream
from acespec.sim.outages import Outage
from acespec.sim.packets import segment_sizes

WAN50 = LinkSpec(rate_up_kbps=50, rate_down_kbps=50, delay_ms=50)
FAST = LinkSpec(rate_up_kbps=1e6, rate_down_kbps=1e6, delay_ms=10)
SETTLED_S = 1.0


class Talk:
    """A connection on which messages are noted as they come."""

    def __init__(self, spec: LinkSpec) -> None:
        self.agenda = Agenda()
        self.stream: NarrowStream[bytes] = NarrowStream(self.agenda, spec)
        self.above: list[tuple[float, bytes]] = []
        self.below: list[tuple[float, bytes]] = []
        self.stream.up.on_frame = lambda data: self.above.append((self.agenda.now, data))
        self.stream.down.on_frame = lambda data: self.below.append((self.agenda.now, data))
        self.stream.connect()

    def spent(self) -> tuple[int, int]:
        """IP bytes up and down so far."""
        return self.stream.client.bytes, self.stream.server.bytes


class PingPong(Talk):
    """Stop-and-wait: 20 protobuf bytes up, 7 down, each end holding what it got for a while."""

    def __init__(self, spec: LinkSpec, cloud_s: float, edge_s: float) -> None:
        super().__init__(spec)
        self.rounds: list[tuple[float, int, int]] = []
        self._holds = cloud_s, edge_s
        self._began = 0.0
        self.stream.up.on_frame = lambda _: self._later(self._holds[0], lambda: self.stream.down.send(bytes(7)))
        self.stream.down.on_frame = self._answered
        self.stream.up.on_room = self._ask

    def _later(self, seconds: float, action: object) -> None:
        self.agenda.at(self.agenda.now + seconds, action)  # type: ignore[arg-type] # a lambda without a result

    def _ask(self) -> None:
        self._began = self.agenda.now
        self.stream.up.send(bytes(20))

    def _answered(self, _: bytes) -> None:
        seconds = self.agenda.now - self._began
        self._later(self._holds[1], lambda: self._note(seconds))

    def _note(self, seconds: float) -> None:
        self.rounds.append((seconds, *self.spent()))
        self._ask()

    def cost(self) -> tuple[float, float, float]:
        """(seconds, bytes up, bytes down) of a round, once it is settled."""
        (_, up, down), (_, later_up, later_down) = self.rounds[20], self.rounds[60]
        return self.rounds[60][0], (later_up - up) / 40, (later_down - down) / 40


def test_a_round_costs_what_was_measured_on_a_tuned_channel() -> None:
    """wan.md, 7.1: 151 up and 138 down in 182 ms, where each end takes longer than a delayed ACK waits."""
    talk = PingPong(WAN50, cloud_s=0.05, edge_s=0.06)
    talk.agenda.run(30.0)
    seconds, up, down = talk.cost()
    assert (up, down) == (151, 138)
    assert seconds == pytest.approx(0.182, rel=0.02)


def test_acks_ride_along_where_both_ends_answer_at_once() -> None:
    """wan.md, 7.1: 99 up and 86 down in 142 ms."""
    talk = PingPong(WAN50, cloud_s=0.01, edge_s=0.01)
    talk.agenda.run(30.0)
    seconds, up, down = talk.cost()
    assert (up, down) == (99, 86)
    assert seconds == pytest.approx(0.142, rel=0.02)


def test_setting_up_and_the_first_round_cost_what_was_measured() -> None:
    """wan.md, 7.2: 340 and 139 bytes in 0.25 s, then 460 and 440."""
    ready: list[float] = []
    talk = Talk(WAN50)
    talk.stream.up.on_room = lambda: ready.append(talk.agenda.now)
    talk.agenda.run(SETTLED_S)
    assert ready == [pytest.approx(0.25, abs=0.02)]
    up, down = talk.spent()
    assert up == pytest.approx(340, abs=60)
    assert down == pytest.approx(139, abs=60)
    talk.stream.up.send(bytes(20))
    talk.agenda.run(talk.agenda.now + 1.0)
    talk.stream.down.send(bytes(7))
    talk.agenda.run(talk.agenda.now + 1.0)
    later_up, later_down = talk.spent()
    assert later_up - up == pytest.approx(460, abs=26)
    assert later_down - down == pytest.approx(440, abs=26)


def test_bulk_gets_the_rate_less_headers() -> None:
    """50 Kbps less 52 bytes in 1500 is 48.3; more waits than the queue holds, and nothing is dropped."""
    talk = Talk(WAN50)
    talk.agenda.run(SETTLED_S)
    for _ in range(100):
        talk.stream.up.send(bytes(986))
    began = talk.agenda.now
    talk.agenda.run(began + 15.0)
    kbps = sum(len(data) + 14 for _, data in talk.above) * 8 / 1000 / (talk.above[-1][0] - began - 0.05)
    assert kbps == pytest.approx(48.3, rel=0.01)
    assert talk.stream.client.link.waiting_bytes(talk.agenda.now_ns) <= WAN50.queue_bytes


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 200), st.booleans(), st.integers(0, 4000)), max_size=25),
    st.sampled_from([0.0, 10.0, 40.0]),
    st.booleans(),
    st.integers(0, 3),
)
def test_everything_arrives_once_and_in_order(
    sends: list[tuple[int, bool, int]], loss: float, half: bool, seed: int
) -> None:
    spec = LinkSpec(
        rate_up_kbps=200, rate_down_kbps=100, delay_ms=30, jitter_ms=20, loss_percent=loss, half_duplex=half, seed=seed
    )
    talk = Talk(spec)
    time = SETTLED_S
    sent: dict[bool, list[bytes]] = {True: [], False: []}
    for wait_ms, upward, size in sends:
        time += wait_ms / 1000
        data = len(sent[upward]).to_bytes(2, "big") + bytes(size)
        sent[upward].append(data)
        talk.agenda.at(time, lambda up=upward, data=data: (talk.stream.up if up else talk.stream.down).send(data))  # type: ignore[misc]
    talk.agenda.run(3000.0)
    assert [data for _, data in talk.above] == sent[True]
    assert [data for _, data in talk.below] == sent[False]


@given(st.integers(0, 6000))
def test_bytes_are_payload_framing_and_headers_of_full_segments(size: int) -> None:
    talk = Talk(FAST)
    talk.agenda.run(SETTLED_S)
    talk.stream.up.send(b"x")
    talk.agenda.run(2.0)
    before = talk.spent()[0]
    talk.stream.up.send(bytes(size))
    talk.agenda.run(3.0)
    nbytes = size + 14
    assert talk.spent()[0] - before == nbytes + 52 * len(segment_sizes(nbytes, FAST.mss))


def test_a_lost_segment_holds_up_those_behind_it() -> None:
    """One loss and nothing behind it: 0.2 s and a round trip later; three segments behind it: a round trip."""
    lossy = replace(FAST, loss_percent=30, seed=5)
    alone = [arrival - at for at, arrival in _arrivals(lossy, 1)]
    crowd = [arrival - at for at, arrival in _arrivals(lossy, 8)]
    assert min(alone) == pytest.approx(0.01, abs=0.001)
    assert any(lag == pytest.approx(0.01 + 0.22, abs=0.005) for lag in alone)
    assert any(lag == pytest.approx(0.03, abs=0.005) for lag in crowd)


def _arrivals(spec: LinkSpec, together: int) -> list[tuple[float, float]]:
    """(sent at, arrived at) of messages that leave `together`, one such group every 20 s."""
    talk = Talk(spec)
    talk.agenda.run(100.0)
    sent: list[float] = []
    for _ in range(30):
        for _ in range(together):
            sent.append(talk.agenda.now)
            talk.stream.up.send(b"x")
        talk.agenda.run(talk.agenda.now + 20.0)
    return list(zip(sent, [at for at, _ in talk.above], strict=True))


@pytest.mark.parametrize(("backoff", "resumes"), [(False, 15.0), (True, 5.0 + 0.22 * (2**6 - 1))])
def test_an_outage_is_sat_out(backoff: bool, resumes: float) -> None:
    """What is sent at 5 s, the link being down until 15 s, goes then; with TCP's timer of 0.22 s, when that fires."""
    spec = replace(FAST, delay_ms=10, outages=(Outage(4.0, 11.0),), tcp_backoff=backoff)
    talk = Talk(spec)
    talk.agenda.run(5.0)
    talk.stream.up.send(b"x")
    talk.agenda.run(60.0)
    assert talk.above[0][0] == pytest.approx(resumes + 0.01, abs=0.001)


def test_a_writer_hears_when_there_is_room() -> None:
    talk = Talk(WAN50)
    talk.agenda.run(SETTLED_S)
    heard: list[float] = []
    talk.stream.up.on_room = lambda: heard.append(talk.agenda.now)
    rooms = [talk.stream.up.room]
    talk.stream.up.send(bytes(5000))
    rooms.append(talk.stream.up.room)
    talk.agenda.run(10.0)
    rooms.append(talk.stream.up.room)
    assert rooms == [True, False, True]
    assert len(heard) == 1


def test_messages_put_in_before_the_connection_is_there_wait_for_it() -> None:
    talk = Talk(WAN50)
    talk.stream.up.send(b"early")
    assert not talk.stream.up.room
    talk.agenda.run(2.0)
    assert [data for _, data in talk.above] == [b"early"]


def test_a_held_pipe_delivers_later_and_a_closed_one_never() -> None:
    talk = Talk(FAST)
    talk.agenda.run(SETTLED_S)
    talk.stream.hold(5.0)
    talk.stream.up.send(b"held")
    talk.stream.down.send(b"lost")
    talk.agenda.run(2.0)
    talk.stream.down.close()
    talk.stream.down.send(b"too late")
    talk.agenda.run(10.0)
    assert talk.above == [(5.0, b"held")]
    assert talk.below == []


def test_the_end_of_a_pipe_comes_after_everything_before_it() -> None:
    talk = Talk(WAN50)
    talk.agenda.run(SETTLED_S)
    seen: list[int] = []
    for _ in range(5):
        talk.stream.down.send(bytes(600))
    talk.stream.down.finish(lambda: seen.append(len(talk.below)))
    talk.agenda.run(20.0)
    assert seen == [5]


def test_a_syn_that_is_lost_is_sent_again() -> None:
    ready = []
    for seed in range(12):
        talk = Talk(replace(FAST, loss_percent=30, seed=seed))
        talk.stream.up.send(b"x")
        talk.agenda.run(600.0)
        ready.append(talk.above[0][0])
    assert max(ready) > 1.0
