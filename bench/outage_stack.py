"""Verifiers that can be killed, and links with a breaker before and a switch behind them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

from acespec.sim.breaker import Breaker
from acespec.sim.processes import free_port, serving


class Verifier:
    """A verifier process on a port of its own; a restarted one has the same port and has lost everything."""

    def __init__(self, folder: Path, name: str, options: list[str]) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        self._log = folder / f"{name}.log"
        self._options = options
        self._running = contextlib.ExitStack()

    @classmethod
    @contextlib.contextmanager
    def running(cls, folder: Path, name: str, options: list[str]) -> Iterator[Verifier]:
        """Start one; the context ends it. Raises `ProcessFailed`."""
        verifier = cls(folder, name, options)
        verifier._start()
        try:
            yield verifier
        finally:
            verifier._running.close()

    async def kill_and_restart(self) -> None:
        """SIGKILL, and a new process; returns once that one serves."""
        self._process.kill()
        await asyncio.to_thread(self._running.close)
        await asyncio.to_thread(self._start)

    def _start(self) -> None:
        host, _, port = self.address.rpartition(":")
        arguments = ["serve", "--host", host, "--port", port, "--insecure", *self._options]
        self._process = self._running.enter_context(serving("acespec.cloud.cli", arguments, self._log))


@dataclass(frozen=True, slots=True)
class Way:
    """How an edge reaches a verifier: edge - breaker - shaped link - switch - verifier."""

    breaker: Breaker
    switch: Breaker

    @property
    def address(self) -> str:
        """Where edges connect."""
        return self.breaker.address

    def cut(self) -> None:
        """No signal. What is on the link already gets no further than its end."""
        self.breaker.cut()
        self.switch.cut()

    def mend(self) -> None:
        """The signal is back."""
        self.switch.mend()
        self.breaker.mend()


@contextlib.asynccontextmanager
async def way_to(verifier: str, preset: str, folder: Path, name: str) -> AsyncIterator[Way]:
    """A shaped link of its own, in a process of its own."""
    async with Breaker(verifier) as switch:
        address = f"127.0.0.1:{free_port()}"
        arguments = ["link", "--preset", preset, "--listen", address, "--to", switch.address]
        started = serving("acespec.sim.cli", arguments, folder / f"{name}.log")
        await asyncio.to_thread(started.__enter__)
        try:
            async with Breaker(address) as breaker:
                yield Way(breaker, switch)
        finally:
            await asyncio.to_thread(started.__exit__, None, None, None)
