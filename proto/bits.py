"""Bit-level writing and reading, most significant bit first.

The last byte is filled up with zero bits. The reader is total: reading past the end, or a number that no writer
of ours makes, raises `BadFrame`.
"""

from __future__ import annotations

from acespec.proto.errors import BadFrame

_LONGEST_GAMMA_PREFIX = 32
_LONGEST_VARINT = 5


class BitWriter:
    """Appends numbers of chosen widths and yields whole bytes."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._pending = 0
        self._pending_bits = 0

    def write(self, value: int, width: int) -> None:
        """Append `value` in `width` bits. Raises ValueError if it does not fit."""
        if value < 0 or value >> width:
            raise ValueError(f"{value} does not fit in {width} bits")
        self._pending = (self._pending << width) | value
        self._pending_bits += width
        self._flush_whole_bytes()

    def write_gamma(self, value: int) -> None:
        """Append `value` >= 1 in Elias' gamma code: its length in zeros, then its binary digits (Elias, 1975)."""
        if value < 1:
            raise ValueError(f"the gamma code starts at 1, got {value}")
        self.write(value, 2 * value.bit_length() - 1)

    def getvalue(self) -> bytes:
        """All bits written so far, the last byte filled up with zeros."""
        if self._pending_bits == 0:
            return bytes(self._bytes)
        return bytes(self._bytes) + bytes([self._pending << (8 - self._pending_bits)])

    def _flush_whole_bytes(self) -> None:
        rest = self._pending_bits % 8
        if self._pending_bits >= 8:
            self._bytes += (self._pending >> rest).to_bytes(self._pending_bits // 8, "big")
            self._pending &= (1 << rest) - 1
            self._pending_bits = rest


class BitReader:
    """Reads what `BitWriter` wrote."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._bit = 0

    @property
    def bits_left(self) -> int:
        """Bits not read yet, padding included."""
        return 8 * len(self._data) - self._bit

    def read(self, width: int) -> int:
        """The next `width` bits as a number. Raises BadFrame beyond the end."""
        if width > self.bits_left:
            raise BadFrame(f"{self.bits_left} bits left where {width} are needed: the bytes are cut short")
        value = self._peek(width)
        self._bit += width
        return value

    def read_gamma(self) -> int:
        """The next number in Elias' gamma code, 1 .. 2^32. Raises BadFrame on longer ones and beyond the end."""
        ahead = min(_LONGEST_GAMMA_PREFIX + 1, self.bits_left)
        number = self._peek(ahead)
        if number == 0 and ahead > _LONGEST_GAMMA_PREFIX:
            raise BadFrame(f"a gamma code starts with more than {_LONGEST_GAMMA_PREFIX} zeros")
        return self.read(2 * (ahead - number.bit_length()) + 1)

    def finish(self) -> None:
        """Check that only the zero padding of the last byte is left. Raises BadFrame otherwise."""
        left = self.bits_left
        if left >= 8 or self.read(left):
            raise BadFrame("the bytes go on after the last item: wrong length or padding that is not zero")

    def _peek(self, width: int) -> int:
        """The next `width` bits, all of which are there, as a number."""
        first, end = self._bit, self._bit + width
        window = int.from_bytes(self._data[first // 8 : (end + 7) // 8], "big")
        return (window >> (-end % 8)) & ((1 << width) - 1)


def varint(value: int) -> bytes:
    """`value` < 2^32 in 7-bit groups, lowest first, as in Protocol Buffers."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_varint(data: bytes, offset: int = 0) -> tuple[int, int]:
    """(value, offset behind it). Raises BadFrame if it is cut short, needlessly long or not below 2^32."""
    value = 0
    for index, byte in enumerate(data[offset : offset + _LONGEST_VARINT]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if value >> 32 or (byte == 0 and index > 0):
                break
            return value, offset + index + 1
    raise BadFrame("a varint is cut short, longer than needed or not below 2^32")
