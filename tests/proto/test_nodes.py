"""Draft nodes and the bit codes under them: exact sizes, one form each, total decoders."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from acespec.proto.bits import BitReader, BitWriter, read_varint, varint
from acespec.proto.errors import BadFrame
from acespec.proto.golomb import Codec, golomb_bits
from acespec.proto.nodes import ROOT, Node, pack, token_bits, unpack

VOCABULARIES = st.sampled_from([1, 2, 3, 256, 49_152, 65_536, 151_936])
CODECS = st.sampled_from(Codec)


@st.composite
def messages(draw: st.DrawFn) -> tuple[list[Node], int, int]:
    vocab_size, first_id = draw(VOCABULARIES), draw(st.integers(0, 300))
    nodes = []
    for node_id in range(first_id, first_id + draw(st.integers(0, 20))):
        parent = draw(st.one_of(st.just(max(ROOT, node_id - 1)), st.integers(ROOT, node_id - 1)))
        top = draw(st.sampled_from([vocab_size, min(vocab_size, 2000)]))
        nodes.append(Node(parent, draw(st.integers(0, top - 1))))
    return nodes, first_id, vocab_size


def chain(length: int, first_id: int) -> list[Node]:
    return [Node(first_id + i - 1, 7 * i) for i in range(length)]


@given(messages(), CODECS)
def test_roundtrip(message: tuple[list[Node], int, int], codec: Codec) -> None:
    nodes, first_id, vocab_size = message
    data = pack(nodes, first_id, vocab_size, codec)
    assert unpack(data, first_id, vocab_size, len(nodes), codec) == nodes


@given(data=st.binary(max_size=40), first_id=st.integers(0, 20), vocab_size=VOCABULARIES, codec=CODECS)
@example(data=b"\xff\xff\xff\xff\x0f" + bytes(30), first_id=0, vocab_size=2, codec=Codec.RAW)
@example(data=b"\x01" + bytes(30), first_id=0, vocab_size=2, codec=Codec.RAW)
@example(data=b"\x03" + bytes(30), first_id=0, vocab_size=151_936, codec=Codec.GOLOMB)
@example(data=b"\x03\x60\x00", first_id=0, vocab_size=151_936, codec=Codec.GOLOMB)
def test_any_bytes_are_the_one_form_of_their_nodes_or_a_bad_frame(
    data: bytes, first_id: int, vocab_size: int, codec: Codec
) -> None:
    try:
        nodes = unpack(data, first_id, vocab_size, 64, codec)
    except BadFrame:
        return
    assert pack(nodes, first_id, vocab_size, codec) == data


@given(messages())
def test_short_codes_are_never_longer_than_raw_ones_but_for_the_count(message: tuple[list[Node], int, int]) -> None:
    nodes, first_id, vocab_size = message
    raw, short = (pack(nodes, first_id, vocab_size, codec) for codec in Codec)
    assert len(short) - len(varint(2 * len(nodes))) <= len(raw) - len(varint(len(nodes)))


def test_short_codes_of_a_chain() -> None:
    # root: 0 1; child of it: 1. 5 = 0 * 512 + 5: gamma 1, nine bits; 1030 = 2 * 512 + 6: gamma 011, nine bits.
    bits = "01" + "1" + f"{5:09b}" + "1" + "011" + f"{6:09b}" + "0" * 7
    nodes = [Node(ROOT, 5), Node(0, 1030)]
    assert pack(nodes, 0, 151_936, Codec.GOLOMB) == bytes([2 * 2 + 1]) + int(bits, 2).to_bytes(len(bits) // 8, "big")
    assert golomb_bits([5, 1030, 0, 511, 512, 151_935]) == 10 + 12 + 10 + 10 + 12 + 26


def test_rare_tokens_go_raw() -> None:
    nodes = [Node(ROOT, 151_935), Node(0, 150_000)]
    data = pack(nodes, 0, 151_936, Codec.GOLOMB)
    assert data == bytes([2 * 2]) + pack(nodes, 0, 151_936)[1:]
    assert unpack(data, 0, 151_936, 2, Codec.GOLOMB) == nodes


def test_the_longer_of_two_ways_is_refused() -> None:
    raw = bytes([2]) + pack([Node(ROOT, 5)], 0, 151_936)[1:]
    with pytest.raises(BadFrame, match="longer of two ways"):
        unpack(raw, 0, 151_936, 1, Codec.GOLOMB)


def test_a_short_code_beyond_the_vocabulary_is_refused() -> None:
    data = pack([Node(ROOT, 700)], 0, 151_936, Codec.GOLOMB)
    with pytest.raises(BadFrame, match="token 700, outside the vocabulary of 600"):
        unpack(data, 0, 600, 1, Codec.GOLOMB)


def test_too_many_nodes_are_refused_before_they_are_read() -> None:
    with pytest.raises(BadFrame, match="1073741823 draft nodes"):
        unpack(b"\xff\xff\xff\xff\x07", 0, 151_936, 64, Codec.GOLOMB)


def test_a_chain_costs_one_flag_bit_a_node() -> None:
    assert token_bits(49_152) == 16
    assert len(pack(chain(8, first_id=5), 5, 49_152)) == 1 + 8 * 17 // 8
    assert len(pack(chain(8, first_id=0), 0, 49_152)) == 1 + (8 * 17 + 1 + 7) // 8  # the first one's parent is ROOT


def test_known_bytes() -> None:
    nodes = [Node(ROOT, 5), Node(0, 6), Node(0, 7), Node(ROOT, 1)]
    # root: 0 1; child of 0: 1; two back: 0 010; root: 0 1; tokens in three bits each
    bits = "01101" + "1110" + "0010111" + "01001" + "000"
    assert pack(nodes, 0, 8) == bytes([4]) + int(bits, 2).to_bytes(len(bits) // 8, "big")


def test_a_message_may_go_on_with_the_last_one_s_chain_but_not_before_any() -> None:
    data = pack([Node(4, 1)], 5, 256)
    assert unpack(data, 5, 256, 1) == [Node(4, 1)]
    with pytest.raises(BadFrame, match="before the first node"):
        unpack(data, 0, 256, 1)


@pytest.mark.parametrize(
    ("data", "first_id", "reason"),
    [
        (b"", 0, "varint"),
        (b"\x80", 0, "varint"),
        (b"\x80\x00", 0, "varint"),
        (b"\x03" + bytes(9), 0, "at most 2"),
        (b"\x01", 0, "cut short"),
        (pack([Node(ROOT, 5)], 0, 300)[:-1], 0, "cut short"),
        (pack([Node(ROOT, 5)], 0, 300) + b"\x00", 0, "go on"),
        (b"\x00\x00", 0, "go on"),
        (b"\x01\x7f\xe0", 0, "outside the vocabulary"),
        (b"\x01\x40\x01", 0, "not zero"),
        (b"\x01\x26\x00", 1, "before the first node"),
    ],
)
def test_what_is_wrong_is_said(data: bytes, first_id: int, reason: str) -> None:
    with pytest.raises(BadFrame, match=reason):
        unpack(data, first_id, 300, max_nodes=2)


@pytest.mark.parametrize("node", [Node(ROOT, 300), Node(ROOT, -1), Node(5, 0), Node(9, 0), Node(-2, 0)])
def test_bad_nodes_are_not_packed(node: Node) -> None:
    with pytest.raises(BadFrame, match="draft node 5"):
        pack([node], 5, 300)


@given(st.lists(st.tuples(st.integers(1, 2**32 - 1), st.integers(0, 40))))
def test_bits_and_gamma_codes_roundtrip(items: list[tuple[int, int]]) -> None:
    out = BitWriter()
    for value, extra in items:
        out.write_gamma(value)
        out.write(value, value.bit_length() + extra)
    bits = BitReader(out.getvalue())
    for value, extra in items:
        assert bits.read_gamma() == value
        assert bits.read(value.bit_length() + extra) == value
    bits.finish()


def test_an_endless_gamma_code_is_refused() -> None:
    with pytest.raises(BadFrame, match="zeros"):
        BitReader(bytes(1000)).read_gamma()


@pytest.mark.parametrize(("value", "width"), [(4, 2), (-1, 8), (1, 0)])
def test_numbers_that_do_not_fit_are_not_written(value: int, width: int) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        BitWriter().write(value, width)


@given(st.integers(0, 2**32 - 1), st.binary(max_size=3))
def test_varints_roundtrip(value: int, behind: bytes) -> None:
    data = varint(value)
    assert read_varint(data + behind) == (value, len(data))


@pytest.mark.parametrize("data", [b"", b"\xff", b"\x81\x00", b"\xff\xff\xff\xff\x10", b"\xff\xff\xff\xff\xff\x01"])
def test_bad_varints_are_refused(data: bytes) -> None:
    with pytest.raises(BadFrame):
        read_varint(data)
