// The figures beside the chat, the picture below them, and the words about an outage.
const element = (id) => document.getElementById(id);

class Panel {
  #history = new History();
  #picture = new Picture(element("bytes"), element("trips"), element("tokens"));
  #clock = null;
  #since = null;
  #kind = undefined;
  #told = "";
  #described = 0;

  constructor() {
    element("link").open = matchMedia("(min-width: 60rem)").matches;
    const frame = () => {
      this.#draw();
      requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  }

  // `view` is the session in view, if there is one.
  show(live, view) {
    this.#clock = { at: live.at, read: performance.now() };
    this.#history.add(live, view);
    if (view) this.#figures(view);
    const down = live.sessions.find((each) => each.waiting_s !== null && each.running);
    this.#state(down ? "waiting" : live.sessions.some((each) => each.running) ? "running" : "idle");
    if (down) this.#notice(down.alone ? ALONE : WAITING, Date.now() - down.waiting_s * 1000);
    else if (this.#told) this.#notice(told(this.#told), null);
    else this.#notice(null, null);
  }

  // Why the answer that was asked for does not come yet, in the endpoint's words; "" once it does.
  tell(words) {
    const plain = words.replace(/\s*\(\d+ s\)$/, "");
    if (plain === this.#told) return;
    this.#told = plain;
    this.#notice(this.#told ? told(this.#told) : null, null);
  }

  lost() {
    this.#state("lost");
    this.#notice(LOST, this.#since ?? Date.now());
  }

  #figures(view) {
    figure("rate", view.link_kbps, digits, "kbit/s");
    figure("rtt", view.rtt_ms, (ms) => ms.toFixed(0), "ms");
    figure("draft", view.draft_length, String, "tokens");
    figure("accepted", view.acceptance_length, digits, "a commit");
    figure("per-token", view.bytes_per_token, digits, "bytes");
    figure("load", view.verifier_load, (load) => (100 * load).toFixed(0), "% busy");
    const parts = [
      view.rtt_ms === null ? null : `${view.rtt_ms.toFixed(0)} ms`,
      view.bytes_per_token === null ? null : `${digits(view.bytes_per_token)} B/token`,
      view.acceptance_length === null ? null : `${digits(view.acceptance_length)} accepted`,
    ];
    element("brief").textContent = parts.filter(Boolean).join(" · ");
    element("bytes-now").textContent = `${size(view.up_bytes)} up, ${size(view.down_bytes)} down`;
    element("rtt-now").textContent = view.rtt_ms === null ? "" : `${view.rtt_ms.toFixed(0)} ms`;
    element("tokens-now").textContent = `${view.committed} confirmed`;
  }

  #state(state) {
    element("light").className = `light ${state}`;
    element("state").textContent = STATES[state];
  }

  // Only what changes is written: a screen reader hears of the outage once, and not of every second.
  #notice(say, since) {
    const line = element("notice");
    line.hidden = say === null;
    if (this.#kind !== say?.kind) {
      this.#kind = say?.kind;
      this.#since = since;
      const passing = document.createElement("span");
      passing.setAttribute("aria-hidden", "true");
      line.replaceChildren(say ? say.words(new Date(since).toLocaleTimeString()) : "", passing);
    }
    if (since !== null) line.lastChild.textContent = ` (${Math.max(0, (Date.now() - since) / 1000).toFixed(0)} s)`;
  }

  #draw() {
    if (this.#clock === null || !element("link").open) return;
    const now = this.#clock.at + (performance.now() - this.#clock.read) / 1000;
    this.#picture.draw(this.#history.samples, now);
    if (now - this.#described < 2) return;
    this.#described = now;
    for (const [id, words] of Object.entries(this.#history.words())) element(id).setAttribute("aria-label", words);
  }
}

const STATES = { idle: "idle", running: "answering", waiting: "waiting", lost: "endpoint lost" };
const WAITING = {
  kind: "waiting",
  words: (time) => `Waiting for the link since ${time}. The answer goes on where it was, as soon as the link is back.`,
};
const ALONE = {
  kind: "alone",
  words: (time) => `No link since ${time}. The drafter goes on alone: what it writes is provisional until the model has seen it.`,
};
const LOST = { kind: "lost", words: (time) => `This page has lost its endpoint since ${time}, and keeps trying.` };

function told(words) {
  return { kind: words, words: () => `${words[0].toUpperCase()}${words.slice(1)}.` };
}

function figure(id, value, format, unit) {
  const place = element(id);
  if (value === null) {
    place.textContent = "–";
    return;
  }
  const small = document.createElement("small");
  small.textContent = unit;
  place.replaceChildren(format(value), small);
}

function digits(value) {
  return value < 9.95 ? value.toFixed(1) : value.toFixed(0);
}

function size(bytes) {
  return bytes < 1000 ? `${bytes} B` : `${digits(bytes / 1000)} kB`;
}
