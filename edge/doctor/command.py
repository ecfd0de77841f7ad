"""`acespec doctor`: one check after another, each on what the earlier ones have found."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from acespec.edge.doctor.finding import Finding, fault, is_fault, skipped
from acespec.edge.doctor.machine import machine_findings
from acespec.edge.doctor.models import draft_model_findings, target_tokenizer
from acespec.edge.doctor.packages import package_findings
from acespec.edge.doctor.port import port_finding
from acespec.edge.doctor.reach import reach_findings
from acespec.edge.doctor.report import as_json, summary, teller
from acespec.edge.doctor.session import SESSION, session_findings
from acespec.edge.doctor.settings import settings_findings
from acespec.edge.doctor.verifier import verifier_findings
from acespec.edge.run_options import RunOptions
from acespec.edge.version_report import version_report
from acespec.models.tokenizer import Tokenizer
from acespec.proto.config_file import Config
from acespec.proto.errors import UsageError

if TYPE_CHECKING:
    from typer._click import Command
else:
    Command = object

ADDRESS = "address"


@dataclass(frozen=True, slots=True)
class Visit:
    """What is to be looked at.

    Attributes:
        listen: where the local endpoint would listen: host and port.
        session: also run a real session.
        wait: seconds for each step over the network.
    """

    options: RunOptions
    config: Config
    program: Command
    listen: tuple[str, int] | None
    session: bool
    wait: float


def run(visit: Visit, *, as_object: bool) -> int:
    """Print findings as they come; the exit status: 0 without a fault, else 1."""
    tell = teller(quiet=as_object)
    findings: list[Finding] = []
    for finding in diagnose(visit):
        tell(finding)
        findings.append(finding)
    last = json.dumps(as_json(findings, version_report()), indent=2) if as_object else summary(findings)
    sys.stdout.write(f"{last}\n")
    return 1 if any(map(is_fault, findings)) else 0


def diagnose(visit: Visit) -> Iterator[Finding]:
    """All findings, in the order in which a person would look."""
    options = visit.options
    yield from machine_findings()
    yield from settings_findings(visit.config, visit.program)
    if visit.listen is not None:
        yield port_finding(*visit.listen)
    target = target_tokenizer(options.model, offline=options.offline)
    yield target.finding
    drafting = [
        *package_findings(options.drafter),
        *draft_model_findings(options.drafter, options.draft_model, target.tokenizer, offline=options.offline),
    ]
    yield from drafting
    drafts = not any(map(is_fault, drafting))
    yield from _network(visit, target.tokenizer, drafts=drafts)


def _network(visit: Visit, tokenizer: Tokenizer | None, *, drafts: bool) -> Iterator[Finding]:
    try:
        endpoint = visit.options.endpoint()
    except UsageError as error:
        yield fault(ADDRESS, str(error), '--verifier HOST:PORT, or verifier = "HOST:PORT" in the settings file')
        return
    for finding in reach_findings(endpoint, visit.wait):
        yield finding
        if is_fault(finding):
            yield skipped("verifier", "not asked: it cannot be reached")
            return
    faulty = False
    for finding in _drained(verifier_findings(endpoint, tokenizer, visit.wait)):
        faulty |= is_fault(finding)
        yield finding
    if not visit.session:
        return
    if faulty or tokenizer is None:
        yield skipped(SESSION, "not tried: see above")
        return
    # A drafter that cannot start is named above; the link can be measured all the same.
    options = visit.options if drafts else replace(visit.options, drafter="none")
    yield from _drained(session_findings(options, tokenizer, visit.wait))


def _drained(findings: AsyncIterator[Finding]) -> Iterator[Finding]:
    """The same one by one, outside of asyncio: what is found is told before the next thing is tried."""
    with asyncio.Runner() as runner:
        while (finding := runner.run(_next(findings))) is not None:
            yield finding


async def _next(findings: AsyncIterator[Finding]) -> Finding | None:
    return await anext(findings, None)
