"""The chat as a person sees it: the real program on a real pseudo-terminal, before a replayed verifier."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from acespec.proto.replay_text import SyntheticText
from acespec.sim.processes import free_port, serving
from tests.edge.chat_pty import chat_on_pty, replayed

VOCAB = 1000
SEED = 5
VERIFIER = ["serve", "--backend", "replay", "--profile", "h100-70b-fp8", "--vocab", str(VOCAB), "--insecure"]
VERIFIER += ["--host", "127.0.0.1", "--free-run", "always"]


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Options of an edge before a verifier whose steps take as long as a large model's."""
    port, folder = free_port(), tmp_path_factory.mktemp("verifier")
    arguments = [*VERIFIER, "--port", str(port)]
    with serving("acespec.cloud.cli", arguments, folder / "log"):
        edge = ["--verifier", f"127.0.0.1:{port}", "--insecure", "--model", f"replay:{VOCAB}", "--seed", str(SEED)]
        yield [*edge, "--drafter", "replay", "--draft-profile", "instant", "--acceptance", "0.7"]


def flat(text: str) -> str:
    """`text` without the ends of its rows."""
    return " ".join(text.split())


def spoken(prompt: str, count: int) -> str:
    """What the replayed target says behind a prompt."""
    text, start = SyntheticText(VOCAB), len(prompt.encode())
    return "".join(f" {text.token(SEED, at, start)}" for at in range(start, start + count))


def test_guesses_are_dimmed_and_the_answer_stays(options: list[str], tmp_path: Path) -> None:
    with chat_on_pty([*options, "-m", "120"], tmp_path, width=80) as chat:
        chat.prompted(1)
        chat.say("Hello")
        chat.prompted(2)
        chat.say("/quit")
        assert chat.ended() == 0
    (frames,) = chat.answers()
    assert "\x1b[2m" in frames
    right, wrong, seen = 0, 0, replayed("", width=80)
    answer = flat(spoken("user: Hello\nassistant: ", 120))
    for frame in frames.split("\x1b[?2026h")[1:]:
        seen.write(frame)
        final = flat(seen.text(dim=False))
        assert answer.startswith(final)
        guess = flat(seen.text().rpartition("\n")[0]).removesuffix("…").removeprefix(final)
        right += bool(guess) and answer[len(final) :].startswith(guess[: len(" 123")])
        wrong += not answer.startswith(final + guess)
    assert right > 10
    assert wrong > 3, "guesses are shown before they are known to be right"
    assert flat(seen.text()) == answer
    assert "B/token" in frames
    assert "RTT" in frames


def test_ctrl_c_stops_the_answer_and_keeps_the_program(options: list[str], tmp_path: Path) -> None:
    with chat_on_pty([*options, "-m", "3000"], tmp_path) as chat:
        chat.prompted(1)
        chat.say("Hello")
        chat.until(lambda output: "tokens" in output)
        chat.press("\x03")
        chat.prompted(2)
        chat.say("/stats")
        chat.until(lambda output: "1 stopped after" in output)
        chat.say("And now?")
        chat.until(lambda output: output.count("\x1b[?2026h") > 30 and "tokens" in output)
        chat.press("\x03")
        chat.prompted(4)
        chat.press("\x03")
        chat.until(lambda output: "Ctrl-C once more" in output)
        chat.press("\x03")
        assert chat.ended() == 130
    assert "Traceback" not in chat.output
    assert chat.output.count("stopped\x1b[0m") == 2
    answer = flat(replayed(chat.answers()[0]).text())
    assert answer
    assert flat(spoken("user: Hello\nassistant: ", 3000)).startswith(answer)


def test_a_resize_garbles_nothing(options: list[str], tmp_path: Path) -> None:
    with chat_on_pty([*options, "-m", "150"], tmp_path) as chat:
        chat.prompted(1)
        chat.say("Hello")
        for count, size in enumerate(((33, 9), (71, 20), (20, 5)), 1):
            chat.until(lambda output, count=count: output.count("\x1b[?2026h") > 12 * count)  # type: ignore[misc]
            chat.resize(*size)
        chat.prompted(2)
        chat.say("/quit")
        assert chat.ended() == 0
    (frames,) = chat.answers()
    begin = chat.output.index(frames)
    terminal, at = replayed("", 60, 12), 0
    for place, size in chat.sizes[1:]:
        cut = frames.index("\x1b[?2026h", max(0, place - begin))  # what is on its way was drawn for the old size
        terminal.write(frames[at:cut])
        terminal.resize(*size)
        at = cut
    terminal.write(frames[at:])
    assert flat(terminal.text()) == flat(spoken("user: Hello\nassistant: ", 150))


@pytest.mark.parametrize("policy", ["wait", "draft"])
def test_an_outage_is_told_and_the_answer_goes_on(options: list[str], tmp_path: Path, policy: str) -> None:
    port, log = free_port(), tmp_path / "log"
    arguments = [*VERIFIER, "--port", str(port)]
    edge = ["--verifier", f"127.0.0.1:{port}", *options[2:], "-m", "150", "--on-outage", policy]
    with chat_on_pty(edge, tmp_path, width=80) as chat:
        chat.prompted(1)
        with serving("acespec.cloud.cli", arguments, log) as verifier:
            chat.say("Hello")
            chat.until(lambda output: "B/token" in output)
            verifier.kill()
            chat.until(lambda output: "waiting for the link since" in output)
            if policy == "draft":
                chat.until(lambda output: "drafting alone: 1" in output)
        with serving("acespec.cloud.cli", arguments, log):
            chat.prompted(2)
        chat.say("/quit")
        assert chat.ended() == 0
    (frames,) = chat.answers()
    assert flat(replayed(frames, 80).text()) == flat(spoken("user: Hello\nassistant: ", 150))
    assert "WARNING" not in frames
    assert "resuming" in chat.output, "log lines wait until the answer is over"


def test_keys_pressed_during_an_answer_are_the_next_question(options: list[str], tmp_path: Path) -> None:
    with chat_on_pty([*options, "-m", "60"], tmp_path) as chat:
        chat.prompted(1)
        chat.say("Hello")
        chat.until(lambda output: "\x1b[?2026h" in output)
        chat.press("/stats\n")
        chat.until(lambda output: "verify steps" in output)
        chat.say("/quit")
        assert chat.ended() == 0
    assert "/stats" not in chat.answers()[0]


def test_pasted_lines_are_one_question(options: list[str], tmp_path: Path) -> None:
    transcript = tmp_path / "talk.json"
    with chat_on_pty([*options, "-m", "5"], tmp_path) as chat:
        chat.prompted(1)
        chat.press("\x1b[200~first line\r\nsecond line\x1b[201~")
        chat.say("")
        chat.prompted(2)
        chat.say("/system Be brief.")
        chat.prompted(3)
        chat.say("And you?")
        chat.prompted(4)
        chat.say(f"/save {transcript}")
        chat.prompted(5)
        chat.press("\x04")
        assert chat.ended() == 0
    assert "first line" in (tmp_path / "cache" / "chat_history").read_text()
    messages = json.loads(transcript.read_text())["messages"]
    assert [m["role"] for m in messages] == ["system", "user", "assistant"]
    assert messages[2]["content"] == spoken("system: Be brief.\nuser: And you?\nassistant: ", 5)
    pasted = flat(replayed(chat.answers()[0]).text())
    assert pasted == flat(spoken("user: first line\nsecond line\nassistant: ", 5))


@pytest.mark.parametrize("environment", [{"TERM": "dumb"}, {"NO_COLOR": "1"}])
def test_text_is_plain_where_that_is_wanted(options: list[str], tmp_path: Path, environment: dict[str, str]) -> None:
    with chat_on_pty([*options, "-m", "20"], tmp_path, **environment) as chat:
        chat.until(lambda output: ">>> " in output)
        chat.say("Hello")
        chat.until(lambda output: "20 tokens" in output)
        chat.press("\x04")
        assert chat.ended() == 0
    assert spoken("user: Hello\nassistant: ", 20) in chat.output
    assert "\x1b[2m" not in chat.output


def test_an_answer_that_fails_does_not_end_the_talk(options: list[str], tmp_path: Path) -> None:
    nowhere = ["--verifier", f"127.0.0.1:{free_port()}", *options[2:]]
    with chat_on_pty(nowhere, tmp_path) as chat:
        chat.prompted(1)
        chat.say("Hello")
        chat.until(lambda output: "connection refused" in output)
        chat.prompted(2)
        chat.signal(signal.SIGTERM)
        assert chat.ended() != 0


def test_a_pipe_hears_of_a_failure_by_the_exit_status(options: list[str], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "acespec.edge.cli", "chat", "--verifier", f"127.0.0.1:{free_port()}", *options[2:]]
    clean = {k: v for k, v in os.environ.items() if not k.startswith("ACESPEC_")}
    done = subprocess.run(
        command,
        input="Hello\nAgain\n",
        env=clean | {"ACESPEC_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert "connection refused" in done.stderr
    assert done.stderr.count("\n") == 1
