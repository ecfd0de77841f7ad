"""The one exception tree of acespec.

Every error a user or a caller can meet derives from `AcespecError`. Its message says what happened and what to do;
its `exit_code` is the process status a command line ends with. Errors that cross the wire carry a gRPC status name
(`status`), so that both ends raise the same class for the same fault.

    AcespecError
    ├── UsageError                what was asked for cannot be: bad flag, bad value, unknown name
    ├── ModelError                a model cannot be had or used
    │   ├── ModelNotFound         no such model, or not on this machine while offline
    │   ├── DownloadError         a fetch failed (network, disk)
    │   ├── IntegrityError        bytes are not what their hash promises
    │   └── UnsupportedModel      an architecture or format that we do not run
    ├── ProtocolError             the two ends broke the contract
    │   ├── BadFrame              undecodable or inconsistent bytes          INVALID_ARGUMENT
    │   ├── InvalidRequest        a request outside the served limits        INVALID_ARGUMENT
    │   ├── Mismatch              fingerprint, version or model differ       FAILED_PRECONDITION
    │   ├── Unauthenticated       missing or wrong key                       UNAUTHENTICATED
    │   ├── Exhausted             quota or room is used up; retry later      RESOURCE_EXHAUSTED
    │   ├── Unavailable           draining, unreachable or gone              UNAVAILABLE
    │   ├── Superseded            a newer epoch owns the session             ABORTED
    │   ├── Desync                digests differ twice: the session ends     DATA_LOSS
    │   └── ServerFault           the other end broke                        INTERNAL
    └── NumericsError             this machine cannot keep the exactness promise
"""

from __future__ import annotations

from typing import ClassVar


class AcespecError(Exception):
    """Base of all errors; `str(error)` is one clear line for a person."""

    exit_code: ClassVar[int] = 1


class UsageError(AcespecError):
    """The request makes no sense as given: a bad flag, value or name."""

    exit_code = 2


class ModelError(AcespecError):
    """A model cannot be had or used."""


class ModelNotFound(ModelError):
    """No such model is known, or it is not on this machine and fetching is off."""


class DownloadError(ModelError):
    """A fetch failed: network, registry or disk. Nothing half-written is left."""


class IntegrityError(ModelError):
    """Fetched bytes differ from their pinned hash."""


class UnsupportedModel(ModelError):
    """The architecture, quantisation or format is not one that we run."""


class NumericsError(AcespecError):
    """This machine, with these settings, does not give row-invariant bits."""


class ProtocolError(AcespecError):
    """The two ends broke the contract. `status` is the gRPC status name that carries it."""

    status: ClassVar[str] = "UNKNOWN"


class BadFrame(ProtocolError):
    """Bytes that do not decode to a message, or a message that contradicts the stream so far."""

    status = "INVALID_ARGUMENT"


class InvalidRequest(ProtocolError):
    """A well-formed request that this server does not serve; the message names the field and the limit."""

    status = "INVALID_ARGUMENT"


class Mismatch(ProtocolError):
    """Two sides disagree on tokenizer, model or version; the message names both."""

    status = "FAILED_PRECONDITION"


class Unauthenticated(ProtocolError):
    """The key is missing or wrong."""

    status = "UNAUTHENTICATED"


class Exhausted(ProtocolError):
    """A quota or the room for sessions is used up. `retry_after_s` says when to try again."""

    status = "RESOURCE_EXHAUSTED"

    def __init__(self, message: str, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Unavailable(ProtocolError):
    """The other end cannot be reached, or is draining. Safe to retry: sessions resume."""

    status = "UNAVAILABLE"


class Superseded(ProtocolError):
    """A newer epoch of this session was opened on another stream."""

    status = "ABORTED"


class Desync(ProtocolError):
    """Committed prefixes differ even after a resync."""

    status = "DATA_LOSS"


class ServerFault(ProtocolError):
    """The verifier broke while serving this session."""

    status = "INTERNAL"


BY_STATUS: dict[str, type[ProtocolError]] = {
    "INVALID_ARGUMENT": InvalidRequest,
    "FAILED_PRECONDITION": Mismatch,
    "UNAUTHENTICATED": Unauthenticated,
    "RESOURCE_EXHAUSTED": Exhausted,
    "UNAVAILABLE": Unavailable,
    "ABORTED": Superseded,
    "DATA_LOSS": Desync,
    "INTERNAL": ServerFault,
}
"""What the edge raises for a status received from the wire."""
