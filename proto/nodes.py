"""Draft nodes as bytes: what the edge guesses, at one flag bit more than the bare token ids for a chain.

Ids are implicit: every node of an epoch consumes the next one on both ends. A message is

    varint   number of nodes
    per node 1                 its parent is the node with the id before (chains go on across messages), or
             0 gamma(1)        its parent is ROOT: it follows the committed base position of the message, or
             0 gamma(d), d > 1 its parent is the node d ids before
             then the token in ceil(log2 V) bits
    zeros    up to the byte

so that every list of nodes has exactly one form.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from acespec.proto.bits import BitReader, BitWriter, read_varint, varint
from acespec.proto.errors import BadFrame

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


def pack(nodes: Sequence[Node], first_id: int, vocab_size: int) -> bytes:
    """The bytes of `nodes`, whose ids are first_id, first_id + 1, ...

    Raises:
        BadFrame: a token is outside the vocabulary, or a parent is not an earlier id.
    """
    width = token_bits(vocab_size)
    out = BitWriter()
    for node_id, node in enumerate(nodes, first_id):
        _check(node, node_id, vocab_size)
        _write_parent(out, node.parent, node_id)
        out.write(node.token, width)
    return varint(len(nodes)) + out.getvalue()


def unpack(data: bytes, first_id: int, vocab_size: int, max_nodes: int) -> list[Node]:
    """The nodes that `pack` was given.

    Raises:
        BadFrame: any bytes that `pack` does not produce for this `first_id` and vocabulary, or more than
            `max_nodes` nodes.
    """
    count, offset = read_varint(data)
    if count > max_nodes:
        raise BadFrame(f"{count} draft nodes in one message, at most {max_nodes} are allowed: send fewer")
    bits = BitReader(data[offset:])
    width = token_bits(vocab_size)
    nodes: list[Node] = []
    for node_id in range(first_id, first_id + count):
        node = Node(parent=_read_parent(bits, node_id), token=bits.read(width))
        _check(node, node_id, vocab_size)
        nodes.append(node)
    bits.finish()
    return nodes


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
