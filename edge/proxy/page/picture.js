// What the link did in the last half minute, as three strips that move to the left.
const SPAN_S = 30;
const BIN_S = 0.5;

// `live` pictures of all sessions become one sample each: bytes since the last one, and what the session in view does.
class History {
  samples = [];
  #before = new Map();
  #began = false;

  add(live, view) {
    const sample = { at: live.at, up: 0, down: 0, gained: 0, rtt: view?.rtt_ms ?? null, ahead: view?.draft_length ?? 0 };
    for (const each of live.sessions) {
      const old = this.#before.get(each.id) ?? (this.#began ? { up_bytes: 0, down_bytes: 0, committed: 0 } : each);
      sample.up += since(old.up_bytes, each.up_bytes);
      sample.down += since(old.down_bytes, each.down_bytes);
      if (each === view) sample.gained = since(old.committed, each.committed);
    }
    this.#before = new Map(live.sessions.map((each) => [each.id, each]));
    this.#began = true;
    this.samples.push(sample);
    while (this.samples[0].at < live.at - SPAN_S - 2) this.samples.shift();
  }

  // What each strip shows, for those who do not see it.
  words() {
    const sum = (pick) => this.samples.reduce((total, each) => total + pick(each), 0);
    const trips = this.samples.map((each) => each.rtt).filter((rtt) => rtt !== null);
    const range = trips.length ? `${Math.min(...trips).toFixed(0)} to ${Math.max(...trips).toFixed(0)} ms` : "unknown";
    return {
      bytes: `Last 30 seconds: ${sum((each) => each.up)} bytes up, ${sum((each) => each.down)} bytes down`,
      trips: `Round trip over the last 30 seconds: ${range}`,
      tokens: `Last 30 seconds: ${sum((each) => each.gained)} tokens confirmed, now ${this.samples.at(-1)?.ahead ?? 0} ahead`,
    };
  }
}

// Counters begin again with every turn.
function since(before, now) {
  return now >= before ? now - before : now;
}

class Strip {
  constructor(canvas) {
    this.canvas = canvas;
    this.pen = canvas.getContext("2d");
  }

  // Clears, and sets x(seconds) and the height in CSS pixels.
  begin(now) {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    const scale = devicePixelRatio || 1;
    if (this.canvas.width !== Math.round(width * scale) || this.canvas.height !== Math.round(height * scale)) {
      this.canvas.width = Math.round(width * scale);
      this.canvas.height = Math.round(height * scale);
    }
    this.pen.setTransform(scale, 0, 0, scale, 0, 0);
    this.pen.clearRect(0, 0, width, height);
    this.height = height;
    this.width = width;
    this.x = (at) => width * (1 - (now - at) / SPAN_S);
    return width > 0;
  }

  rule(y, colour) {
    this.pen.fillStyle = colour;
    this.pen.fillRect(0, Math.round(y), this.width, 1);
  }

  bar(x, width, y, height, colour) {
    if (height <= 0) return;
    this.pen.fillStyle = colour;
    this.pen.beginPath();
    this.pen.roundRect(x, y, Math.max(1, width), Math.max(1.5, height), 1.5);
    this.pen.fill();
  }

  path(points, colour) {
    this.pen.strokeStyle = colour;
    this.pen.lineWidth = 1.6;
    this.pen.lineJoin = "round";
    this.pen.beginPath();
    let open = false;
    for (const point of points) {
      if (point === null) open = false;
      else if (open) this.pen.lineTo(...point);
      else this.pen.moveTo(...point);
      open = point !== null;
    }
    this.pen.stroke();
  }

  label(text, colour) {
    this.pen.fillStyle = colour;
    this.pen.font = "10px Inter, system-ui, sans-serif";
    this.pen.textBaseline = "top";
    this.pen.fillText(text, 5, 4);
  }
}

class Picture {
  #strips;
  #ink = {};

  constructor(bytes, trips, tokens) {
    this.#strips = { bytes: new Strip(bytes), trips: new Strip(trips), tokens: new Strip(tokens) };
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => (this.#ink = {}));
  }

  // `now` is in the seconds of the samples.
  draw(samples, now) {
    this.#bytes(this.#strips.bytes, samples, now);
    this.#trips(this.#strips.trips, samples, now);
    this.#tokens(this.#strips.tokens, samples, now);
  }

  #colour(name) {
    return (this.#ink[name] ??= getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim());
  }

  // Up grows upwards and down downwards; one scale for both.
  #bytes(strip, samples, now) {
    if (!strip.begin(now)) return;
    const bins = binned(samples);
    const top = roundUp(Math.max(4, ...bins.flatMap((bin) => [kilobits(bin.up), kilobits(bin.down)])));
    const middle = strip.height / 2;
    const width = (strip.width * BIN_S) / SPAN_S - 1;
    for (const { at, up, down } of bins) {
      const [upHeight, downHeight] = [up, down].map((count) => (kilobits(count) / top) * (middle - 4));
      strip.bar(strip.x(at), width, middle - upHeight, upHeight, this.#colour("up"));
      strip.bar(strip.x(at), width, middle + 1, downHeight, this.#colour("down"));
    }
    strip.rule(middle, this.#colour("line"));
    strip.label(`${top} kbit/s`, this.#colour("quiet"));
  }

  #trips(strip, samples, now) {
    if (!strip.begin(now)) return;
    const known = samples.filter((each) => each.rtt !== null);
    const top = roundUp(Math.max(50, ...known.map((each) => each.rtt)) * 1.1);
    const y = (rtt) => strip.height - 3 - (rtt / top) * (strip.height - 8);
    strip.path(samples.map((each) => (each.rtt === null ? null : [strip.x(each.at), y(each.rtt)])), this.#colour("rtt"));
    strip.label(`${top} ms`, this.#colour("quiet"));
  }

  // How far ahead the drafter was at most, and before it what was confirmed in that time.
  #tokens(strip, samples, now) {
    if (!strip.begin(now)) return;
    const bins = binned(samples);
    const top = Math.max(4, ...bins.map((bin) => Math.max(bin.ahead, bin.gained)));
    const high = (count) => (count / top) * (strip.height - 16);
    const width = (strip.width * BIN_S) / SPAN_S - 1;
    strip.pen.globalAlpha = 0.45;
    for (const { at, ahead } of bins) {
      strip.bar(strip.x(at), width + 1, strip.height - high(ahead), high(ahead), this.#colour("ahead"));
    }
    strip.pen.globalAlpha = 1;
    for (const { at, gained } of bins) {
      strip.bar(strip.x(at), width, strip.height - high(gained), high(gained), this.#colour("gained"));
    }
    strip.label(`${top}`, this.#colour("quiet"));
  }
}

function binned(samples) {
  const bins = new Map();
  for (const { at, up, down, gained, ahead } of samples) {
    const start = Math.floor(at / BIN_S) * BIN_S;
    if (!bins.has(start)) bins.set(start, { at: start, up: 0, down: 0, gained: 0, ahead: 0 });
    const bin = bins.get(start);
    bin.up += up;
    bin.down += down;
    bin.gained += gained;
    bin.ahead = Math.max(bin.ahead, ahead);
  }
  return [...bins.values()];
}

// The next round number.
function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].map((step) => step * power).find((step) => step >= value * 0.999);
}

// A bin's bytes as kbit/s.
function kilobits(bytes) {
  return (bytes * 8) / 1000 / BIN_S;
}
