"""`connect`: a client with its tokenizer and drafter in one call, with the defaults of the command line."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from acespec.edge.cli_options import DEFAULT_TREE
from acespec.edge.client import Client
from acespec.edge.outage_policy import OUTAGE_TIMEOUT_S
from acespec.edge.run_options import RunOptions
from acespec.edge.shared_link import SharedLink
from acespec.models.sources import DEFAULT_MODEL
from acespec.proto.errors import UsageError

INSECURE = {"http": True, "https": False}


@asynccontextmanager
async def connect(
    url: str,
    *,
    model: str = DEFAULT_MODEL,
    api_key: str | None = None,
    tls_ca: Path | str | None = None,
    drafter: str = "ngram",
    draft_model: str | None = None,
    num_draft_tokens: int | str = "auto",
    draft_tree: str = DEFAULT_TREE,
    on_outage: str = "wait",
    outage_timeout: float = OUTAGE_TIMEOUT_S,
    acceptance: str = "0.8",
    offline: bool = False,
    link: SharedLink | None = None,
) -> AsyncIterator[Client]:
    """A client of the verifier at `url`, until the block ends. The connection is made when the first turn begins.

    Args:
        url: `http://HOST:PORT` for plain text, `https://HOST:PORT` or `HOST:PORT` for TLS.
        model: the target, for its tokenizer: a name, owner/name, folder or GGUF file; fetched if needed.
        tls_ca: file of PEM certificates to trust instead of the system's.
        drafter: `none`, `ngram`, `mlx`, `gguf`, `torch` or `hybrid`; with `model="replay"` also `replay`.
        draft_model: of a language-model drafter.
        on_outage: `wait`, `draft` or `fail`.
        acceptance: of the replayed drafters.
        link: a connection that other clients use too; it leads where `url` does.

    Raises:
        UsageError: an argument makes no sense.
        ModelError: a model cannot be had.
    """
    target, insecure = _address(url)
    options = RunOptions(
        verifier=target,
        insecure=insecure,
        tls_ca=None if tls_ca is None else Path(tls_ca),
        api_key=api_key,
        outage_timeout=outage_timeout,
        on_outage=on_outage,
        model=model,
        drafter=drafter,
        draft_model=draft_model,
        acceptance=acceptance,
        num_draft_tokens=str(num_draft_tokens),
        draft_tree=draft_tree,
        offline=offline,
    )
    client = await asyncio.to_thread(_make, options, link)
    async with client:
        yield client


def _make(options: RunOptions, link: SharedLink | None) -> Client:
    """What may take long: reading a tokenizer, loading a draft model."""
    return options.client(options.tokenizer(), link=link)


def _address(url: str) -> tuple[str, bool]:
    """HOST:PORT, and whether it is spoken to in plain text."""
    scheme, colon, rest = url.partition("://")
    if not colon:
        return url, False
    if scheme not in INSECURE:
        raise UsageError(f"{url}: begin it with http:// or https://, or give HOST:PORT")
    return rest.rstrip("/"), INSECURE[scheme]
