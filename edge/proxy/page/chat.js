// A conversation: what was said, the answer that is under way, and the settings. It survives a reload of the tab.
const CHAT = "acespec.chat";
const SETTINGS = ["system", "temperature", "max-tokens", "seed"];

class Chat {
  #server;
  #panel;
  #thread = new Thread();
  #model = "";
  #messages = [];
  #turn = null;

  constructor(server, panel) {
    this.#server = server;
    this.#panel = panel;
    this.#restore();
    this.#meet();
  }

  get answering() {
    return this.#turn !== null;
  }

  send(text) {
    if (this.#messages.at(-1)?.role === "user") this.#messages.pop(); // It was never answered.
    this.#messages.push({ role: "user", content: text });
    this.#thread.user(text);
    return this.#answer();
  }

  stop() {
    this.#turn?.stop.abort();
  }

  clear() {
    this.stop();
    this.#messages = [];
    this.#thread.clear();
    this.#end();
  }

  // A picture of the sessions has come: what is ahead of our answer, and what the panel is to show.
  see(live) {
    const mine = this.#mine(live.sessions);
    if (mine) {
      this.#turn.answer.guess.see(mine.provisional_text, mine.committed);
      this.#turn.answer.waits(mine.waiting_s !== null);
    }
    this.#panel.show(live, mine ?? live.sessions.find((each) => each.running) ?? live.sessions.at(-1));
  }

  // The session of our answer. Until its first chunk names it, it is the only one that runs, or unknown.
  #mine(sessions) {
    if (this.#turn === null) return undefined;
    const running = sessions.filter((each) => each.running);
    if (this.#turn.session !== null) return running.find((each) => each.id === this.#turn.session);
    return running.length === 1 ? running[0] : undefined;
  }

  // What is served; asked again until the endpoint is through with loading.
  async #meet() {
    const place = document.getElementById("model");
    try {
      const list = await (await this.#server.ask("/v1/models")).json();
      this.#model = place.textContent = list.data[0].id;
    } catch (error) {
      place.textContent = error instanceof Refused ? error.message : "";
      if (!(error instanceof Locked)) setTimeout(() => this.#meet(), 2000);
    }
  }

  async #answer() {
    const turn = { answer: this.#thread.answer(), stop: new AbortController(), session: null, finish: null, account: {} };
    const messages = this.#messages;
    this.#turn = turn;
    this.#thread.noRetries();
    this.keep();
    mode(true);
    try {
      const response = await this.#server.post("/v1/chat/completions", this.#request(), turn.stop.signal);
      for await (const chunk of events(response)) {
        if (chunk.comment) this.#panel.tell(chunk.comment);
        else if (read(chunk, turn)) this.#panel.tell("");
      }
      turn.answer.finish(account(turn.account, turn.finish));
    } catch (error) {
      if (turn.stop.signal.aborted) turn.answer.finish("stopped");
      else turn.answer.fail(blame(error), () => this.#again());
    } finally {
      if (turn.answer.guess.received) messages.push({ role: "assistant", content: turn.answer.guess.received });
      if (this.#turn === turn) this.#end();
    }
  }

  #end() {
    this.#turn = null;
    this.#panel.tell("");
    this.keep();
    mode(false);
  }

  #again() {
    if (this.#messages.at(-1)?.role === "assistant") this.#messages.pop();
    this.#answer();
  }

  #request() {
    const [system, temperature, most, seed] = SETTINGS.map((id) => document.getElementById(id).value.trim());
    return {
      ...(this.#model ? { model: this.#model } : {}),
      messages: [...(system ? [{ role: "system", content: system }] : []), ...this.#messages],
      stream: true,
      stream_options: { include_usage: true },
      ...(temperature ? { temperature: Number(temperature) } : {}),
      ...(most ? { max_tokens: Number(most) } : {}),
      ...(seed ? { seed: Number(seed) } : {}),
    };
  }

  keep() {
    const settings = SETTINGS.map((id) => [id, document.getElementById(id).value]);
    sessionStorage.setItem(CHAT, JSON.stringify({ messages: this.#messages, settings }));
  }

  #restore() {
    const kept = JSON.parse(sessionStorage.getItem(CHAT) ?? "null");
    if (!kept) return;
    for (const [id, value] of kept.settings) document.getElementById(id).value = value;
    this.#messages = kept.messages;
    this.#messages.forEach(({ role, content }) => this.#thread.said(role, content));
  }
}

function blame(error) {
  return error instanceof Refused ? error.message : `The connection broke: ${error.message}`;
}
