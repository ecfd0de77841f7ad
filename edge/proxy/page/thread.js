// The conversation on the screen. All that comes from outside becomes text nodes, never markup.
class Thread {
  #place = document.getElementById("thread");
  #welcome = document.getElementById("welcome");
  #follows = true;

  constructor() {
    this.#place.addEventListener("scroll", () => {
      this.#follows = this.#place.scrollHeight - this.#place.scrollTop - this.#place.clientHeight < 60;
    });
  }

  clear() {
    this.#place.replaceChildren(this.#welcome);
  }

  user(text) {
    this.#follows = true;
    this.said("user", text);
  }

  // A message of a kept conversation.
  said(role, text) {
    this.#message(role === "user" ? "user" : "answer", role === "user" ? "You" : "The model").textContent = text;
    this.follow();
  }

  answer() {
    return new Answer(this.#message("answer", "The model"), this);
  }

  // Only the newest answer can be asked for again.
  noRetries() {
    this.#place.querySelectorAll(".fault button").forEach((button) => button.remove());
  }

  // Keep the end in view, unless the reader has scrolled away from it.
  follow() {
    if (this.#follows) this.#place.scrollTop = this.#place.scrollHeight;
  }

  #message(kind, speaker) {
    this.#welcome.remove();
    const message = document.createElement("article");
    message.className = `message ${kind}`;
    message.setAttribute("aria-label", speaker);
    const body = message.appendChild(document.createElement("div"));
    body.className = "body";
    this.#place.append(message);
    return body;
  }
}

// An answer in the making: solid text, then text that is committed but still flows in, then the guess.
class Answer {
  guess = new Guess();
  #flow = new Flow();
  #body;
  #thread;
  #solid = document.createTextNode("");
  #rest = document.createTextNode("");
  #running = true;
  #speech = new Speech();

  constructor(body, thread) {
    this.#body = body;
    this.#thread = thread;
    const solid = body.appendChild(document.createElement("span"));
    const ahead = body.appendChild(document.createElement("span"));
    [solid.className, ahead.className] = ["solid", "guess"];
    ahead.setAttribute("aria-hidden", "true");
    solid.append(this.#solid);
    ahead.append(this.#rest);
    body.classList.add("empty");
    body.parentElement.setAttribute("aria-busy", "true");
    const frame = () => {
      this.#paint();
      if (this.#running || !this.#flow.done) requestAnimationFrame(frame);
      else this.#settle();
    };
    requestAnimationFrame(frame);
  }

  commit(delta, tokens) {
    this.guess.commit(delta, tokens);
    this.#flow.burst(this.guess.received.length, performance.now());
    if (document.hidden || calm.matches) this.#flow.jump();
  }

  waits(alone) {
    this.#body.parentElement.classList.toggle("waiting", alone);
  }

  // The end of it; `account` is a line about how it went, or "".
  finish(account) {
    this.#running = false;
    this.guess.drop();
    this.#flow.finish();
    if (account) this.#line("account", account);
    this.#thread.follow();
  }

  // It failed; `again` is called if the person wants another try.
  fail(words, again) {
    this.finish("");
    const line = this.#line("fault", words);
    const button = line.appendChild(document.createElement("button"));
    button.type = "button";
    button.textContent = "Try again";
    button.addEventListener("click", () => {
      this.#body.parentElement.remove();
      again();
    });
    line.setAttribute("role", "alert");
    this.#thread.follow();
  }

  #line(kind, text) {
    const line = this.#body.parentElement.appendChild(document.createElement("p"));
    line.className = kind;
    line.append(text);
    return line;
  }

  #paint() {
    const { received, ahead } = this.guess;
    const old = this.#solid.length;
    const cut = wholeCut(received, old, Math.max(old, this.#flow.at(performance.now())));
    if (cut > old) {
      this.#solid.appendData(received.slice(old, cut));
      this.#speech.hear(received.slice(old, cut));
    }
    const rest = received.slice(cut) + ahead;
    if (this.#rest.data !== rest) this.#rest.data = rest;
    this.#body.classList.toggle("empty", this.#running && !received && !ahead);
    this.#thread.follow();
  }

  #settle() {
    this.#speech.end();
    this.#body.parentElement.setAttribute("aria-busy", "false");
  }
}

const calm = matchMedia("(prefers-reduced-motion: reduce)");

// Tells screen readers the committed text, a sentence at a time; guesses are never spoken.
class Speech {
  #place = document.getElementById("spoken");
  #heard = "";

  hear(text) {
    this.#heard += text;
    const end = this.#heard.search(/[.!?:;。！？](?=\s)|\n/u);
    if (end >= 0) this.#say(end + 1);
  }

  end() {
    this.#say(this.#heard.length);
  }

  #say(length) {
    const sentence = this.#heard.slice(0, length).trim();
    this.#heard = this.#heard.slice(length);
    if (!sentence) return;
    const line = document.createElement("span");
    line.textContent = `${sentence} `;
    this.#place.append(line);
    while (this.#place.children.length > 8) this.#place.firstChild.remove();
  }
}
