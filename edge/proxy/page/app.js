// Buttons and keys.
const prompt = element("prompt");

// While an answer is made, Stop stands in the place of Send.
function mode(answering) {
  element("send").hidden = answering;
  element("stop").hidden = !answering;
  element("prompt").placeholder = answering ? "Write the next message" : "Say something";
}

function fit() {
  prompt.style.height = "auto";
  prompt.style.height = `${prompt.scrollHeight}px`;
}

// Resolves to the key, or to null if the person declines.
function askForKey(again) {
  const dialog = element("key");
  const value = element("key-value");
  element("key-title").textContent = again ? "That key was not accepted" : "This endpoint asks for a key";
  value.value = "";
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "given" ? value.value.trim() : null), { once: true });
  });
}

function submit() {
  const text = prompt.value.trim();
  if (!text || chat.answering) return;
  prompt.value = "";
  fit();
  chat.send(text);
}

const server = new Server(askForKey);
const panel = new Panel();
const chat = new Chat(server, panel);

element("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  submit();
});
prompt.addEventListener("input", fit);
prompt.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  submit();
});
element("stop").addEventListener("click", () => {
  chat.stop();
  prompt.focus();
});
addEventListener("keydown", (event) => {
  if (event.key === "Escape" && chat.answering && !element("key").open) chat.stop();
});
element("new").addEventListener("click", () => {
  chat.clear();
  prompt.focus();
});
element("settings-button").addEventListener("click", (event) => {
  const form = element("settings");
  form.hidden = !form.hidden;
  event.currentTarget.setAttribute("aria-expanded", String(!form.hidden));
  if (!form.hidden) element("system").focus();
});
element("settings").addEventListener("submit", (event) => event.preventDefault());
element("settings").addEventListener("input", () => chat.keep());
element("key-cancel").addEventListener("click", () => element("key").close(""));

follow(server, (live) => chat.see(live), () => panel.lost());
