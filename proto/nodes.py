"""Draft nodes as bytes: what the edge guesses, at one flag bit more than the bare token ids for a chain.

Ids are implicit: every node of an epoch consumes the next one on both ends. A message is

    varint   number of nodes; with `Codec.GOLOMB` twice that, plus 1 if the tokens are in that code
    per node 1                 its parent is the node with the id before (chains go on across messages), or
             0 gamma(1)        its parent is ROOT: it follows the committed base position of the message, or
             0 gamma(d), d > 1 its parent is the node d ids before
             then the token, in ceil(log2 V) bits or by `golomb.py`
    zeros    up to the byte

so that every list of nodes has exactly one form: of the two ways to write tokens, raw where it is not longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from acespec.proto.bits import BitReader, BitWriter, read_varint, varint
from acespec.proto.errors import BadFrame
from acespec.proto.golomb import Codec, golomb_bits, read_golomb, write_golomb

ROOT = -1
"""The parent of a node that follows the message's committed base position."""


@dataclass(frozen=True, slots=True)
class Node:
    """One guessed token. `parent` is a node id of this epoch, or `ROOT`."""

    parent: int
    token: int


def token_bits(vocab_size: int) -> int:
    """Bits that any token id below `vocab_size` fits in: ceil(log2 V)."""
    return (vocab_size - 1).bit_length()


def pack(nodes: Sequence[Node], first_id: int, vocab_size: int, codec: int = Codec.RAW) -> bytes:
    """The bytes of `nodes`, whose ids are first_id, first_id + 1, ...

    Raises:
        BadFrame: a token is outside the vocabulary, or a parent is not an earlier id.
    """
    width = token_bits(vocab_size)
    short = codec == Codec.GOLOMB and _is_shorter(nodes, width)
    out = BitWriter()
    for node_id, node in enumerate(nodes, first_id):
        _check(node, node_id, vocab_size)
        _write_parent(out, node.parent, node_id)
        if short:
            write_golomb(out, node.token)
        else:
            out.write(node.token, width)
    head = 2 * len(nodes) + short if codec == Codec.GOLOMB else len(nodes)
    return varint(head) + out.getvalue()


def unpack(data: bytes, first_id: int, vocab_size: int, max_nodes: int, codec: int = Codec.RAW) -> list[Node]:
    """The nodes that `pack` was given.

    Raises:
        BadFrame: any bytes that `pack` does not produce for this `first_id`, vocabulary and codec, or more than
            `max_nodes` nodes.
    """
    count, short, offset = _read_head(data, codec)
    if count > max_nodes:
        raise BadFrame(f"{count} draft nodes in one message, at most {max_nodes} are allowed: send fewer")
    bits = BitReader(data[offset:])
    width = token_bits(vocab_size)
    nodes: list[Node] = []
    for node_id in range(first_id, first_id + count):
        node = Node(_read_parent(bits, node_id), read_golomb(bits) if short else bits.read(width))
        _check(node, node_id, vocab_size)
        nodes.append(node)
    bits.finish()
    if codec == Codec.GOLOMB and short != _is_shorter(nodes, width):
        raise BadFrame(f"{count} draft nodes are packed in the longer of two ways: use the shorter one")
    return nodes


def count_nodes(data: bytes, codec: int = Codec.RAW) -> int:
    """How many nodes a message says that it has. Raises BadFrame."""
    return _read_head(data, codec)[0]


def _read_head(data: bytes, codec: int) -> tuple[int, int, int]:
    """(nodes, 1 if their ids are in the shorter code, bytes read)."""
    head, offset = read_varint(data)
    count, short = divmod(head, 2) if codec == Codec.GOLOMB else (head, 0)
    return count, short, offset


def _is_shorter(nodes: Sequence[Node], width: int) -> bool:
    """True if the tokens take fewer bits by `golomb.py` than raw."""
    return golomb_bits(node.token for node in nodes) < width * len(nodes)


def _write_parent(out: BitWriter, parent: int, node_id: int) -> None:
    if parent == node_id - 1 and parent != ROOT:
        out.write(1, 1)
        return
    out.write(0, 1)
    out.write_gamma(1 if parent == ROOT else node_id - parent)


def _read_parent(bits: BitReader, node_id: int) -> int:
    if bits.read(1):
        return _existing(node_id - 1, node_id)
    distance = bits.read_gamma()
    return ROOT if distance == 1 else _existing(node_id - distance, node_id)


def _existing(parent: int, node_id: int) -> int:
    if parent < 0:
        raise BadFrame(f"draft node {node_id} names a parent before the first node of this epoch")
    return parent


def _check(node: Node, node_id: int, vocab_size: int) -> None:
    if not 0 <= node.token < vocab_size:
        raise BadFrame(f"draft node {node_id} has token {node.token}, outside the vocabulary of {vocab_size}")
    if not ROOT <= node.parent < node_id:
        raise BadFrame(f"draft node {node_id} names parent {node.parent}, which is not an earlier node")
