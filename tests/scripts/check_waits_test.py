#!/usr/bin/env python3
"""What check_waits.py makes of machine code: which paths lead to memory without the wait."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import check_waits


def early(*instructions: str) -> list[str]:
    """The accesses told of a kernel of these, 16 bytes each, as cuobjdump prints it."""
    lines = ["\t\tFunction : kernel\n", '\t.headerflags\t@"EF_CUDA_SM90"\n']
    for i, text in enumerate(instructions):
        lines.append(f"        /*{16 * i:04x}*/                   {text} ;          /* 0x00000a00ff017b82 */\n")
        lines.append("                                                            /* 0x000fe20000000800 */\n")
    ((name, code),) = check_waits.kernels(lines)
    assert name == "kernel" and len(code) == len(instructions)
    return [f"{x.name} at {x.address:#x}" for x in check_waits.early_accesses(code)]


class CheckWaits(unittest.TestCase):
    def test_memory_behind_the_wait_is_right(self) -> None:
        self.assertEqual(early("PREEXIT", "LDC R1, c[0x0][0x28]", "ACQBULK", "LDG.E R2, desc[UR4][R2.64]", "EXIT"), [])

    def test_any_access_ahead_of_it_is_told(self) -> None:
        for access in (
            "LDG.E.64.CONSTANT R10, desc[UR32][R94.64]",
            "STG.E desc[UR4][R2.64], R5",
            "LD.E.64 R2, desc[UR4][R2.64]",
            "UTMALDG.2D [UR8], [UR6], desc[UR4]",
            "RED.E.ADD.STRONG.GPU desc[UR4][R2.64], R5",
        ):
            told = early("NOP", access, "ACQBULK", "EXIT")
            self.assertEqual(told, [f"{access.split()[0]} at 0x10"])
            self.assertEqual(early("NOP", f"@P0 {access}", "ACQBULK", "EXIT"), told)
            self.assertEqual(early("NOP", f"@!PT {access}", "ACQBULK", "EXIT"), [])

    def test_shared_memory_and_prefetches_of_tensor_maps_may_come_first(self) -> None:
        self.assertEqual(early("LDS R1, [R2]", "STS [R2], R1", "UTMACCTL.PF [UR4]", "ACQBULK", "EXIT"), [])

    def test_a_branch_around_the_wait_is_followed(self) -> None:
        code = ["@P0 BRA 0x20", "ACQBULK", "LDG.E R2, desc[UR4][R2.64]", "EXIT"]
        self.assertEqual(early(*code), ["LDG.E at 0x20"])
        self.assertEqual(early("BRA 0x20", *code[1:]), ["LDG.E at 0x20"])
        self.assertEqual(early("BRA 0x10", *code[1:]), [])
        self.assertEqual(early("BRA.DIV UR4, 0x20", *code[1:]), ["LDG.E at 0x20"])
        self.assertEqual(early("BRA.U UP0, 0x20", *code[1:]), ["LDG.E at 0x20"])
        self.assertEqual(early("CALL.REL.NOINC 0x20", *code[1:]), ["LDG.E at 0x20"])

    def test_a_path_that_ends_reads_nothing(self) -> None:
        access = "LDG.E R2, desc[UR4][R2.64]"
        self.assertEqual(early("EXIT", access, "ACQBULK", "EXIT"), [])
        self.assertEqual(early("@P0 EXIT", access, "ACQBULK", "EXIT"), ["LDG.E at 0x10"])

    def test_a_wait_under_a_condition_is_none(self) -> None:
        self.assertEqual(early("@P0 ACQBULK", "LDG.E R2, desc[UR4][R2.64]", "EXIT"), ["LDG.E at 0x10"])

    def test_threads_join_where_the_last_barrier_of_that_name_said(self) -> None:
        access = "LDG.E R2, desc[UR4][R2.64]"
        code = ["BSSY B0, 0x40", "@P0 BRA 0x30", "ACQBULK", "BSYNC B0", access, "EXIT"]
        self.assertEqual(early(*code), ["LDG.E at 0x40"])
        # Another region with the same barrier, behind the wait: the first one joins at 0x30, not there.
        code = ["BSSY B0, 0x30", "NOP", "BSYNC B0", "ACQBULK", "BSSY B0, 0x60", "BSYNC B0", access, "EXIT"]
        self.assertEqual(early(*code), [])

    def test_what_cannot_be_followed_is_an_error(self) -> None:
        for jump in ("BRX R2 -0x10", "JMP 0x20", "BRA R2"):
            with self.assertRaises(ValueError):
                early(jump, "ACQBULK", "EXIT")


if __name__ == "__main__":
    unittest.main()
