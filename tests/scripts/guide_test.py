#!/usr/bin/env python3
"""What the guides name in backticks or link is there: files and, of CONTRIBUTING.md, names in the sources."""

import fnmatch
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
GUIDES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md"))
FOLDERS = ("coda", "tests", "scripts", "cmake", "python", "examples", "docs", "results")
FILE = re.compile(r"[\w./*-]*\w\.(h|cuh|cu|cpp|py|sh|cmake|md)")
NAME = re.compile(r"[A-Za-z]\w*(_|[a-z][A-Z])\w*(::\w+)*")  # more than a word of English: snake_case, camelCase


def quoted(guide: pathlib.Path) -> list[str]:
    prose = re.sub(r"^```.*?^```", "", guide.read_text(), flags=re.MULTILINE | re.DOTALL)
    return [" ".join(text.split()) for text in re.findall(r"`([^`]+)`", prose)]


def files() -> list[str]:
    """Each path with a slash ahead of it, so that its end can be looked for."""
    return [f"/{path.relative_to(ROOT)}" for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file()]


class Guides(unittest.TestCase):
    def test_each_file_that_a_guide_names_is_there(self) -> None:
        there = files()
        named = {text for guide in GUIDES for text in quoted(guide) if FILE.fullmatch(text)}
        self.assertGreater(len(named), 20)
        self.assertEqual([text for text in named if not fnmatch.filter(there, f"*/{text}")], [])

    def test_each_link_leads_to_a_file(self) -> None:
        linked = {guide.parent / path for guide in GUIDES for path in re.findall(r"\]\(([^:)]+)\)", guide.read_text())}
        self.assertGreater(len(linked), 20)
        self.assertEqual([str(path) for path in linked if not path.exists()], [])

    def test_each_name_of_the_sources_is_there(self) -> None:
        sources = [ROOT / path[1:] for path in files() if re.search(r"^/(coda|tests)/.*\.(h|cuh|cu|cpp)$", path)]
        words = {word for path in sources for word in re.findall(r"\w+", path.read_text())}
        named = {text for text in quoted(ROOT / "CONTRIBUTING.md") if NAME.fullmatch(text)}
        self.assertGreater(len(named), 5)
        self.assertEqual([text for text in named if not words.issuperset(text.split("::"))], [])


if __name__ == "__main__":
    unittest.main()
