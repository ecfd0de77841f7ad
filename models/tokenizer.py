"""Text <-> token ids of one model, and the fingerprint by which two machines know that theirs agree.

Encoding is the `tokenizers` library's. Decoding is ours, over the bytes of each token, so that a stream decodes to
exactly what the whole decodes to, and in time proportional to what is new.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self

from acespec.models.chat_template import ChatTemplate
from acespec.models.config_files import Json, end_ids, read_json, read_json_if_any, special_token
from acespec.models.token_bytes import byte_level_bytes, sentencepiece_bytes
from acespec.proto.errors import UnsupportedModel

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Encoder

FINGERPRINT_BYTES = 16
BYTE_LEVEL, BYTE_FALLBACK = "ByteLevel", "ByteFallback"


class Tokenizer:
    """The tokenizer of a model folder: `Tokenizer.load(folder)`."""

    def __init__(
        self,
        encoder: Encoder,
        decoders: set[str],
        merges: Sequence[str],
        eos_ids: tuple[int, ...],
        template: ChatTemplate,
    ) -> None:
        self._encoder = encoder
        self._decoders = decoders
        self._merges = merges
        self._template = template
        self.eos_ids = eos_ids
        """Ids that end a text; the first is the model's principal one."""
        self._bytes_of = byte_level_bytes if BYTE_LEVEL in decoders else sentencepiece_bytes
        self.drops_first_space = BYTE_LEVEL not in decoders and "Strip" in decoders
        """A decoded text loses one leading space, as SentencePiece's decoders have it."""
        self._bytes: dict[int, bytes] = {}

    @classmethod
    def load(cls, folder: Path | str) -> Self:
        """Read `tokenizer.json` and what belongs to it.

        Raises ModelNotFound if the folder has none, IntegrityError if it is no JSON, UnsupportedModel if it is not a
        BPE that covers all bytes.
        """
        folder = Path(folder)
        description = read_json(folder / "tokenizer.json")
        decoders = _kinds(description.get("decoder"))
        if not decoders & {BYTE_LEVEL, BYTE_FALLBACK}:
            raise UnsupportedModel(
                f"{folder}/tokenizer.json is neither byte-level nor with byte fallback, so it cannot spell every text: "
                "choose another model"
            )
        encoder = _read_encoder(folder / "tokenizer.json")
        return cls(encoder, decoders, _merges(description), end_ids(folder, description), _template(folder))

    def encode(self, text: str) -> list[int]:
        """Ids of `text`. Special tokens written in it become their ids; none is added."""
        return self._encoder.encode(text, add_special_tokens=False).ids

    @cached_property
    def prefix_ids(self) -> tuple[int, ...]:
        """Ids that this model expects before a text that no chat template made (Llama's begin token; often none)."""
        return tuple(self._encoder.encode("", add_special_tokens=True).ids)

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        """Text of `ids`; bytes that are no UTF-8 become U+FFFD, ids without a token become nothing."""
        joined = b"".join(self.token_bytes(i) if skip_special else self._all_bytes(i) for i in ids)
        text = joined.decode("utf-8", errors="replace")
        return text[1:] if self.drops_first_space and text.startswith(" ") else text

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes a token stands for; empty for special tokens and for ids without a token."""
        return b"" if self.is_special(token_id) else self._all_bytes(token_id)

    def is_special(self, token_id: int) -> bool:
        """True for control tokens, such as a chat template's marks."""
        added = self._added.get(token_id)
        return added is not None and added[1]

    @cached_property
    def vocab_size(self) -> int:
        """The highest id that has a token, plus one (a model may have more logit rows)."""
        return max(self._encoder.get_vocab(with_added_tokens=True).values(), default=-1) + 1

    @cached_property
    def fingerprint(self) -> bytes:
        """16 bytes that agree exactly if two tokenizers give every id the same meaning and merge alike.

        BLAKE2b over (id, special flag, text) of every token in order of id, then over every merge in order. How the
        file is laid out does not enter.
        """
        digest = hashlib.blake2b(digest_size=FINGERPRINT_BYTES, person=b"acespec-tok-1")
        tokens = {i: (token, False) for token, i in self._encoder.get_vocab(with_added_tokens=False).items()}
        for token_id, (content, special) in sorted((tokens | self._added).items()):
            text = content.encode()
            digest.update(struct.pack("<I?I", token_id, special, len(text)) + text)
        for merge in self._merges:
            text = merge.encode()
            digest.update(struct.pack("<I", len(text)) + text)
        return digest.digest()

    def apply_chat(
        self, messages: Sequence[Mapping[str, str]], *, add_generation_prompt: bool = True, **kwargs: object
    ) -> str:
        """The messages as one text, by the model's chat template; `kwargs` are further template variables.

        Raises UsageError if the model has no template, or if the template refuses the messages.
        """
        return self._template.render(messages, add_generation_prompt=add_generation_prompt, **kwargs)

    def with_template(self, source: str) -> Tokenizer:
        """The same tokenizer with another chat template."""
        template = ChatTemplate(source, self._template.variables)
        return Tokenizer(self._encoder, self._decoders, self._merges, self.eos_ids, template)

    def _all_bytes(self, token_id: int) -> bytes:
        known = self._bytes.get(token_id)
        if known is None:
            known = self._bytes[token_id] = self._spell(token_id)
        return known

    def _spell(self, token_id: int) -> bytes:
        if token_id in self._added:
            return self._added[token_id][0].encode()
        token = self._encoder.id_to_token(token_id) if token_id >= 0 else None
        return b"" if token is None else self._bytes_of(token)

    @cached_property
    def _added(self) -> dict[int, tuple[str, bool]]:
        decoder = self._encoder.get_added_tokens_decoder()
        return {token_id: (token.content, token.special) for token_id, token in decoder.items()}


def _read_encoder(path: Path) -> Encoder:
    from tokenizers import Tokenizer as Encoder

    try:
        encoder = Encoder.from_file(str(path))
    except Exception as fault:
        if type(fault) is not Exception:  # the library raises the bare class, and only that is its own
            raise
        raise UnsupportedModel(f"{path} cannot be read by the tokenizers library ({fault}): fetch it again") from fault
    encoder.no_truncation()
    encoder.no_padding()
    return encoder


def _template(folder: Path) -> ChatTemplate:
    config = read_json_if_any(folder / "tokenizer_config.json")
    tokens = {key: special_token(config, key) for key in ("bos_token", "eos_token", "pad_token", "unk_token")}
    variables = {key: token for key, token in tokens.items() if token is not None}
    beside = folder / "chat_template.jinja"
    source = beside.read_text(encoding="utf-8") if beside.exists() else _default_template(config)
    return ChatTemplate(source, variables)


def _default_template(config: Json) -> str | None:
    """The one template, or that named `default` where a model has several."""
    stated = config.get("chat_template")
    if isinstance(stated, list):
        stated = next((entry.get("template") for entry in stated if entry.get("name") == "default"), None)
    return stated if isinstance(stated, str) else None


def _kinds(decoder: object) -> set[str]:
    """The types of a decoder and of those inside it."""
    if not isinstance(decoder, dict):
        return set()
    inner = (_kinds(part) for part in decoder.get("decoders", ()))
    return {str(decoder.get("type"))}.union(*inner)


def _merges(description: Json) -> list[str]:
    """Merges as `left right`, whichever of the two spellings the file has."""
    model = description.get("model")
    merges = model.get("merges", ()) if isinstance(model, dict) else ()
    return [merge if isinstance(merge, str) else " ".join(merge) for merge in merges]
