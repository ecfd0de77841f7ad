"""The KV pages of an engine: each is free, some session's own, shared in the prefix cache, or cached and unused.

A turn *holds* pages. It looks its tokens up (`hold`), makes room for each step before it is planned (`reserve`), gives
back what rejected drafts do not need (`trim`), may let others use its whole pages while it runs (`publish`), and in the
end leaves everything to the cache (`release`). Unused cached pages are evicted when room is needed, so they are in
nobody's way.

Pages may be given back, cached or handed to another session while a step that writes to them is in flight. That is safe
for two reasons. Steps run one after another on one thread (on a GPU: one stream), so a later step finds its pages as if
the earlier one had never been, and it writes each position before any of its rows reads it. And a step in flight writes
at or beyond the position that its session's finished steps have reached, whereas only tokens before that position are
published or released: what the cache says about a page stays true whatever that step leaves behind.

Nothing here blocks, reads a clock or locks: one thread uses it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from acespec.cloud.pages import PagePool
from acespec.cloud.prefix_cache import Node, PrefixCache
from acespec.cloud.runner import PAGE, pages_for


@dataclass(slots=True)
class CacheStats:
    """What the prefix cache was worth since the start.

    Attributes:
        asked: tokens of the turns that got pages to run. A turn that has to wait, and asks again, counts once.
        hit: those of them whose KV was there.
        evicted: cached pages that had to make room.
    """

    asked: int = 0
    hit: int = 0
    evicted: int = 0

    @property
    def hit_rate(self) -> float:
        """Share of the asked tokens that were there, 0 if none was asked for."""
        return self.hit / self.asked if self.asked else 0.0


@dataclass(slots=True, eq=False)
class Hold:
    """The pages of a session's turn. Only `KvPages` changes it.

    Attributes:
        salt: the tenant.
        table: table[i] holds positions i * PAGE .. (i + 1) * PAGE - 1; a `Block`'s page table.
        cached: leading positions whose KV was there when the turn looked.
    """

    salt: str
    table: tuple[int, ...] = ()
    cached: int = 0
    _path: list[Node] = field(default_factory=list)
    _asked: int = 0

    @property
    def shared(self) -> int:
        """Leading pages of the table that are in the cache. Others may read them; nobody writes to them."""
        return len(self._path)


class KvPages:
    """Accounts for pages 0 .. count - 1: free + in_use + cached == count at all times."""

    def __init__(self, count: int) -> None:
        self._pool = PagePool(count)
        self._cache = PrefixCache()
        self.stats = CacheStats()

    @property
    def count(self) -> int:
        """Pages there are."""
        return self._pool.count

    @property
    def free(self) -> int:
        """Pages that hold nothing."""
        return self._pool.free

    @property
    def cached(self) -> int:
        """Pages that the cache keeps and no session uses."""
        return self._cache.unused

    @property
    def available(self) -> int:
        """Pages that `reserve` can still get, evictions included."""
        return self.free + self.cached

    @property
    def in_use(self) -> int:
        """Pages that holds use, a shared one counted once."""
        return self.count - self.available

    def hold(self, salt: str, tokens: Sequence[int]) -> Hold:
        """Look `tokens` up and pin what is there: whole pages, then a tail, which becomes the session's own.

        The last token does not count as cached, as it must be run, and its page is the session's own. No page is
        allocated; but what is pinned cannot be evicted, so a turn that must wait releases `tokens[: hold.cached]`.
        """
        known = tokens[:-1]
        path = self._cache.pin(salt, known)
        hold = Hold(salt, tuple(node.page for node in path), len(path) * PAGE, path, len(tokens))
        if tail := self._cache.take_tail(salt, path, known[hold.cached : hold.cached + PAGE]):
            page, common = tail
            hold.table += (page,)
            hold.cached += common
        return hold

    def reserve(self, hold: Hold, length: int) -> bool:
        """Make the table cover `length` positions, evicting unused cached pages if need be.

        Returns False, and has changed nothing, if all of them together do not suffice.
        """
        missing = pages_for(length) - len(hold.table)
        if missing > self.available:
            return False
        if missing > 0:
            self._make_room(missing)
            hold.table += self._take(missing, hold.table[-1] if hold.table else None)
        self._count(hold)
        return True

    def trim(self, hold: Hold, length: int) -> None:
        """Give the pages beyond `length` positions back.

        Raises:
            RuntimeError: shared pages lie beyond; what others read cannot be taken back.
        """
        keep = pages_for(length)
        if length < hold.shared * PAGE:
            raise RuntimeError(f"cannot cut {hold.shared} shared pages down to {length} positions; this is a bug")
        if keep < len(hold.table):
            self._pool.give(hold.table[keep:])
            hold.table = hold.table[:keep]

    def publish(self, hold: Hold, tokens: Sequence[int]) -> None:
        """Let others use the whole pages of `tokens`, committed and with their KV there, while this session goes on.

        They become `shared`; the session writes behind them only. It ends at a page whose equal is in the cache: no
        page is swapped under a step in flight, so that one and what follows stay private until `release`.
        """
        self._cache.publish(hold.salt, hold._path, tokens, hold.table)

    def release(self, hold: Hold, tokens: Sequence[int]) -> None:
        """End the hold: leave `tokens`, committed and with their KV there, to the cache, and give the rest back."""
        self._pool.give(self._cache.store(hold.salt, hold._path, tokens, hold.table))
        hold.table, hold.cached, hold._path, hold._asked = (), 0, [], 0

    def drop_cached(self, salt: str | None = None) -> None:
        """Forget the cached pages that no session uses, of one tenant or of all."""
        self._pool.give(self._cache.drop(salt))

    def _count(self, hold: Hold) -> None:
        if hold._asked:
            self.stats.asked += hold._asked
            self.stats.hit += hold.cached
            hold._asked = 0

    def _make_room(self, pages: int) -> None:
        while self._pool.free < pages:
            self._pool.give((self._cache.evict(),))
            self.stats.evicted += 1

    def _take(self, pages: int, last: int | None) -> tuple[int, ...]:
        taken: list[int] = []
        for left in range(pages, 0, -1):
            page = self._pool.take(taken[-1] if taken else last, left)
            assert page is not None, "room was made"
            taken.append(page)
        return tuple(taken)
