"""The command line as a user meets it: real processes, real exit codes, one line an error."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from acespec.edge.completion import Completion
from acespec.edge.output_format import output_format
from acespec.edge.report import as_json, as_line, quantile
from acespec.edge.wire_stats import WireTotals
from acespec.proto.messages import FinishReason, Opened, OutputFormat, Totals
from acespec.proto.seeds import choice_seed
from tests.tiny import tiny_model_folder

HEAVY = ("torch", "mlx", "grpc", "tokenizers", "transformers", "huggingface_hub")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model_folder(tmp_path_factory.mktemp("model"))


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    clean = {key: value for key, value in os.environ.items() if not key.startswith("ACESPEC_")}
    return clean | {"ACESPEC_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}


def acespec(*arguments: str, env: dict[str, str], stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "acespec.edge.cli", *arguments]
    return subprocess.run(command, env=env, input=stdin, capture_output=True, text=True, timeout=30, check=False)


@pytest.mark.parametrize("command", [("--help",), ("generate", "--help"), ("chat", "--help"), ("models", "--help")])
def test_help_imports_nothing_heavy(command: tuple[str, ...], environment: dict[str, str]) -> None:
    program = (
        "import sys\n"
        "from acespec.edge.cli import main\n"
        f"sys.argv = ['acespec', *{command!r}]\n"
        "try:\n    main()\n"
        "finally:\n"
        f"    heavy = [m for m in {HEAVY!r} if m in sys.modules]\n"
        "    assert not heavy, heavy\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Usage" in done.stdout


def assert_one_line(done: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    assert all(word in done.stderr for word in words), done.stderr


def test_no_verifier_there(model: Path, environment: dict[str, str]) -> None:
    done = acespec(
        "generate", "--verifier", "127.0.0.1:1", "--insecure", "--model", str(model), "-p", "hi", env=environment
    )
    assert_one_line(done, 1, "127.0.0.1:1", "refused")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), ("--verifier", "ACESPEC_VERIFIER")),
        (("--verifier", "nowhere"), ("HOST:PORT",)),
        (("--verifier", "a:1", "--api-key-file", "/no/such"), ("/no/such",)),
        (("--verifier", "a:1", "--tls-ca", "/no/such"), ("/no/such",)),
        (("--top-logprobs", "3", "--json"), ("--top-logprobs", "--logprobs")),
        (("--logprobs",), ("--logprobs", "--json")),
        (("--regex", "a", "--json-object"), ("--json-object, --regex", "one")),
        (("--json-schema", "/no/such"), ("--json-schema", "/no/such")),
        (("--json-schema", "{type: object}"), ("--json-schema", "no JSON")),
        (("--grammar", "/no/such"), ("--grammar", "/no/such")),
    ],
)
def test_bad_usage_is_one_line_and_exit_2(
    arguments: tuple[str, ...], words: tuple[str, ...], environment: dict[str, str]
) -> None:
    assert_one_line(acespec("generate", "-p", "hi", *arguments, env=environment), 2, *words)


def test_bad_drafting_options_are_named(model: Path, environment: dict[str, str]) -> None:
    base = ("generate", "-p", "hi", "--verifier", "127.0.0.1:1", "--insecure", "--model", str(model))
    assert_one_line(acespec(*base, "--drafter", "crystal-ball", env=environment), 2, "crystal-ball", "ngram")
    assert_one_line(acespec(*base, "--num-draft-tokens", "lots", env=environment), 2, "lots", "auto")
    assert_one_line(acespec(*base, "--controller", "lots", env=environment), 2, "lots", "--controller", "ucb")
    assert_one_line(acespec(*base, env={**environment, "ACESPEC_DRAFT_TREE": "oak"}), 2, "oak", "siblings:K")


def test_an_option_out_of_range_is_exit_2(environment: dict[str, str]) -> None:
    done = acespec("generate", "-p", "hi", "--top-p", "1.5", env=environment)
    assert done.returncode == 2
    assert "top-p" in done.stderr


def test_an_unknown_model_is_exit_1(environment: dict[str, str]) -> None:
    done = acespec(
        "generate", "--verifier", "127.0.0.1:1", "--model", "no-such-model", "--offline", "-p", "hi", env=environment
    )
    assert_one_line(done, 1, "no-such-model")


def test_settings_come_from_line_then_environment_then_file(
    model: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    config = tmp_path / "own.toml"
    config.write_text('[generate]\nverifier = "127.0.0.1:3"\ninsecure = true\n')
    base = ("--config", str(config), "generate", "--model", str(model), "-p", "hi")
    assert "127.0.0.1:3" in acespec(*base, env=environment).stderr
    named = environment | {"ACESPEC_VERIFIER": "127.0.0.1:2"}
    assert "127.0.0.1:2" in acespec(*base, env=named).stderr
    assert "127.0.0.1:1" in acespec(*base, "--verifier", "127.0.0.1:1", env=named).stderr


@pytest.fixture
def served(model: Path) -> Iterator[str]:
    """Address of a fake verifier for the tiny model, in a process of its own."""
    command = [sys.executable, "-m", "tests.edge.fake_verifier", str(model)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    yield process.stdout.readline().strip()
    process.terminate()
    process.wait(10)
    process.stdout.close()


def options(served: str, model: Path) -> tuple[str, ...]:
    return ("--verifier", served, "--insecure", "--model", str(model))


def test_generate_prints_text_and_figures(served: str, model: Path, environment: dict[str, str]) -> None:
    line = acespec("generate", *options(served, model), "-m", "20", "-p", "hello", env=environment)
    assert line.returncode == 0, line.stderr
    assert line.stdout.strip()
    assert "20 tokens" in line.stderr
    assert line.stderr.count("\n") == 1


def test_json_has_the_promised_names(served: str, model: Path, environment: dict[str, str]) -> None:
    done = acespec(
        "generate",
        *options(served, model),
        "-m",
        "20",
        "--seed",
        "9",
        "--json",
        "-p",
        "-",
        env=environment,
        stdin="hello",
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert len(result["token_ids"]) == result["usage"]["completion_tokens"] == 20
    assert result["seed"] == 9
    assert result["finish_reason"] == "length"
    for group, names in {
        "usage": "prompt_tokens completion_tokens",
        "timings": "ttft_s total_s tokens_per_s",
        "speculation": "drafter draft_tokens accepted_tokens verify_steps plain_steps acceptance_length "
        "mean_draft_length",
        "wire": "up_bytes down_bytes up_payload_bytes down_payload_bytes bytes_per_token",
        "link": "rtt_ms_p50",
    }.items():
        assert set(names.split()) <= set(result[group])


def test_log_probabilities_and_usage_are_in_the_json(served: str, model: Path, environment: dict[str, str]) -> None:
    arguments = ("-m", "8", "--json", "--logprobs", "--top-logprobs", "2", "-p", "hello")
    done = acespec("generate", *options(served, model), *arguments, env=environment)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    content = result["logprobs"]["content"]
    assert len(content) == len(result["token_ids"]) == 8
    assert all(set(item) == {"token", "logprob", "bytes", "top_logprobs"} for item in content)
    assert all(len(item["top_logprobs"]) == 2 for item in content)
    assert b"".join(bytes(item["bytes"]) for item in content).decode() == result["text"]
    assert result["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}


def test_several_answers_come_one_after_another(served: str, model: Path, environment: dict[str, str]) -> None:
    base = ("generate", *options(served, model), "-m", "8", "--seed", "5", "-p", "hello")
    shown = acespec(*base, "-n", "3", env=environment)
    assert shown.returncode == 0, shown.stderr
    headers = [line for line in shown.stdout.splitlines() if line.startswith("---")]
    seeds = [choice_seed(5, i) for i in range(3)]
    assert headers == [f"--- answer {i + 1} of 3, seed {seed}" for i, seed in enumerate(seeds)]
    as_objects = acespec(*base, "--choices", "2", "--json", env=environment)
    assert as_objects.returncode == 0, as_objects.stderr
    assert [answer["seed"] for answer in json.loads(as_objects.stdout)] == seeds[:2]


def test_what_ends_and_shapes_the_text_reaches_the_request(tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "object"}')
    grammar = tmp_path / "g.lark"
    grammar.write_text('start: "é"', encoding="utf-8")
    assert output_format(str(schema), False, None, None) == OutputFormat(json_schema='{"type": "object"}')
    assert output_format(' {"a": 1}', False, None, None) == OutputFormat(json_schema=' {"a": 1}')
    assert output_format(None, False, None, grammar) == OutputFormat(grammar='start: "é"')
    assert output_format(None, True, None, None) == OutputFormat(json_object=True)
    assert output_format(None, False, None, None) == OutputFormat()


def interrupt(process: subprocess.Popen[str]) -> None:
    """Send Ctrl-C once the process has printed something."""
    assert process.stdout is not None
    assert process.stdout.read(1) != ""
    process.send_signal(signal.SIGINT)


def start(*arguments: str, env: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "acespec.edge.cli", *arguments],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_ctrl_c_ends_generate_with_130(served: str, model: Path, environment: dict[str, str]) -> None:
    process = start("generate", *options(served, model), "-m", "3000", "-p", "hello", env=environment)
    interrupt(process)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "Traceback" not in errors


def test_a_reader_that_leaves_is_no_traceback(served: str, model: Path, environment: dict[str, str]) -> None:
    process = start("generate", *options(served, model), "-m", "3000", "-p", "hello", env=environment)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(1)
    process.stdout.close()
    process.stdin.close()
    assert process.wait(20) == 1
    assert process.stderr.read() == ""
    process.stderr.close()


def test_chat_answers_survives_ctrl_c_and_ends_with_the_input(
    served: str, model: Path, environment: dict[str, str]
) -> None:
    process = start("chat", *options(served, model), "-m", "3000", env=environment)
    assert process.stdin is not None
    assert process.stdout is not None
    answers = []
    for question in ("tell me everything", "and more"):
        process.stdin.write(question + "\n")
        process.stdin.flush()
        interrupt(process)
        answers.append(process.stdout.readline())
    process.stdin.write("/quit\n")
    process.stdin.flush()
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 0, errors
    assert "Traceback" not in errors
    assert all(answers)


def make_completion(tokens: int = 4) -> Completion:
    return Completion(
        text="four",
        token_ids=tuple(range(tokens)),
        finish=FinishReason.STOP_TOKEN,
        prompt_tokens=3,
        seed=1,
        drafter="ngram",
        ttft_s=0.5,
        first_tokens=1,
        total_s=2.0,
        totals=Totals(verify_steps=2, plain_steps=1, draft_tokens=3, accepted_tokens=2),
        wire=WireTotals(2, 20, 200, 3, 30, 300),
        rtts=(0.1, 0.3, 0.2),
        terms=Opened(1, 0, "n", 20.0, 16, 64, exact=True),
        reconnects=0,
        resyncs=0,
    )


def test_figures_follow_their_definitions() -> None:
    result = as_json(make_completion())
    assert result["finish_reason"] == "stop"
    assert result["timings"] == {"ttft_s": 0.5, "total_s": 2.0, "tokens_per_s": 2.0, "decode_tokens_per_s": 2.0}
    assert isinstance(result["speculation"], dict)
    assert result["speculation"]["acceptance_length"] == 1.0
    assert result["speculation"]["mean_draft_length"] == 1.5
    assert isinstance(result["wire"], dict)
    assert result["wire"]["bytes_per_token"] == 125.0
    assert isinstance(result["link"], dict)
    assert result["link"]["rtt_ms_p50"] == 200.0
    assert "AL 1.00" in as_line(make_completion())


def test_nothing_generated_divides_by_nothing() -> None:
    assert isinstance(as_json(make_completion(0))["wire"], dict)
    assert quantile((), 0.5) is None
