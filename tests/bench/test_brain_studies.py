"""The studies of the edge's brain, in tiny: what they count is what they say, and their commands run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from acespec.bench.brain import age, cache, drift, siblings
from acespec.bench.brain.__main__ import main
from acespec.bench.brain.drift import CHANGE_AT, CHANGE_S, WINDOW, Change, Timeline, readapted
from acespec.bench.brain.frontier import Point, form_knee, knee_of, users_at
from acespec.bench.brain.study import Setting, run_all, table
from acespec.proto.errors import UsageError
from acespec.sim.theory.acceptance import tokens_per_step
from acespec.sim.theory.branch_cache import Tail, hit_probability


def test_a_table_has_its_columns_under_their_heads() -> None:
    assert table(("a", "long"), [(1.25, "x"), (None, 30)]) == "  a  long\n1.2     x\n  -    30\n"


def test_results_come_in_the_order_of_their_items() -> None:
    assert run_all(str, [3, 1, 2, 1], jobs=1) == ["3", "1", "2", "1"]


class TestFrontier:
    def test_load_is_users_at_the_fewest_steps(self) -> None:
        assert [users_at(load) for load in (0.1, 0.5, 0.9)] == [1, 4, 8]

    def test_the_closed_knee_falls_with_the_round_trip(self) -> None:
        """At 100 ms, C is 100 + 25 and some 33 ms of two messages at 50 Kbps; a little above 20 tokens/s."""
        assert form_knee(100, 50) == pytest.approx(22, abs=1.5)
        assert form_knee(30, 50) > form_knee(100, 50) > form_knee(300, 50)

    def test_the_measured_knee_is_the_last_cheap_rate(self) -> None:
        def point(rate: float, steps: float, load: float = 0.1) -> Point:
            return Point(100, load, 1, "ours", "on", "never", rate, rate, 1.0, 25 * steps, steps, 0.5)

        knee = knee_of([point(40, 0.8), point(5, 0.2), point(20, 0.22), point(30, 0.5)], form=22)
        assert (knee.measured, knee.fewest, knee.below, knee.above) == (20, 0.2, 0.2, 0.8)
        assert knee.cheap  # Unloaded, plain steps above the knee are what the rate was granted for.
        assert not knee_of([point(5, 0.2), point(10, 0.5)], form=22).cheap
        loaded = [point(5, 0.2, 0.9), point(40, 0.28, 0.9)]
        assert knee_of(loaded, form=22).cheap
        assert not knee_of([*loaded, point(30, 0.4, 0.9)], form=22).cheap

    @pytest.mark.timeout(60)
    def test_it_runs_and_draws(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        figures, folder = tmp_path / "f.json", tmp_path / "pictures"
        options = ["--rtt", "30", "--load", "0.1", "--tree", "off", "--tokens", "60", "--quick"]
        assert main(["frontier", *options, "--json", str(figures), "--out", str(folder)]) == 0
        data = json.loads(figures.read_text(encoding="utf-8"))
        ways = {point["way"]: point for point in data["points"] if point["policy"] in ("", "always")}
        assert ways["plain"]["steps"] == pytest.approx(1, abs=0.05)
        assert ways["plain"]["verifier_ms"] == pytest.approx(25, rel=0.05)
        assert ways["coloc"]["tokens_per_s"] > ways["ours"]["tokens_per_s"] > ways["plain"]["tokens_per_s"]
        never = [point for point in data["points"] if point["policy"] == "never"]
        assert min(point["steps"] for point in never) < 0.35
        assert {path.name for path in folder.iterdir()} == {"frontier.png", "on_schedule.png"}
        assert "cheap side" in capsys.readouterr().out

    def test_a_load_beyond_the_verifier_is_refused(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["frontier", "--load", "1.5"]) != 0
        assert "--load" in capsys.readouterr().err


class TestDrift:
    @staticmethod
    def change() -> Change:
        return Change("made up", Setting(), Setting())

    @staticmethod
    def at_speeds(*parts: tuple[float, float]) -> Timeline:
        """(until, tokens/s): the times of tokens that come at these speeds."""
        times, now = [0.0], 0.0
        for until, speed in parts:
            while now < until:
                now += 1 / speed
                times.append(now)
        return Timeline(times)

    def test_it_counts_from_the_change_until_the_speed_is_there(self) -> None:
        """Ten seconds at half of what the new conditions allow: the first window that is fast enough begins when less
        than a tenth of it, in tokens, is slow."""
        drifting = self.at_speeds((CHANGE_S, 20), (CHANGE_S + 10, 5), (CHANGE_S + 100, 10))
        settled = self.at_speeds((200, 10))
        found = readapted(self.change(), [(drifting, settled)])
        assert found.readapt_s == pytest.approx(10, abs=0.11 * WINDOW / 5)
        assert found.readapt_s == found.first_s
        assert found.lowest == pytest.approx(0.5, abs=0.03)
        assert (found.before, found.steady) == (pytest.approx(20, rel=0.02), pytest.approx(10, rel=0.02))
        assert found.rest == pytest.approx(1, abs=0.02)

    def test_who_never_gets_there_has_no_time(self) -> None:
        drifting, settled = self.at_speeds((CHANGE_S, 20), (100, 5)), self.at_speeds((200, 10))
        found = readapted(self.change(), [(drifting, settled)])
        assert (found.first_s, found.readapt_s) == (None, None)

    def test_a_relapse_counts(self) -> None:
        drifting = self.at_speeds((CHANGE_S, 20), (CHANGE_S + 20, 10), (CHANGE_S + 25, 5), (CHANGE_S + 80, 10))
        found = readapted(self.change(), [(drifting, self.at_speeds((200, 10)))])
        assert found.first_s == pytest.approx(0, abs=0.2)
        assert found.readapt_s == pytest.approx(25, abs=1)

    def test_an_answer_that_ends_before_the_change_is_refused(self) -> None:
        short = self.at_speeds((CHANGE_S + 1, 10))
        with pytest.raises(UsageError, match="--tokens"):
            readapted(self.change(), [(short, self.at_speeds((200, 10)))])

    def test_changes_are_those_that_were_asked_for(self) -> None:
        """In the world: the speed before is that of the old conditions, the one behind that of the new ones."""
        base = Setting(profile="a100-70b", tokens=440, tree="off", strategy="plain")
        longer = drift.rtt_change(base, 20, 220)
        assert Timeline.of(longer.drifting).times[-1] == pytest.approx(Timeline.of(longer.settled).times[-1], abs=0.6)
        fast = Setting(profile="theory-25ms", tokens=900, tree="off", strategy="plain")
        slower = drift.rate_change(fast, 100, 1)
        drifting, settled = Timeline.of(slower.drifting).times, Timeline.of(slower.settled).times
        before = [t for t in drifting if t < CHANGE_S]
        assert len(before) == pytest.approx(CHANGE_S * 40, rel=0.05)
        assert drifting[-1] > CHANGE_S + 3
        assert settled[-1] > 40
        worse = drift.acceptance_change(base, 0.9, 0.5)
        assert worse.at_s is None
        assert worse.drifting.acceptance == f"0.9@0,0.5@{CHANGE_AT}"

    @pytest.mark.timeout(60)
    def test_a_change_is_measured(self) -> None:
        base = Setting(profile="a100-70b", tokens=420, tree="off")
        found = drift.measure(drift.rtt_change(base, 30, 300), seeds=1)
        assert found.before > 1.2 * found.steady
        assert found.readapt_s is not None


def test_siblings_cover_what_they_should() -> None:
    """Where every guess is shipped, coverage is the share of misses that further guesses catch: .5, .775 of four."""
    base = Setting(draft="fixed:8", free_run="never", rate=20.0, tokens=150, kbps=250.0)
    one, two, four = (siblings.measure(base.but(tree=f"siblings:{width}")) for width in (1, 2, 4))
    assert one.coverage == 0
    assert two.coverage == pytest.approx(0.5, abs=0.2)
    assert two.coverage < four.coverage == pytest.approx(0.775, abs=0.2)
    assert four.kappa == pytest.approx(0.8 + 0.2 * four.coverage)
    assert one.rows < two.rows < four.rows
    assert one.up_bytes < two.up_bytes < four.up_bytes
    assert one.steps > four.steps


def test_the_narrowest_width_that_is_good_enough_is_the_default() -> None:
    def summary(width: int, speed: float, steps: float, policy: str = "always") -> siblings.Summary:
        return siblings.Summary("rate", width, 50, policy, 0.5, 0.9, 60, speed, speed, steps, 2)

    found = [summary(1, 1.0, 1.0), summary(2, 1.05, 1.0), summary(4, 1.055, 0.9)]
    assert siblings.best_width(found) == 2
    steps = [summary(1, 1.0, 1.0, "never"), summary(2, 1.0, 0.9, "never"), summary(4, 0.9, 0.8, "never")]
    assert siblings.best_width(steps) == 4
    assert "siblings:2" in siblings.report(found).splitlines()[-1]


class TestCache:
    def test_the_form_is_that_of_the_theory(self) -> None:
        """With R(F) = 1 - c F^-b through the replayed drafter's chances, the sum is `hit_probability` but for R_D."""
        a, depth = 0.6, 3
        fans = cache.fan_out(a, depth, "siblings:4")
        assert fans[0] == 3  # The third sibling of an honest .6 is worth .4 x .5 x .6 x .25 = .03 at first.
        assert fans == sorted(fans, reverse=True)
        assert fans[-1] >= 1
        hit, covered = cache.closed_form(a, depth, "siblings:4")
        tail = Tail(b=0.73, c=0.5)
        form = hit_probability(a, fans, tail)
        bonus = a**depth * (tail.coverage(a, fans[-1]) - max(a, tail.hit(fans[-1])))
        assert hit == pytest.approx(form + bonus, abs=0.01)
        assert 0.5 < covered <= 0.775

    def test_the_depth_is_the_one_that_explains_the_tokens_of_a_step(self) -> None:
        assert cache.depth_of(0.8, tokens_per_step(0.8, 5), 0.0, 0.0) == pytest.approx(5)
        with_siblings = tokens_per_step(0.8, 5) + (1 - 0.8**5) * 0.4
        assert cache.depth_of(0.8, with_siblings, 0.4, 0.0) == pytest.approx(5)
        assert cache.depth_of(0.8, 100.0, 0.4, 0.0) == cache.DEEPEST

    def test_a_chain_saves_nothing_and_a_tree_does(self) -> None:
        base = Setting(rtt_ms=100, free_run="never", kbps=250, tokens=250)
        siblings_only, tree = (cache.measure(base.but(tree=tree)) for tree in ("siblings:4", "on"))
        assert siblings_only.saved == 0 < tree.saved
        assert siblings_only.hit == pytest.approx(siblings_only.hit_form, abs=0.2)
        assert 0 < tree.hit < 1
        assert tree.proposals > siblings_only.proposals


class TestAge:
    def test_the_flood_fills_the_link_and_stays_young(self) -> None:
        setting = Setting(draft="fixed:16", tree="siblings:8", tokens=120, token_ms=0.0, acceptance="0")
        found = age.measure(setting)
        assert found.busy > 0.7
        assert found.drafts > 10
        assert 0.05 < found.age < age.MOST_AGE_S  # The way alone takes 50 ms.
        assert found.speed > 0.97
        assert abs(found.later) < 0.05

    def test_a_link_that_is_slower_makes_drafts_older(self) -> None:
        setting = Setting(draft="fixed:16", tree="siblings:8", tokens=60, token_ms=0.0, acceptance="0")
        assert age.measure(setting.but(kbps=25.0)).age > age.measure(setting).age

    @pytest.mark.timeout(60)
    def test_the_real_stack_agrees(self) -> None:
        setting = Setting(draft="fixed:16", tree="siblings:8", token_ms=0.0, acceptance="0")
        found = age.measure_live(setting, 4.0)
        assert 0.05 < found.age < age.MOST_AGE_S
        assert found.drafts > 5
