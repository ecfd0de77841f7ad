"""The options of a run as one value, and what is built from them. Heavy imports happen here, when a command runs."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acespec.edge.option_sets import EdgeOptions, ModelOptions, SamplingOptions
from acespec.proto.errors import UsageError
from acespec.proto.messages import OutputFormat
from acespec.proto.sampling_params import SamplingParams

if TYPE_CHECKING:
    from acespec.edge.channel import Endpoint
    from acespec.edge.client import Client
    from acespec.edge.drafters.base import Drafter
    from acespec.edge.shared_link import SharedLink
    from acespec.edge.tracing.trace_json import Plain
    from acespec.edge.tracing.trace_writer import TraceWriter
    from acespec.edge.turn_request import TurnRequest
    from acespec.models.tokenizer import Tokenizer

SEED_BITS = 53
"""Random seeds fit what JSON readers keep exactly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions(EdgeOptions):
    """What a run of the edge was given; see `acespec generate --help`."""

    system_prompt: str | None = None
    params: SamplingParams = SamplingParams()
    seed: int | None = None
    max_tokens: int = 256
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    top_logprobs: int | None = None
    format: OutputFormat = OutputFormat()

    @classmethod
    def of(cls, edge: ModelOptions, sampling: SamplingOptions | None = None, **others: Any) -> RunOptions:
        """From sets of options, and fields beside them."""
        drawn: dict[str, Any] = {}
        if sampling is not None:
            drawn = {"params": sampling.params, "seed": sampling.seed, "min_tokens": sampling.min_tokens}
            drawn["stop"] = tuple(sampling.stop or ())
        return cls(**asdict(edge), **drawn, **others)

    def endpoint(self) -> Endpoint:
        """Where to connect.

        Raises:
            UsageError: the address is missing or malformed, or a file cannot be read.
        """
        from acespec.edge.channel import Endpoint

        if self.verifier is None:
            raise UsageError("no verifier: give --verifier HOST:PORT or set ACESPEC_VERIFIER")
        host, _, port = self.verifier.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise UsageError(f"--verifier {self.verifier}: give it as HOST:PORT")
        roots = _read(self.tls_ca, "--tls-ca") if self.tls_ca else None
        return Endpoint(self.verifier, self.insecure, roots, self._key())

    def tokenizer(self) -> Tokenizer:
        """The target's tokenizer; fetches the model where it is not here yet.

        Raises:
            ModelError: it cannot be had.
        """
        from acespec.models.replay_tokenizer import replay_tokenizer, replay_vocabulary
        from acespec.models.store import resolve
        from acespec.models.tokenizer import Tokenizer

        if (size := replay_vocabulary(self.model)) is not None:
            return replay_tokenizer(size)
        return Tokenizer.load(resolve(self.model, offline=self.offline, weights=False))

    def open_trace(self) -> AbstractContextManager[TraceWriter | None]:
        """What `--trace` asks for: a file for all clients of the run, or None.

        Raises:
            UsageError: it cannot be written.
        """
        if self.trace is None:
            return nullcontext()
        from acespec.edge.tracing.trace_writer import TraceWriter

        return TraceWriter(self.trace, {"model": self.model, "options": self._named()}, tls=not self.insecure)

    def _named(self) -> dict[str, Plain]:
        """The options that shape a run, without keys and texts."""
        return {
            "verifier": self.verifier,
            "drafter": self.drafter,
            "draft_model": self.draft_model,
            "num_draft_tokens": self.num_draft_tokens,
            "controller": self.controller,
            "draft_tree": self.draft_tree,
            "draft_threads": self.draft_threads,
            "target_rate": self.target_rate,
            "temperature": self.params.temperature,
            "max_tokens": self.max_tokens,
            "outage_timeout": self.outage_timeout,
            "on_outage": self.on_outage,
        }

    def client(
        self, tokenizer: Tokenizer, trace: TraceWriter | None = None, *, link: SharedLink | None = None
    ) -> Client:
        """A client with its drafter; `trace` takes down what its session does, `link` is shared with other clients.

        Raises:
            AcespecError: an option makes no sense, or the draft model cannot be had.
        """
        from acespec.edge.brain.controller import FixedController
        from acespec.edge.brain.controllers import make_controller
        from acespec.edge.brain.tree_shape import tree_shape
        from acespec.edge.client import Client

        controller = make_controller(self.num_draft_tokens, self.controller)
        client = Client(
            self.endpoint() if link is None else link.endpoint,
            tokenizer,
            self._drafter(tokenizer),
            FixedController(0) if self.drafter == "none" else controller,
            outage_timeout=self.outage_timeout,
            on_outage=self.on_outage,
            shape=tree_shape(self.draft_tree),
            link=link,
        )
        if trace is not None:
            client.watch(trace.session())
        return client

    def _drafter(self, tokenizer: Tokenizer) -> Drafter:
        from acespec.edge.drafters.factory import make_drafter
        from acespec.edge.drafters.replay import REPLAY_KINDS
        from acespec.edge.drafters.replay_factory import ReplayDrafting, make_replay_drafter
        from acespec.models.paths import cache_root

        if self.drafter in REPLAY_KINDS:
            how = ReplayDrafting(self.drafter, self.draft_profile, self.acceptance, self.replay_ids)
            return make_replay_drafter(how, tokenizer.vocab_size)
        fingerprint = tokenizer.fingerprint
        return make_drafter(
            self.drafter,
            draft_model=self.draft_model,
            model_key=f"{Path(self.model).name}-{fingerprint.hex()}",
            vocab_size=tokenizer.vocab_size,
            cache_dir=cache_root(),
            max_kv=self.max_kv_size,
            threads=self.draft_threads,
            tokenizer=tokenizer,
            offline=self.offline,
        )

    def request(self, tokenizer: Tokenizer) -> TurnRequest:
        """What a turn asks for; draws a seed if none was given.

        Raises:
            UsageError: `min_tokens` is above `max_tokens`.
        """
        from acespec.edge.requesting import request_for

        if self.min_tokens > self.max_tokens:
            raise UsageError(f"--min-tokens {self.min_tokens} is above --max-tokens {self.max_tokens}")
        return request_for(
            tokenizer,
            self.params,
            seed=self.seed,
            max_tokens=self.max_tokens,
            min_tokens=self.min_tokens,
            stop=self.stop,
            ignore_eos=self.ignore_eos,
            target_rate=self.target_rate,
            top_logprobs=self.top_logprobs,
            format=self.format,
        )

    def _key(self) -> str | None:
        if self.api_key_file is None:
            return self.api_key
        lines = _read(self.api_key_file, "--api-key-file").decode(errors="replace").split()
        if not lines:
            raise UsageError(f"--api-key-file {self.api_key_file} is empty: put the key on its first line")
        return lines[0]


def _read(path: Path, option: str) -> bytes:
    try:
        return path.expanduser().read_bytes()  # No shell has seen a path that stands in a file.
    except OSError as error:
        raise UsageError(f"{option} {path}: {error.strerror or error}") from error
