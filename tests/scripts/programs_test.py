#!/usr/bin/env python3
"""A program is at most 25 lines: if one needs more, a port or a primitive is missing."""

import pathlib
import re
import unittest

PROGRAMS = pathlib.Path(__file__).resolve().parents[2] / "coda/programs"
MOST = 25


def structs(text: str) -> dict[str, int]:
    """Lines of each struct that is none of another's, without empty ones."""
    lengths, name = {}, None
    for line in filter(None, text.splitlines()):
        if found := re.match(r"struct (\w+)\b.*\{$", line):
            name = found[1]
            lengths[name] = 0
        if name:
            lengths[name] += 1
        if line == "};":
            name = None
    return lengths


class Programs(unittest.TestCase):
    def test_a_program_is_short(self) -> None:
        found = {name: n for path in PROGRAMS.glob("*.h") for name, n in structs(path.read_text()).items()}
        self.assertGreaterEqual(len(found), 20, found)
        self.assertEqual({name: lines for name, lines in found.items() if lines > MOST}, {})


if __name__ == "__main__":
    unittest.main()
