"""Reading what NVIDIA's tools print."""

from __future__ import annotations

import pytest

from acespec.kernels.machine_code import parse, read_cubin
from acespec.proto.errors import UsageError

USAGE = """
Resource usage:
 Common:
  GLOBAL:11 CONSTANT[4]:8
 Function small:
  REG:24 STACK:16 SHARED:1024 LOCAL:8 CONSTANT[0]:656 TEXTURE:0 SURFACE:0 SAMPLER:0
"""

LISTING = """
	.target	sm_90a
//--------------------- .text.small --------------------------
small:
.text.small:
        /*0000*/                   LDC R1, c[0x0][0x28] ;                    /* 0x00000a00ff017b82 */
                                                                             /* 0x000fe20000000800 */
        /*0010*/                   LDGSTS.E.BYPASS.128 [R3], desc[UR4][R6.64] ; /* 0x1122334455667788 */
                                                                             /* 0x000fe20000000801 */
        /*0020*/              @!P0 LDG.E R2, desc[UR4][R2.64] ;              /* 0x1122334455667789 */
                                                                             /* 0x000fe20000000802 */
        /*0030*/             @!UP0 STL.128 [R1], R4 ;                        /* 0x112233445566778a */
                                                                             /* 0x000fe20000000803 */
.L_x_0:
        /*0040*/               @P1 BRA `(.L_x_0) ;                           /* 0x112233445566778b */
                                                                             /* 0x000fe20000000804 */
        /*10050*/                  HGMMA.64x32x16.F32.BF16 R88, gdesc[UR20], RZ, !UPT ; /* 0x112233445566778c */
                                                                             /* 0x000fe20000000805 */
        /*10060*/                  NOP;                                      /* 0x112233445566778d */
                                                                             /* 0x000fc00000000000 */
"""


def test_families_are_counted_without_their_predicates() -> None:
    code = parse(USAGE, LISTING)
    assert code.instructions == {"LDC": 1, "LDGSTS": 1, "LDG": 1, "STL": 1, "BRA": 1, "HGMMA": 1, "NOP": 1}
    assert code.wide == {"LDGSTS": 1, "STL": 1}
    assert (code.total, code.spills, code.count("LDG"), code.count("FFMA")) == (6, 1, 1, 0)


def test_resources_are_read() -> None:
    code = parse(USAGE, LISTING)
    assert (code.registers, code.stack, code.local, code.static_shared) == (24, 16, 8, 1024)


def test_of_several_functions_the_largest_counts() -> None:
    callee = USAGE.replace("REG:24", "REG:40").replace("STACK:16", "STACK:0")
    code = parse(USAGE + callee, LISTING)
    assert (code.registers, code.stack) == (40, 16)


def test_names_and_places_do_not_enter_the_digest() -> None:
    renamed = LISTING.replace("small", "other").replace(".L_x_0", ".L_x_7").replace("/*00", "/*07")
    assert parse(USAGE, renamed).digest == parse(USAGE, LISTING).digest


@pytest.mark.parametrize("word", ["0x00000a00ff017b82", "0x000fe20000000805"])
def test_any_bit_of_an_instruction_enters_the_digest(word: str) -> None:
    changed = LISTING.replace(word, word[:-1] + "f")
    assert parse(USAGE, changed).digest != parse(USAGE, LISTING).digest


def test_an_instruction_cut_in_half_is_refused() -> None:
    with pytest.raises(UsageError, match="another form"):
        parse(USAGE, "\n".join(LISTING.splitlines()[:-1]))


@pytest.mark.parametrize(("usage", "listing"), [("", LISTING), (USAGE, "")])
def test_a_cubin_without_a_kernel_is_refused(usage: str, listing: str) -> None:
    with pytest.raises(UsageError, match="no kernel"):
        parse(usage, listing)


def test_bytes_that_are_no_cubin_are_refused() -> None:
    with pytest.raises(UsageError, match="cannot read this cubin"):
        read_cubin(b"not an ELF file")
