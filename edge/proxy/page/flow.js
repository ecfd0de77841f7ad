// Commits come in bursts. What a burst brought is made solid evenly, over the time until the next one is due.
const SHORTEST_MS = 120;
const LONGEST_MS = 1200;

class Flow {
  solid = 0;
  #end = 0;
  #speed = 0;
  #gap = 300;
  #burst = null;
  #tick = null;

  // The text is `end` characters long at `now` (milliseconds).
  burst(end, now) {
    if (end === this.#end) return;
    if (this.#burst !== null) this.#gap += 0.3 * (Math.min(now - this.#burst, LONGEST_MS) - this.#gap);
    this.#burst = now;
    this.#end = end;
    this.#aim(Math.max(SHORTEST_MS, this.#gap));
    if (this.#tick === null) this.#tick = now;
  }

  // No more is to come.
  finish() {
    this.#aim(SHORTEST_MS);
  }

  // All that is there, at once.
  jump() {
    this.solid = this.#end;
  }

  // How many characters are solid at `now`.
  at(now) {
    const passed = this.#tick === null ? 0 : Math.max(0, now - this.#tick);
    if (this.#tick !== null) this.#tick = Math.max(now, this.#tick);
    this.solid = Math.min(this.#end, this.solid + this.#speed * passed);
    return Math.floor(this.solid + 1e-6);
  }

  get done() {
    return this.solid >= this.#end;
  }

  #aim(milliseconds) {
    this.#speed = (this.#end - this.solid) / milliseconds;
  }
}

// The largest cut at or below `at` that splits no character of `text` as a reader sees it.
const graphemes = new Intl.Segmenter(undefined, { granularity: "grapheme" });

function wholeCut(text, from, at) {
  if (at >= text.length) return text.length;
  const tail = text.slice(from, at + 32);
  return from + (graphemes.segment(tail).containing(at - from)?.index ?? tail.length);
}
