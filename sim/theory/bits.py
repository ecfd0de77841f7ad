"""What a draft token weighs on the wire under each scheme, and what the envelope around it does.

Bits per draft token, derived from the formats that the papers state; `V` is the vocabulary, `K` the tokens named.
"""

from __future__ import annotations

import math

from acespec.proto.nodes import token_bits

QWEN3_VOCAB = 151_936
LLAMA3_VOCAB = 128_256
HALF = 16
"""Bits of a probability in half precision."""
WORD_PAIR = 64
"""Bits of an id and a probability as two words: what DSSD, PicoSpec and AceSpec send."""
TOP_K_PAIRS = (64, 80)
"""Least and most bits of an id and a probability in AceSpec's answer to a rejection."""

GRPC_TLS_BYTES = 20 + 32 + 22 + 9 + 5 + 6
"""Around one message: IP, TCP, TLS, HTTP/2, gRPC, protobuf."""
QUIC_DATAGRAM_BYTES = 55
"""The same as a QUIC datagram, IP and UDP included."""


def distribution_bits(V: int, precision: int = HALF) -> int:
    """V probabilities of `precision` bits, derived: a full distribution up, or DSSD's answer to a rejection
    (arXiv 2507.12000)."""
    return V * precision


def id_and_q_bits(V: int, precision: int = HALF) -> int:
    """One id and its drafter probability, derived: 34 for DSSD (arXiv 2507.12000), PicoSpec (2603.19133) and AceSpec
    (2609.02514) when packed; AsymSpec (2608.04974) takes 34-50 with a `precision` of 16-32."""
    return token_bits(V) + precision


def top_k_bits(V: int, K: int, precision: int = HALF) -> int:
    """K ids with probabilities, derived: TK-SLT (arXiv 2509.04576) and TSLT (2512.16273); exact if the draft is drawn
    from the truncated q."""
    return K * id_and_q_bits(V, precision)


def top_k_reply_bits(K: int, pair_bits: int = WORD_PAIR) -> int:
    """K pairs of an id and a probability, derived: AceSpec's answer to a rejection (arXiv 2609.02514)."""
    return K * pair_bits


def lattice_bits(V: int, steps: int) -> float:
    """log2 C(l+V-1, V-1), derived: a distribution in `steps` l of 1/l (QS: Quantize-Sample-and-Verify, arXiv
    2507.00605); exact, as the draft is drawn from the quantised q."""
    return math.log2(math.comb(steps + V - 1, steps))


def sparse_lattice_bits(V: int, K: int, steps: int) -> float:
    """log2 C(V, K) + log2 C(l+K-1, K-1), derived: which K tokens, and their lattice point (K-SQS: Conformal
    Sparsification, arXiv 2510.09942); exact likewise."""
    return math.log2(math.comb(V, K)) + lattice_bits(K, steps)


def id_bits(V: int) -> int:
    """ceil(log2 V), derived: greedy drafts, and draws with shared noise (arXiv 2408.07978)."""
    return token_bits(V)


def packed_bytes(ids: int, V: int) -> int:
    """Whole bytes that `ids` packed token ids take (definition)."""
    return -(-ids * token_bits(V) // 8)


def message_ms(payload: int, kbps: float, envelope: int = GRPC_TLS_BYTES) -> float:
    """Time on a link of `kbps` of one message of `payload` bytes in an `envelope` of bytes, derived."""
    return (envelope + payload) * 8.0 / kbps


def messages_per_second(payload: int, kbps: float, envelope: int = GRPC_TLS_BYTES) -> float:
    """The most such messages that fit the link, derived."""
    return 1000.0 / message_ms(payload, kbps, envelope)
