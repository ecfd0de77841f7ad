"""Network namespaces of our own: made, entered, and always removed again, by means of iproute2.

A name says whose the namespace is: process id, start time of that process, a number, a side. So what a killed process
left behind is told apart from what a living one uses, even when process ids come round again.
"""

from __future__ import annotations

import itertools
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from acespec.proto.errors import UsageError

log = logging.getLogger(__name__)

RUN_DIRECTORY = Path("/run/netns")
SBIN = ("/usr/sbin", "/sbin")
GRACE_S = 2.0
"""How long a program may take to end after SIGTERM."""
OWNED = re.compile(r"ace-(\d+)-(\d+)-\d+-[a-z]+")
CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_SYS_ADMIN": 21}
INSTEAD = "or use the proxy, which needs no privileges: `acespec-sim link`"

_numbers = itertools.count(1)


def find_tool(name: str) -> str | None:
    """The path of a system tool; those in sbin are found although a user's PATH may lack it."""
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", os.defpath), *SBIN]))


def require_namespaces() -> None:
    """Raises UsageError, saying what is missing, where namespaces cannot be made."""
    if not sys.platform.startswith("linux"):
        raise UsageError(f"network namespaces need Linux: run this in a Linux machine, {INSTEAD}")
    if missing := missing_capabilities():
        raise UsageError(f"network namespaces need root ({' and '.join(missing)} missing): use sudo, {INSTEAD}")
    if find_tool("ip") is None:
        raise UsageError(f"network namespaces need the command `ip`: install iproute2, {INSTEAD}")


def missing_capabilities() -> list[str]:
    """Which of the capabilities needed here this process lacks."""
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    effective = int(re.search(r"^CapEff:\s*([0-9a-f]+)", status, re.MULTILINE)[1], 16)  # type: ignore[index] # always there
    return [name for name, bit in CAPABILITIES.items() if not effective >> bit & 1]


def ip(*arguments: str, lines: Iterable[str] = ()) -> str:
    """Runs `ip`, with a batch of commands if there are `lines`; returns its output. Raises UsageError if it fails."""
    return iproute("ip", *arguments, lines=lines)


def iproute(tool: str, *arguments: str, lines: Iterable[str] = ()) -> str:
    """Runs `ip` or `tc` likewise."""
    try:
        done = subprocess.run(
            [find_tool(tool) or tool, *arguments], input="\n".join(lines), capture_output=True, text=True, check=False
        )
    except FileNotFoundError as error:
        raise UsageError(f"the command `{tool}` is missing: install iproute2") from error
    if done.returncode:
        what = " ".join((tool, *arguments))
        raise UsageError(f"`{what}` failed: {done.stderr.strip() or f'status {done.returncode}'}")
    return done.stdout


class Namespace:
    """`with Namespace("edge") as namespace:`; programs that still run inside at the end are terminated."""

    def __init__(self, side: str) -> None:
        pid = os.getpid()
        self.name = f"ace-{pid}-{_started(pid)}-{next(_numbers)}-{side}"

    def __enter__(self) -> Self:
        ip("netns", "add", self.name)
        try:
            self.configure(["link set dev lo up"])
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    def command(self, argv: Sequence[str]) -> list[str]:
        """The same command, run inside."""
        return [find_tool("ip") or "ip", "netns", "exec", self.name, *argv]

    def configure(self, lines: Iterable[str]) -> None:
        """Carries out `ip` commands inside, in one go. Raises UsageError."""
        ip("-n", self.name, "-batch", "-", lines=lines)

    def tc(self, command: str) -> None:
        """Carries out one `tc` command inside. Raises UsageError."""
        iproute("tc", "-n", self.name, *command.split())

    def pids(self) -> list[int]:
        """Processes that run inside."""
        return [int(pid) for pid in ip("netns", "pids", self.name).split()]

    def terminate_programs(self) -> None:
        """Ends whatever runs inside: asked first, killed after `GRACE_S`."""
        for number, patience in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, GRACE_S)):
            for pid in self.pids():
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
            deadline = time.monotonic() + patience
            while self.pids() and time.monotonic() < deadline:
                time.sleep(0.02)

    def remove(self) -> None:
        """Terminates what runs inside and removes the namespace, its devices with it."""
        try:
            self.terminate_programs()
        finally:
            ip("netns", "del", self.name)


def stale_namespaces() -> list[str]:
    """Namespaces of ours whose process is gone."""
    if not RUN_DIRECTORY.is_dir():
        return []
    owned = [match for match in map(OWNED.fullmatch, sorted(entry.name for entry in RUN_DIRECTORY.iterdir())) if match]
    return [match[0] for match in owned if _started(int(match[1])) != match[2]]


def remove_stale() -> list[str]:
    """Removes the namespaces that dead processes left behind; returns their names.

    Programs that a dead process left running keep their namespace, but it has no name and no link any more.
    """
    stale = stale_namespaces()
    for name in stale:
        log.warning("removing network namespace %s, left behind by a process that is gone", name)
        with suppress(UsageError):  # Somebody else may be about the same.
            ip("netns", "del", name)
    return stale


@contextmanager
def cable(mtu: int = 1500) -> Iterator[tuple[Namespace, Namespace]]:
    """Two namespaces with a veth cable between them: `ace0` at either end, `EDGE_IP` and `CLOUD_IP`, no offloads."""
    with ExitStack() as stack:
        edge, cloud = (stack.enter_context(Namespace(side)) for side in ("edge", "cloud"))
        edge.configure([f"link add {DEVICE} type veth peer name {DEVICE} netns {cloud.name}"])
        edge.configure(device_lines(mtu, EDGE_IP, CLOUD_IP))
        cloud.configure(device_lines(mtu, CLOUD_IP, EDGE_IP))
        yield edge, cloud


IPV6 = Path("/proc/sys/net/ipv6")
EDGE_IP, CLOUD_IP = "10.77.0.1", "10.77.0.2"
DEVICE = "ace0"


def device_lines(mtu: int, own: str, peer: str) -> list[str]:
    """`ip` commands that bring a device up.

    One segment a packet: neither the sender's TCP nor a capture sees anything larger than the MTU. Without a link-local
    address the kernel sends no IPv6 chatter of its own; addresses may be added.
    """
    quiet = [f"link set dev {DEVICE} addrgenmode none"] if IPV6.exists() else []
    return [
        *quiet,
        f"link set dev {DEVICE} mtu {mtu} gso_max_segs 1 up",
        f"addr add {own} peer {peer} dev {DEVICE}",
    ]


def _started(pid: int) -> str:
    """When the process started, in clock ticks since boot; empty if there is none (proc(5), field 22 of stat)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[19]
