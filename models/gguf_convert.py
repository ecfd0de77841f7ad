"""GGUF file -> Hugging Face style folder, tensor by tensor.

Weights are stored as float32: a dequantised value (scale x integer + offset) is exact in float32 only, and every
runtime that reads the folder must start from the same numbers. That costs disk (4 bytes a weight), not exactness.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from acespec.models.gguf_config import hugging_face_config, special_ids
from acespec.models.gguf_file import GgufFile
from acespec.models.gguf_names import ROPE_FACTORS, hugging_face_name, projection
from acespec.models.gguf_tokenizer import tokenizer_config, tokenizer_json
from acespec.models.progress import Report, silent
from acespec.models.safetensors_stream import BYTES_PER_VALUE, Float32Writer
from acespec.models.staging import require_room
from acespec.proto.errors import UnsupportedModel

STAGE = "converting"


def convert_gguf(source: Path, folder: Path, report: Report = silent) -> None:
    """Fill the existing, empty `folder` from the GGUF file `source`.

    Raises UnsupportedModel for an architecture, tokenizer or number format that is not known, IntegrityError for a
    file that is not whole, DownloadError when the disk has no room. The caller removes the folder on failure.
    """
    file = GgufFile(source)
    config = hugging_face_config(file)
    names = _tensor_names(file)
    require_room(folder, BYTES_PER_VALUE * sum(_count(file, name) for name in names))
    convert_tokenizer(file, folder)
    _write_weights(file, names, config, folder / "model.safetensors", report)
    _write_json(folder / "config.json", config)


def convert_tokenizer(file: GgufFile, folder: Path) -> None:
    """Write what `Tokenizer.load` reads into `folder`; UnsupportedModel for a kind that is not known."""
    _write_json(folder / "tokenizer.json", tokenizer_json(file))
    _write_json(folder / "tokenizer_config.json", tokenizer_config(file))
    _write_json(folder / "generation_config.json", special_ids(file))


def unpermute(rows: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Undo llama.cpp's row order of a llama query or key projection (weight or bias).

    llama.cpp rotates neighbouring rows (0, 1), (2, 3).. of a head; Hugging Face rotates row i with row i + half.
    `rows`: (heads * head_dim, ...).
    """
    half = rows.shape[0] // heads // 2
    return rows.reshape(heads, half, 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def _tensor_names(file: GgufFile) -> dict[str, str]:
    names: dict[str, str] = {}
    for name in file.tensors:
        if name == ROPE_FACTORS:
            continue
        known = hugging_face_name(name)
        if known is None:
            raise UnsupportedModel(
                f"{file.path.name} holds a tensor {name!r} that a dense {file.architecture} model does not have"
            )
        names[name] = known
    return names


def _write_weights(
    file: GgufFile, names: Mapping[str, str], config: Mapping[str, object], path: Path, report: Report
) -> None:
    shapes = {known: file.shape(name) for name, known in names.items()}
    total = BYTES_PER_VALUE * sum(_count(file, name) for name in names)
    done = 0
    report(STAGE, done, total)
    with Float32Writer(path, shapes) as writer:
        for name, known in names.items():
            writer.write(known, _in_checkpoint_order(file, name, config))
            done += BYTES_PER_VALUE * _count(file, name)
            report(STAGE, done, total)


def _in_checkpoint_order(file: GgufFile, name: str, config: Mapping[str, object]) -> NDArray[np.float32]:
    values = file.dequantised(name)
    which = projection(name) if file.architecture == "llama" else None
    if which is None:
        return values
    heads = config["num_attention_heads" if which == "q" else "num_key_value_heads"]
    assert isinstance(heads, int)
    return unpermute(values, heads)


def _count(file: GgufFile, name: str) -> int:
    return int(np.prod(file.shape(name)))


def _write_json(path: Path, value: Mapping[str, object]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
