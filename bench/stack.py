"""The real stack for a benchmark: a verifier process, a shaped link before it, and clients in this process."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

from acespec.edge.brain.controller import FixedController
from acespec.edge.brain.controllers import make_controller
from acespec.edge.channel import Endpoint
from acespec.edge.client import Client
from acespec.edge.completion import Completion
from acespec.edge.drafters.base import Drafter
from acespec.edge.drafters.factory import make_drafter
from acespec.edge.turn_request import TurnRequest, as_sent
from acespec.models.replay_tokenizer import NAME as REPLAY
from acespec.models.replay_tokenizer import replay_tokenizer, replay_vocabulary
from acespec.models.store import resolve
from acespec.models.tokenizer import Tokenizer
from acespec.proto.sampling_params import SamplingParams
from acespec.sim.log_check import LinkSummary, summarise
from acespec.sim.processes import free_port, serving


@dataclass(frozen=True, slots=True)
class Mode:
    """A way to run a prompt: which drafter, how many draft tokens."""

    name: str
    drafter: str = "none"
    draft_tokens: str = "auto"
    draft_model: str | None = None


PLAIN = Mode("plain")
NGRAM = Mode("ngram", "ngram")


@dataclass(frozen=True, slots=True)
class Link:
    """A shaped link: where edges connect, and its packet log."""

    address: str
    log: Path

    def summary(self) -> LinkSummary:
        """What it has carried so far."""
        return summarise(self.log)


class Stack:
    """A running verifier for `model`; use `running` to get one."""

    def __init__(self, model: str, verifier: str, folder: Path) -> None:
        self.model = model
        self.verifier = verifier
        self._folder = folder
        size = replay_vocabulary(model)
        self.tokenizer = Tokenizer.load(resolve(model)) if size is None else replay_tokenizer(size)

    @classmethod
    @contextlib.contextmanager
    def running(cls, model: str, *, free_run: str = "always") -> Iterator[Stack]:
        """Start a verifier on loopback with one thread; the context ends it."""
        with cls._serving(model, ["--model", model, "--free-run", free_run]) as stack:
            yield stack

    @classmethod
    @contextlib.contextmanager
    def replaying(cls, profile: str, *, free_run: str = "always", options: Sequence[str] = ()) -> Iterator[Stack]:
        """Start a verifier that replays a synthetic text at a profile's speed; `options`: further ones of `serve`."""
        arguments = ["--backend", "replay", "--profile", profile, "--free-run", free_run, *options]
        with cls._serving(REPLAY, arguments) as stack:
            yield stack

    @classmethod
    @contextlib.contextmanager
    def _serving(cls, model: str, options: Sequence[str]) -> Iterator[Stack]:
        with tempfile.TemporaryDirectory(prefix="acespec-bench-") as name:
            folder, port = Path(name), free_port()
            arguments = ["serve", "--host", "127.0.0.1", "--port", str(port), "--insecure", *options]
            with serving("acespec.cloud.cli", arguments, folder / "verifier.log"):
                yield cls(model, f"127.0.0.1:{port}", folder)

    @contextlib.contextmanager
    def link(self, preset: str, name: str) -> Iterator[Link]:
        """Start a shaped link before the verifier; the context ends it."""
        port, log = free_port(), self._folder / f"{name}.jsonl"
        arguments = ["link", "--preset", preset, "--listen", f"127.0.0.1:{port}", "--to", self.verifier]
        with serving("acespec.sim.cli", [*arguments, "--log", str(log)], self._folder / f"{name}.err"):
            yield Link(f"127.0.0.1:{port}", log)

    def client(self, address: str, mode: Mode, drafter: Drafter | None = None) -> Client:
        """A client at `address`. What its drafter learns is kept in memory only; `drafter` replaces the mode's own."""
        drafter = drafter or make_drafter(
            mode.drafter,
            draft_model=mode.draft_model,
            model_key=self.model,
            vocab_size=self.tokenizer.vocab_size,
            cache_dir=None,
        )
        plain = mode.drafter == "none"
        controller = FixedController(0) if plain else make_controller(mode.draft_tokens)
        return Client(Endpoint(address, insecure=True), self.tokenizer, drafter, controller)

    def request(self, max_tokens: int, seed: int = 1, params: SamplingParams | None = None) -> TurnRequest:
        """What a turn asks for; greedy unless `params` say otherwise."""
        return TurnRequest(
            params=as_sent(params or SamplingParams()),
            seed=seed,
            max_tokens=max_tokens,
            end_ids=self.tokenizer.eos_ids,
        )

    async def generate(
        self, client: Client, prompt: str, request: TurnRequest, show: Callable[[str], None] | None = None
    ) -> Completion:
        """Run one chat prompt; `show` gets the text as it is committed."""
        text = self.tokenizer.apply_chat([{"role": "user", "content": prompt}])
        async with aclosing(client.stream(self.tokenizer.encode(text), request, text=text)) as parts:
            async for part in parts:
                if isinstance(part, Completion):
                    return part
                if show is not None:
                    show(part.text)
        raise RuntimeError("the stream ended without a completion")


@dataclass(frozen=True, slots=True)
class Cost:
    """Sums over several completions."""

    tokens: int
    seconds: float
    ttft_s: float
    accepted: int
    drafted: int
    steps: int
    plain_steps: int
    verify_s: float
    up_bytes: int
    up_payload: int
    down_bytes: int
    down_payload: int

    @property
    def tokens_per_s(self) -> float:
        """Tokens over whole turns, the wait for the first one included."""
        return self.tokens / self.seconds

    @property
    def acceptance_length(self) -> float:
        """Accepted drafts per verify step, bonus not counted."""
        return self.accepted / self.steps

    def as_json(self) -> dict[str, float]:
        """Plain data, with the ratios that matter."""
        return dataclasses.asdict(self) | {
            "tokens_per_s": self.tokens_per_s,
            "acceptance_length": self.acceptance_length,
            "mean_draft_length": self.drafted / self.steps,
            "steps_per_token": self.steps / self.tokens,
            "verify_ms_per_token": 1000 * self.verify_s / self.tokens,
            "up_bytes_per_token": self.up_bytes / self.tokens,
            "down_bytes_per_token": self.down_bytes / self.tokens,
            "up_payload_per_token": self.up_payload / self.tokens,
            "down_payload_per_token": self.down_payload / self.tokens,
        }


def cost_of(runs: list[Completion]) -> Cost:
    """Sums of finished turns; the time to the first token is their mean. Bytes are the edge's own count."""
    return Cost(
        tokens=sum(len(r.token_ids) for r in runs),
        seconds=sum(r.total_s for r in runs),
        ttft_s=sum(r.ttft_s for r in runs) / len(runs),
        accepted=sum(r.totals.accepted_tokens for r in runs),
        drafted=sum(r.totals.draft_tokens for r in runs),
        steps=sum(r.totals.verify_steps for r in runs),
        plain_steps=sum(r.totals.plain_steps for r in runs),
        verify_s=sum(r.totals.verify_us for r in runs) / 1e6,
        up_bytes=sum(r.wire.up_bytes for r in runs),
        up_payload=sum(r.wire.up_payload_bytes for r in runs),
        down_bytes=sum(r.wire.down_bytes for r in runs),
        down_payload=sum(r.wire.down_payload_bytes for r in runs),
    )
