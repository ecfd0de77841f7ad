"""What `acespec proxy` was told besides what every run is told."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from pathlib import Path

from acespec.edge.proxy.parameters import Defaults
from acespec.proto.errors import UsageError


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of `acespec proxy`; see its `--help`.

    Attributes:
        keys: one of these has to come with each request; none lets everybody in.
        origins: web origins whose pages may use the API; `*` for all.
        patience_s: how long a request waits for a verifier that cannot be reached.
        model: the name that the user gave; requests may use it beside the verifier's own.
        draft_model: the one that drafts here, which requests may name.
        drain_s: how long answers under way may go on after a signal.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    keys: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    max_sessions: int = 4
    max_waiting: int = 64
    patience_s: float = 60.0
    drain_s: float = 5.0
    model: str = ""
    draft_model: str | None = None
    defaults: Defaults = field(default_factory=Defaults)

    @property
    def loopback(self) -> bool:
        """True if only this machine can connect."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """True if `host` names this machine to itself."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def read_keys(key: str | None, file: Path | None) -> tuple[str, ...]:
    """The keys of a file, one a line, `#` begins a comment; without a file the one given.

    Raises:
        UsageError: the file cannot be read, or holds none.
    """
    if file is None:
        return (key,) if key else ()
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--proxy-key-file {file}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"--proxy-key-file {file} is not UTF-8 text") from error
    keys = tuple(word for line in text.splitlines() if (word := line.split("#")[0].strip()))
    if not keys:
        raise UsageError(f"--proxy-key-file {file} holds no key: put one on a line of its own")
    return keys
