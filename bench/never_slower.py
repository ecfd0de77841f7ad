"""Is drafting ever slower than plain cloud decoding? Replayed verifiers behind shaped links, the real stack between.

Every cell (profile x preset) has a verifier, a link and a client of its own, and runs plain, a good drafter (a = 0.8),
a useless and a hostile one in turn, each round with another seed. A row passes if all ids are the target's own and the
lower end of the 95 % interval of the ratio of decoding speeds (the slope of tokens over time, all commits) is at or
above its bound. Cells run side by side: nothing is computed but the protocol.

    python -m acespec.bench.never_slower --json never_slower.json
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from acespec.bench.never_slower_cell import DRAFTED
from acespec.proto.replay_profiles import VERIFIERS
from acespec.sim.link import LinkSpec

PRESETS = ("wan50", "gprs", "dialup56", "certus100", "mobile_throttled64")
LOSSY = 3.0
"""Runs over links with losses are longer by this: a stall of a second must not decide."""
PROFILES = ("h100-8b", "h100-70b-fp8", "a100-70b")


def run_cell(profile: str, preset: str, args: argparse.Namespace) -> dict[str, Any]:
    """One cell in a process of its own.

    Raises:
        CalledProcessError: it failed; what it said is on our stderr.
    """
    command = [sys.executable, "-m", "acespec.bench.never_slower_cell", profile, preset]
    lossy = LinkSpec.preset(preset).loss_percent > 0
    command += ["--rounds", str(args.rounds), "--seconds", str(args.seconds * (LOSSY if lossy else 1.0))]
    for mode in args.mode or []:
        command += ["--mode", mode]
    command += ["--draft-tree", args.draft_tree, "--acceptance", args.acceptance]
    command += ["--controller", args.controller] if args.controller else []
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    cell: dict[str, Any] = json.loads(done.stdout)
    return cell


def lines_of(cell: dict[str, Any]) -> list[str]:
    """The cell's rows for a person."""
    lines = []
    for row in cell["rows"]:
        decode, drafted = row["decode"], row["drafted"]
        verdict = ("ok" if row["ok"] else "BELOW") if row["exact"] else "WRONG IDS"
        lines.append(
            f"{cell['profile']:13} {cell['preset']:19} {row['mode']:8} {cell['plain_decode_tokens_per_s']:7.2f} "
            f"{decode['mean']:6.3f}  {decode['low']:.3f} .. {decode['high']:.3f}  {row['whole']['mean']:6.3f} "
            f"{drafted['acceptance_length']:6.2f} {drafted['mean_draft_length']:6.2f} "
            f"{drafted['up_bytes_per_token']:6.0f} {drafted['down_bytes_per_token']:6.0f} "
            f"{cell['step_late_ms']:6.2f}  {verdict}"
        )
    return lines


HEADER = (
    f"{'profile':13} {'link':19} {'drafter':8} {'plain/s':>7} {'ratio':>6}  {'95 % interval':14}  {'whole':>6} "
    f"{'AL':>6} {'D':>6} {'up B':>6} {'down B':>6} {'late':>6}"
)


def main() -> int:
    """Entry point; 1 if a row is below its bound or any id is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", action="append", choices=list(VERIFIERS), help="may be repeated")
    parser.add_argument("--preset", action="append", help="may be repeated")
    parser.add_argument("--mode", action="append", choices=[m.name for m in DRAFTED], help="may be repeated")
    parser.add_argument("--rounds", type=int, default=6, help="runs of each drafter in a cell")
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="how long a plain run decodes, about; 3 x over losses"
    )
    parser.add_argument("--controller", help="of the honest and the useless drafter [rate]")
    parser.add_argument("--draft-tree", default="siblings:4")
    parser.add_argument("--acceptance", default="0.8", help="of the honest drafter")
    parser.add_argument("--jobs", type=int, default=10, help="cells side by side")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    args = parser.parse_args()
    wanted = [(f, s) for s in args.preset or PRESETS for f in args.profile or PROFILES]
    wanted.sort(key=lambda cell: LinkSpec.preset(cell[1]).loss_percent == 0)  # long ones first
    began, cells = time.monotonic(), []
    sys.stdout.write(HEADER + "\n")
    with ThreadPoolExecutor(args.jobs) as pool:
        try:
            for future in as_completed([pool.submit(run_cell, f, s, args) for f, s in wanted]):
                cells.append(future.result())
                sys.stdout.write("\n".join(lines_of(cells[-1])) + "\n")
                sys.stdout.flush()
                sys.stderr.write(f"{len(cells)} of {len(wanted)} cells, {time.monotonic() - began:.0f} s\n")
        except subprocess.CalledProcessError as error:
            pool.shutdown(cancel_futures=True)
            sys.stderr.write(f"error: a cell failed with status {error.returncode}\n")
            return 1
    if args.json:
        args.json.write_text(json.dumps(cells, indent=2) + "\n", encoding="utf-8")
    rows = [row for cell in cells for row in cell["rows"]]
    sys.stdout.write(f"{sum(row['ok'] for row in rows)} of {len(rows)} rows pass\n")
    return 0 if all(row["ok"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
