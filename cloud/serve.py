"""What `acespec-verifier serve` does: load, serve until a signal, drain."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from acespec.cloud.admission import Admission
from acespec.cloud.auth import Keys
from acespec.cloud.device import Device, RunnerOptions
from acespec.cloud.engine import EngineBackend
from acespec.cloud.grammar_compiler import missing_library
from acespec.cloud.host import Hosts
from acespec.cloud.load import Target, load_target
from acespec.cloud.runner import PAGE, longest_sequence
from acespec.cloud.scheduler import FreeRun
from acespec.cloud.server import Tls, serving
from acespec.cloud.turn import Limits
from acespec.cloud.turn_table import TurnTable
from acespec.models.replay_tokenizer import DEFAULT_VOCABULARY
from acespec.proto.errors import UsageError
from acespec.proto.timing_profile import TimingProfile

log = logging.getLogger(__name__)

REPLAY_PAGE_BYTES = 9 * 2**20
"""What `--kv-memory` counts for a page of a replayed target: 64 positions of an 8B model with 8 KV heads in bf16."""


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """The options of `serve` that only the replay backend reads."""

    profile: str = "h100-8b"
    ids: Path | None = None
    vocab_size: int = DEFAULT_VOCABULARY
    background: int = 0


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of `serve`; see its `--help`."""

    model: str
    backend: str
    device: Device
    replay: ReplayOptions
    address: str
    tls_cert: Path | None
    tls_key: Path | None
    api_key_file: Path | None
    free_run: FreeRun
    target_rate: float
    max_rate: float
    max_draft: int
    max_rows: int | None
    timing: Path | None
    kv_gib: float | None
    share_prefixes: bool
    first_token_s: float
    max_sessions: int
    max_length: int | None
    grace_s: float
    threads: int
    offline: bool
    allow_inexact: bool
    reflection: bool
    drain_s: float

    @property
    def keys(self) -> Keys:
        """Keys that are let in; none lets everybody in."""
        return Keys.read(self.api_key_file) if self.api_key_file else Keys()

    @property
    def tls(self) -> Tls | None:
        """The certificate and key, or None without TLS."""
        if self.tls_cert is None or self.tls_key is None:
            return None
        return Tls(_pem(self.tls_cert), _pem(self.tls_key))


def serve_forever(settings: Settings) -> None:
    """Load the model and serve it until SIGINT or SIGTERM; a second signal skips the drain.

    Raises:
        AcespecError: the model cannot be loaded, or the address not bound.
    """
    keys, tls = settings.keys, settings.tls
    target = _target(settings)
    asyncio.run(_serve(settings, target, keys, tls))


def _target(settings: Settings) -> Target:
    if settings.backend == "replay":
        return _replay(settings)
    options = RunnerOptions(
        device=settings.device,
        threads=settings.threads,
        max_length=settings.max_length,
        kv_bytes=None if settings.kv_gib is None else int(settings.kv_gib * 2**30),
        allow_inexact=settings.allow_inexact,
    )
    return load_target(settings.model, options, offline=settings.offline, say=log.info)


def _replay(settings: Settings) -> Target:
    from acespec.cloud.replay.load import load_replay

    options = settings.replay
    return load_replay(
        options.profile,
        vocab_size=options.vocab_size,
        ids=options.ids,
        max_length=settings.max_length,
        kv_pages=None if settings.kv_gib is None else int(settings.kv_gib * 2**30) // REPLAY_PAGE_BYTES,
        background=options.background,
        never_idle=settings.free_run is FreeRun.ALWAYS,
    )


async def _serve(settings: Settings, target: Target, keys: Keys, tls: Tls | None) -> None:
    limits = Limits(max_draft=settings.max_draft, max_length=longest_sequence(target.runner))
    timing = TimingProfile.load(settings.timing) if settings.timing else target.runner.timing()
    max_rows = settings.max_rows or max(timing.knee(), settings.max_draft + 1)
    log.info("at most %d rows a step, %d KV pages of %d positions", max_rows, target.runner.pages, PAGE)
    card = target.card(limits, settings.free_run, limits.max_length - 1)
    admission = Admission(
        card,
        target.tokenizer.encode,
        settings.target_rate,
        settings.max_rate,
        compile_format=target.compile_format,
        **_no_formats(settings),
    )
    backend = EngineBackend(
        target.runner,
        TurnTable(
            target.runner,
            limits=limits,
            decoder=target.decoder,
            free_run=settings.free_run,
            max_rows=max_rows,
            timing=timing,
            share_prefixes=settings.share_prefixes,
            first_token_s=settings.first_token_s,
        ),
    )
    async with backend:
        hosts = Hosts(admission, backend, grace_s=settings.grace_s, max_sessions=settings.max_sessions)
        async with serving(
            card,
            hosts,
            address=settings.address,
            keys=keys,
            tls=tls,
            reflection=settings.reflection,
            drain_s=settings.drain_s,
        ) as port:
            stop = _on_signals()
            host = settings.address.rpartition(":")[0]
            log.info("%s, numerics %s, exact: %s", card.model, card.numerics_id, "yes" if card.exact else "NO")
            sys.stderr.write(f"ready on {host}:{port}\n")
            sys.stderr.flush()
            await stop.wait()


def _no_formats(settings: Settings) -> dict[str, str]:
    """Why structured output is not served, if something can be done about it."""
    reason = None if settings.backend == "replay" else missing_library()
    return {"no_formats": reason} if reason else {}


def _on_signals() -> asyncio.Event:
    """An event that the first signal sets; the second ends the process at once."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def hear(number: signal.Signals) -> None:
        if stop.is_set():
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, hear, number)
    return stop


def _pem(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
