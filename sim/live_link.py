"""The link of a live run: `acespec-sim link` as a process of its own, on a spec that goes to it as a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from acespec.sim.log_check import LinkSummary, summarise
from acespec.sim.processes import free_port, serving
from acespec.sim.spec import LinkSpec


@dataclass(frozen=True, slots=True)
class LiveLink:
    """What it is, where an edge connects, and the packet log."""

    spec: LinkSpec
    address: str
    log: Path

    def summary(self) -> LinkSummary:
        """What it has carried, once it has ended."""
        return summarise(self.log)


@contextmanager
def live_link(spec: LinkSpec, to: str, folder: Path, name: str) -> Iterator[LiveLink]:
    """A link before `to` (HOST:PORT) until the context ends; its files are `name`.* in `folder`."""
    file, log = folder / f"{name}.toml", folder / f"{name}.jsonl"
    file.write_text(spec_as_toml(spec), encoding="utf-8")
    address = f"127.0.0.1:{free_port()}"
    arguments = ["link", "--link", str(file), "--listen", address, "--to", to, "--log", str(log), "--no-status"]
    with serving("acespec.sim.cli", arguments, folder / f"{name}.err"):
        yield LiveLink(spec, address, log)


def spec_as_toml(spec: LinkSpec) -> str:
    """All fields of `spec` as a link file, which `read_link_file` reads back."""
    return "".join(f"{key} = {_toml(value)}\n" for key, value in spec.as_json().items() if value is not None)


def _toml(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case str():
            return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
        case Mapping():
            return "{ " + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items() if item is not None) + " }"
        case list() | tuple():
            return "[" + ", ".join(_toml(item) for item in value) + "]"
    raise TypeError(f"{value!r} has no form in TOML")
