"""Draws a timeline as strips, one below the other like lines of music.

Each strip, from above: the cloud's verify steps; messages as slanted lines between cloud and edge; the drafter at work;
the tokens that became final, as stacks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from acespec.edge.tracing.drawing import STYLES, Drawing, Line, Rect, Shape, Text
from acespec.edge.tracing.timeline import Landing, Span, Timeline, Way
from acespec.proto.errors import UsageError

WIDTH = 1200.0
LEFT, RIGHT = 64.0, 20.0
HEADER = 104.0
STEPS, SEA, DRAFTS, TOKENS, AXIS = 13.0, 104.0, 34.0, 52.0, 18.0
"""Heights: verify steps, the way between cloud and edge, drafts, tokens, time."""
COUNTS, PAUSE, GAP, BETWEEN = 12.0, 3.0, 6.0, 16.0
STRIP = COUNTS + STEPS + SEA + DRAFTS + PAUSE + 2 * GAP + TOKENS + AXIS + BETWEEN
MOST_STRIPS = 5
MOST_ALLOWED = 60
SLIVER = 0.01
"""Share of a strip that does not earn a strip of its own: the one before is a little longer."""
NICE = (1.0, 2.0, 5.0)
STACK_WIDTH = 5.0
LEAST_DRAFT = 3.0
LETTER = 5.8
"""About the width of a letter of a legend."""

KEYS = (
    (
        ("open", "opens a turn"),
        ("draft", "drafts"),
        ("ack", "acknowledgement"),
        ("step", "asks for a step"),
        ("cancel", "cancels"),
        ("lost", "lost"),
        ("commit", "commit that names a draft"),
        ("plain", "commit that names none"),
        ("news", "news without tokens"),
    ),
    (
        ("lm", "drafting: model"),
        ("replay", "drafting: replayed model"),
        ("own", "own context"),
        ("table", "table"),
        ("other source", "another source"),
        ("idle", "nothing kept of it"),
        ("pause", "not worth drafting"),
        ("shipped token", "token shipped as a draft"),
        ("drafted token", "drafted only"),
        ("other token", "not drafted"),
    ),
)
"""Rows of the legend; a picture has what occurs in it."""


def draw(timeline: Timeline, title: str, figures: str, row_s: float | None = None) -> Drawing:
    """The picture. `row_s` is how many seconds a strip has; by default there are at most five strips.

    Raises:
        UsageError: it would have far too many strips.
    """
    span = max(timeline.end - timeline.start, 1e-3)
    seconds = _nice(span / MOST_STRIPS) if row_s is None else row_s
    count = max(1, math.ceil(span / seconds - SLIVER))
    if seconds <= 0 or count > MOST_ALLOWED:
        raise UsageError(f"{count} strips of {seconds:g} s are too many: give a larger --row, or --from and --to")
    height = HEADER + count * STRIP
    shapes: list[Shape] = []
    tallest = max((each.shipped + each.drafted + each.other for each in timeline.landings), default=1)
    deepest = max((span.size for span in timeline.drafts), default=1)
    for number in range(count):
        start = timeline.start + number * seconds
        strip = _Strip(
            start, timeline.end if number == count - 1 else start + seconds, seconds, HEADER + number * STRIP
        )
        shapes += strip.shapes(timeline, TOKENS / max(tallest, 7), DRAFTS / max(deepest, 4))
    paper = Rect(0, 0, WIDTH, height, "paper")
    return Drawing(WIDTH, height, (paper, *_header(title, figures, {shape.style for shape in shapes}), *shapes))


class _Strip:
    """The seconds from `start` to `end`; `seconds` fill the width. `top` is its upper edge."""

    def __init__(self, start: float, end: float, seconds: float, top: float) -> None:
        self._start = start
        self._end = end
        self._scale = (WIDTH - LEFT - RIGHT) / seconds
        self._seconds = seconds
        self._cloud = top + COUNTS + STEPS
        self._edge = self._cloud + SEA
        self._pause = self._edge + DRAFTS + GAP
        self._floor = self._pause + PAUSE + GAP + TOKENS

    def shapes(self, timeline: Timeline, token: float, level: float) -> Iterator[Shape]:
        """All of it; a token is `token` pixels high, a drafted position `level`."""
        left, right = self._x(self._start), self._x(self._end)
        yield Rect(left, self._cloud, right - left, SEA, "panel")
        yield from self._axis()
        yield from self._boxes(timeline.outages, self._cloud, SEA, "outage")
        for span in self._within(timeline.outages):
            yield Text(self._x(max(span.start, self._start)) + 5, self._cloud + SEA / 2, "outage", "outage word")
        yield from self._steps(timeline.steps)
        for way in timeline.ways:
            yield from self._way(way)
        yield Line(left, self._cloud, right, self._cloud, "shore")
        yield Line(left, self._edge, right, self._edge, "shore")
        yield from self._drafts(timeline.drafts, level)
        yield from self._boxes(timeline.pauses, self._pause, PAUSE, "pause")
        for landing in timeline.landings:
            if self._start <= landing.t < self._end or landing.t == self._end == timeline.end:
                yield from self._stack(landing, token)
        yield from self._names()

    def _x(self, t: float) -> float:
        return LEFT + (t - self._start) * self._scale

    def _within(self, spans: Iterable[Span]) -> Iterator[Span]:
        return (span for span in spans if span.start < self._end and span.end > self._start)

    def _box(self, span: Span, y: float, height: float, style: str) -> Rect:
        x1, x2 = self._x(max(span.start, self._start)), self._x(min(span.end, self._end))
        return Rect(x1, y, max(x2 - x1, 0.6), height, style, span.tip)

    def _boxes(self, spans: Iterable[Span], y: float, height: float, style: str) -> Iterator[Shape]:
        return (self._box(span, y, height, style) for span in self._within(spans))

    def _steps(self, steps: Iterable[Span]) -> Iterator[Shape]:
        for span in self._within(steps):
            box = self._box(span, self._cloud - STEPS, STEPS, f"{span.kind} step")
            yield Rect(box.x + 0.4, box.y, max(0.6, box.width - 0.8), box.height, box.style, box.tip)
            if span.end <= self._end and box.width > 8:
                yield Text(box.x + box.width / 2, box.y - 3, str(span.size), "count", "middle")

    def _way(self, way: Way) -> Iterator[Shape]:
        """The part of a message that lies within the strip."""
        start, end = max(way.start, self._start), min(way.end, self._end)
        if start > end or (start == end and way.start != way.end):
            return
        flight = way.end - way.start
        shares = [0.0, 1.0] if flight <= 0 else [(start - way.start) / flight, (end - way.start) / flight]
        fall = -SEA if way.up else SEA
        shore = self._edge if way.up else self._cloud
        y1, y2 = (shore + share * fall for share in shares)
        yield Line(self._x(start), y1, self._x(end), y2, "lost" if way.lost else way.kind, way.tip)

    def _drafts(self, drafts: Iterable[Span], level: float) -> Iterator[Shape]:
        for span in self._within(drafts):
            height = max(LEAST_DRAFT, level * span.size)
            style = span.kind if span.kind in STYLES else "other source"
            yield self._box(span, self._edge + 1.5, height, style)

    def _stack(self, landing: Landing, token: float) -> Iterator[Shape]:
        x, y = self._x(landing.t) - STACK_WIDTH / 2, self._floor
        for count, style in ((landing.shipped, "shipped"), (landing.drafted, "drafted"), (landing.other, "other")):
            for _ in range(count):
                y -= token
                yield Rect(x, y + 0.4, STACK_WIDTH, token - 0.8, f"{style} token", landing.tip)

    def _axis(self) -> Iterator[Shape]:
        right = self._x(self._end)
        yield Line(LEFT, self._floor, right, self._floor, "tick")
        step = _nice(self._seconds / 12)
        digits = max(0, math.ceil(-math.log10(step) - 1e-9))
        first = math.ceil(self._start / step - 1e-9)
        for number in range(first, math.floor(self._end / step + 1e-9) + 1):
            x = self._x(number * step)
            yield Line(x, self._cloud, x, self._floor + 3, "tick")
            yield Text(x, self._floor + 14, f"{number * step:.{digits}f} s", "small", "middle")

    def _names(self) -> Iterator[Shape]:
        places = {"cloud": self._cloud, "edge": self._edge}
        for name, y in places.items():
            yield Text(LEFT - 8, y + 4, name, "label", "end")
        yield Text(LEFT - 8, self._edge + DRAFTS / 2 + 8, "drafting", "small", "end")
        yield Text(LEFT - 8, self._floor - TOKENS / 2 + 4, "tokens", "small", "end")


def _header(title: str, figures: str, used: set[str]) -> Iterator[Shape]:
    yield Text(LEFT, 28, title, "title")
    yield Text(LEFT, 48, figures, "figures")
    for y, keys in zip((70.0, 87.0), KEYS, strict=True):
        x = LEFT
        for style, words in keys:
            if style in used:
                yield Line(x, y, x + 10, y - 9, style) if STYLES[style].line else Rect(x, y - 9, 10, 10, style)
                yield Text(x + 15, y, words, "small")
                x += 32 + LETTER * len(words)


def _nice(least: float) -> float:
    """The smallest of 1, 2, 5, 10, ... (or .5, .2, ...) that is not below `least`."""
    power = 10.0 ** math.floor(math.log10(least))
    return next((n * power for n in NICE if n * power >= least * (1 - 1e-9)), 10 * power)
