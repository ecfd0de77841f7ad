// The text ahead of the committed one. Commits and guesses come by two streams, so each guess says behind how many
// tokens it stands, and is held against what has been committed since. Where the endpoint does not count the tokens of
// its text (`tokens` is null), a guess is taken to stand behind the newest.
class Guess {
  received = "";
  ahead = "";
  #marks = [[0, 0]];
  #early = null;

  // `delta` is committed; with it the answer has `tokens` tokens.
  commit(delta, tokens) {
    this.received += delta;
    if (tokens === null) this.#marks = null;
    this.#marks?.push([tokens, this.received.length]);
    this.ahead = this.ahead.startsWith(delta) ? this.ahead.slice(delta.length) : "";
    if (this.#early && this.#early.tokens <= tokens) this.see(this.#early.text, this.#early.tokens);
  }

  // `text` is guessed behind `tokens` committed ones.
  see(text, tokens) {
    this.#early = null;
    if (this.#marks === null) {
      this.ahead = text;
      return;
    }
    if (tokens > this.#marks.at(-1)[0]) {
      this.#early = { text, tokens };
      return;
    }
    const mark = this.#marks.findLast(([count]) => count <= tokens);
    const since = this.received.slice(mark[1]);
    this.ahead = text.startsWith(since) ? text.slice(since.length) : "";
  }

  // The answer is over: nothing is ahead of it.
  drop() {
    this.ahead = "";
    this.#early = null;
  }
}
