"""Who may open a stream: bearer keys, compared in constant time. Without keys everybody is the same principal."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from pathlib import Path

from acespec.proto.errors import Unauthenticated, UsageError

ANONYMOUS = "anonymous"


class Keys:
    """The keys that are let in. A principal is the hash of its key, so that no key is ever logged."""

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self._keys = [key.encode() for key in keys if key]

    @classmethod
    def read(cls, path: Path) -> Keys:
        """One key a line; blank lines and lines that begin with # are skipped.

        Raises:
            UsageError: the file cannot be read, or holds no key.
        """
        try:
            lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
        except OSError as error:
            raise UsageError(f"cannot read the key file {path}: {error.strerror}") from error
        keys = [line for line in lines if line and not line.startswith("#")]
        if not keys:
            raise UsageError(f"the key file {path} holds no key: put one key on each line")
        return cls(keys)

    def __bool__(self) -> bool:
        return bool(self._keys)

    def principal(self, authorization: str | None) -> str:
        """The principal of an `authorization` header.

        Raises:
            Unauthenticated: the header is missing or its key is unknown.
        """
        if not self._keys:
            return ANONYMOUS
        if authorization is None:
            raise Unauthenticated("this verifier wants a key: pass --api-key-file or set ACESPEC_API_KEY")
        scheme, _, key = authorization.partition(" ")
        given = key.strip().encode()
        known = [hmac.compare_digest(given, k) for k in self._keys]
        if scheme.lower() != "bearer" or not any(known):
            raise Unauthenticated("the key is not one of this verifier's: check --api-key-file or ACESPEC_API_KEY")
        return hashlib.blake2b(given, digest_size=8).hexdigest()
