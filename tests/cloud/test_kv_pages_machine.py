"""Any history of sessions on few pages, against a naive cache and simulated KV."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from acespec.cloud.kv_pages import Hold, KvPages
from acespec.cloud.prefix_cache import Node
from acespec.cloud.runner import PAGE, pages_for, prefill_chunks
from acespec.proto.prefix import common_prefix

COUNT = 9
HALF = PAGE // 2
LETTERS = "abcA"

Key = tuple[str, tuple[int, ...]]
"""A cached page, by tenant and all tokens up to its end."""


class NaiveCache:
    """What ought to be cached, by scans over whole prefixes."""

    def __init__(self) -> None:
        self.pages: dict[Key, int] = {}
        self.users: dict[Key, int] = {}
        self.used_at: dict[Key, int] = {}
        self.clock = 0

    def chain(self, salt: str, tokens: Sequence[int]) -> list[Key]:
        keys: list[Key] = []
        for end in range(PAGE, len(tokens) + 1, PAGE):
            if (key := (salt, tuple(tokens[:end]))) not in self.pages:
                break
            keys.append(key)
        return keys

    def tails(self, salt: str, before: tuple[int, ...]) -> list[Key]:
        return [
            k
            for k in self.pages
            if k[0] == salt and k[1][: len(before)] == before and 0 < len(k[1]) - len(before) < PAGE
        ]

    def pin(self, keys: list[Key]) -> None:
        for key in keys:
            self.users[key] = self.users.get(key, 0) + 1

    def leave(self, salt: str, tokens: Sequence[int], shared: int, table: Sequence[int]) -> None:
        ends = [*range(PAGE, len(tokens) + 1, PAGE)]
        if len(tokens) % PAGE and len(tokens) > shared * PAGE:
            ends.append(len(tokens))
        keys = [(salt, tuple(tokens[:end])) for end in ends]
        for i, key in enumerate(keys):
            self.pages.setdefault(key, table[i])
            if i < shared:
                self.users[key] -= 1
        for key in reversed(keys):
            self.clock += 1
            if not self.users.get(key):
                self.used_at[key] = self.clock

    @property
    def unused(self) -> list[Key]:
        return [k for k in self.pages if not self.users.get(k)]

    def evict(self) -> None:
        """The least recently used of those that nothing in the cache follows."""
        followed = {(salt, tokens[: (len(tokens) - 1) // PAGE * PAGE]) for salt, tokens in self.pages}
        leaves = [key for key in self.unused if key not in followed]
        del self.pages[min(leaves, key=lambda k: self.used_at[k])]


@dataclass(eq=False)
class Session:
    """A turn; `kv` leading positions are there, by steps that are over."""

    hold: Hold
    tokens: list[int]
    kv: int
    shared: int
    drafts: list[int] = field(default_factory=list)


class Engine(RuleBasedStateMachine):
    """Sessions on few pages, with simulated KV: that of a position is a hash of the tenant and all tokens up to it. A
    step writes it when it ends, whatever has happened to its session meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.kv = KvPages(COUNT)
        self.memory = np.zeros((COUNT, PAGE), np.int64)
        self.naive = NaiveCache()
        self.sessions: list[Session] = []
        self.past: list[tuple[str, list[int]]] = []
        self.flight: tuple[Session, tuple[int, ...], int, np.ndarray] | None = None
        self.asked = self.hit = self.evicted = 0

    # What the tokens of a session are.

    @initialize(letters=st.text("abc", min_size=2, max_size=3))
    def seed(self, letters: str) -> None:
        self.open("one", letters, 5, 0)

    @precondition(lambda self: len(self.sessions) < 6)
    @rule(
        salt=st.sampled_from(["one", "two"]),
        letters=st.text(LETTERS, max_size=3),
        tail=st.sampled_from([1, 2, 20, PAGE - 1]),
        token=st.integers(0, 1),
    )
    def open(self, salt: str, letters: str, tail: int, token: int) -> None:
        self._open(salt, text(letters, [token] * tail))

    @precondition(lambda self: self.past and len(self.sessions) < 6)
    @rule(
        which=st.integers(0, 99),
        cut=st.sampled_from([0, 1, 2, 10, PAGE - 1, PAGE, PAGE + 1]),
        more=st.lists(st.integers(0, 1), max_size=2),
    )
    def come_back(self, which: int, cut: int, more: list[int]) -> None:
        """A further turn, a regenerated one, an edited history: a text that was there, cut and continued."""
        salt, tokens = self.past[which % len(self.past)]
        tokens = [*tokens[: max(0, len(tokens) - cut)], *more]
        if tokens:
            self._open(salt, tokens)

    @rule(salt=st.sampled_from(["one", "one", "two"]), letters=st.text(LETTERS, max_size=4))
    def whole_turn(self, salt: str, letters: str) -> None:
        self.open(salt, letters, 20, 0)
        for _ in range(3):
            self.begin_step(-1, [], False)
            self.end_step(0, 0)
        self.release(-1)

    @precondition(lambda self: self.sessions and len(self.sessions) < 6)
    @rule(which=st.integers(0, 99))
    def sibling(self, which: int) -> None:
        session = self._pick(which)
        self._open(session.hold.salt, session.tokens)

    def _open(self, salt: str, tokens: list[int]) -> None:
        known = tokens[:-1]
        chain = self.naive.chain(salt, known)
        self.naive.pin(chain)
        before = chain[-1][1] if chain else ()
        free = self.kv.free
        hold = self.kv.hold(salt, tokens)
        assert self.kv.free == free
        assert hold.shared == len(chain)
        assert hold.table[: hold.shared] == tuple(self.naive.pages[k] for k in chain)
        best = {k: common_prefix(k[1][len(before) :], known[len(before) :]) for k in self.naive.tails(salt, before)}
        common = max(best.values(), default=0)
        assert hold.cached == len(before) + common < len(tokens)
        if common:
            (tail,) = (k for k, page in self.naive.pages.items() if page == hold.table[-1])
            assert best[tail] == common
            del self.naive.pages[tail]
        assert len(hold.table) == hold.shared + bool(common)
        self.sessions.append(Session(hold, list(tokens), hold.cached, hold.shared))
        self.asked, self.hit = self.asked + len(tokens), self.hit + hold.cached

    # Steps run one after another; pages change hands meanwhile.

    @precondition(lambda self: self.sessions)
    @rule(which=st.integers(0, 99), drafts=st.lists(st.integers(0, 1), max_size=9), wide=st.booleans())
    def begin_step(self, which: int, drafts: list[int], wide: bool) -> None:
        self.end_step(0, 0)
        session = self._pick(which)
        session.drafts = drafts * (8 if wide else 1)
        if session.kv < len(session.tokens) - 1:
            session.drafts = []
            start, end = prefill_chunks(session.kv, len(session.tokens), 2 * PAGE)[0]
            inputs = session.tokens[:end]
        else:
            start, inputs = len(session.tokens) - 1, [*session.tokens, *session.drafts]
        if self._reserve(session, len(inputs)):
            values = kv_of(session.hold.salt, inputs)[start:]
            self.flight = session, session.hold.table, start, values

    def _reserve(self, session: Session, length: int) -> bool:
        missing = pages_for(length) - len(session.hold.table)
        before = session.hold.table
        if not self.kv.reserve(session.hold, length):
            assert missing > self.kv.available
            assert session.hold.table == before
            return False
        for _ in range(missing - (COUNT - self._used_pages(session, before))):
            self.naive.evict()
            self.evicted += 1
        assert len(session.hold.table) == max(len(before), pages_for(length))
        assert session.hold.table[: len(before)] == before
        return True

    def _used_pages(self, session: Session, before: tuple[int, ...]) -> int:
        """Pages that were not free before `session`, which had the table `before`, reserved."""
        tables = [before if s is session else s.hold.table for s in self.sessions]
        return len({page for table in tables for page in table} | set(self.naive.pages.values()))

    @precondition(lambda self: self.flight)
    @rule(accepted=st.integers(0, 99), bonus=st.integers(0, 1))
    def end_step(self, accepted: int, bonus: int) -> None:
        if self.flight is None:
            return
        session, table, start, values = self.flight
        self.flight = None
        for position, value in enumerate(values, start):
            self.memory[table[position // PAGE], position % PAGE] = value
        if session not in self.sessions:
            return
        session.kv = min(start + len(values), len(session.tokens) - 1)
        if start + len(values) >= len(session.tokens) and len(session.tokens) < 6 * PAGE:
            session.tokens += [*session.drafts[: accepted % (len(session.drafts) + 1)], bonus]
            session.kv = len(session.tokens) - 1
        if session.kv == len(session.tokens) - 1:
            self.kv.trim(session.hold, len(session.tokens))
            assert len(session.hold.table) == min(len(table), pages_for(len(session.tokens)))

    @precondition(lambda self: self.sessions)
    @rule(which=st.integers(0, 99))
    def publish(self, which: int) -> None:
        session = self._pick(which)
        table = session.hold.table
        self.kv.publish(session.hold, session.tokens[: session.kv])
        while (end := (session.shared + 1) * PAGE) <= session.kv:
            key = session.hold.salt, tuple(session.tokens[:end])
            if key in self.naive.pages:
                break
            self.naive.pages[key] = table[session.shared]
            self.naive.users[key] = 1
            session.shared += 1
        assert session.hold.shared == session.shared
        assert session.hold.table == table

    @precondition(lambda self: self.sessions)
    @rule(which=st.integers(0, 99))
    def release(self, which: int) -> None:
        """Finished, cancelled or evicted; a step of it may be in flight."""
        session = self._pick(which)
        table, salt, tokens = session.hold.table, session.hold.salt, session.tokens[: session.kv]
        asked, hit = self.kv.stats.asked, self.kv.stats.hit
        if session.hold._asked:
            self.asked, self.hit = self.asked - session.hold._asked, self.hit - session.hold.cached
        self.kv.release(session.hold, tokens)
        assert (self.kv.stats.asked, self.kv.stats.hit) == (asked, hit)
        self.naive.leave(salt, tokens, session.shared, table)
        self.sessions.remove(session)
        self.past.append((salt, session.tokens))

    @rule(salt=st.sampled_from([None, "one", "two"]), seldom=st.integers(0, 4))
    def drop(self, salt: str | None, seldom: int) -> None:
        if seldom:
            return
        self.kv.drop_cached(salt)
        for key in self.naive.unused:
            if salt is None or key[0] == salt:
                del self.naive.pages[key]

    def _pick(self, which: int) -> Session:
        return self.sessions[which % len(self.sessions)]

    # What holds at all times.

    @invariant()
    def the_cache_is_what_it_ought_to_be(self) -> None:
        assert cached_pages(self.kv) == self.naive.pages
        assert self.kv.cached == len(self.naive.unused)
        assert self.kv.stats.evicted == self.evicted

    @invariant()
    def every_page_is_in_one_place(self) -> None:
        own = [page for s in self.sessions for page in s.hold.table[s.shared :]]
        nodes = list(self.naive.pages.values())
        assert len({*own, *nodes}) == len(own) + len(nodes)
        shared = {page for s in self.sessions for page in s.hold.table[: s.shared]}
        assert shared == {page for key, page in self.naive.pages.items() if self.naive.users.get(key)}
        assert self.kv.in_use == len(own) + len(shared)
        assert self.kv.free == COUNT - len(own) - len(nodes)
        assert self.kv.available == self.kv.free + self.kv.cached
        assert self.kv.free + self.kv.in_use + self.kv.cached == self.kv.count == COUNT

    @invariant()
    def the_kv_of_sessions_and_cache_is_true(self) -> None:
        for s in self.sessions:
            held = self.memory[list(s.hold.table)].reshape(-1)[: s.kv]
            assert np.array_equal(held, kv_of(s.hold.salt, s.tokens[: s.kv]))
        for (salt, tokens), page in self.naive.pages.items():
            begin = (len(tokens) - 1) // PAGE * PAGE
            assert np.array_equal(self.memory[page, : len(tokens) - begin], kv_of(salt, tokens)[begin:])

    @invariant()
    def running_turns_are_counted_once(self) -> None:
        waiting = [s.hold for s in self.sessions if s.hold._asked]
        assert self.kv.stats.asked == self.asked - sum(h._asked for h in waiting)
        assert self.kv.stats.hit == self.hit - sum(h.cached for h in waiting)

    def teardown(self) -> None:
        while self.sessions:
            self.release(0)
        assert (self.kv.in_use, self.kv.available) == (0, COUNT)
        self.kv.drop_cached()
        assert self.kv.free == COUNT
        assert not self.kv._cache._roots


def text(letters: str, tail: Sequence[int] = ()) -> list[int]:
    """A page of each letter, then the tail. Half a page of an upper-case letter is something else."""
    tokens: list[int] = []
    for letter in letters:
        tokens += [ord(letter.lower())] * (HALF if letter.isupper() else PAGE)
        tokens += [0] * (PAGE - HALF if letter.isupper() else 0)
    return [*tokens, *tail]


def kv_of(salt: str, tokens: Sequence[int]) -> np.ndarray:
    """What the pages hold for `tokens`."""
    values: list[int] = []
    state = hash(salt)
    for token in tokens:
        state = hash((state, token))
        values.append(state)
    return np.array(values, np.int64)


def cached_pages(kv: KvPages) -> dict[Key, int]:
    found: dict[Key, int] = {}

    def visit(node: Node, before: tuple[int, ...]) -> None:
        for child in (*node.children.values(), *node.tails):
            assert child.parent is node
            assert child.salt == node.salt
            found[node.salt, before + child.tokens] = child.page
            visit(child, before + child.tokens)

    for root in kv._cache._roots.values():
        visit(root, ())
    return found


TestEngine = Engine.TestCase
TestEngine.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
