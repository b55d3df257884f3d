#!/usr/bin/env python3
"""The interface for C is made from the declarations for C++ as they are, and tests call all of it."""

import importlib.util
import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
spec = importlib.util.spec_from_file_location("c_api", ROOT / "scripts/c_api.py")
c_api = importlib.util.module_from_spec(spec)
spec.loader.exec_module(c_api)


def bare(text: str) -> str:
    """Without what laying out changes: white space, and the slashes of a comment that was broken."""
    return re.sub(r"[\s/]", "", text)


class Interface(unittest.TestCase):
    def test_what_is_committed_was_made_from_these_declarations(self) -> None:
        made = c_api.files()
        self.assertEqual(len(made), 4)
        for path, text in made.items():
            self.assertEqual(bare((ROOT / path).read_text()), bare(text), f"{path}: run `make c-api`")

    def test_each_function_is_called_by_a_test(self) -> None:
        tests = (ROOT / "tests/c/c_calls_test.cpp").read_text()
        declared = []
        for path in (ROOT / "coda/c").glob("*.h"):
            declared += re.findall(r"^(?:static inline |const )?[\w*]+ (coda_\w+)\(", path.read_text(), re.MULTILINE)
        self.assertGreater(len(declared), 80)
        missing = [name for name in declared if not re.search(rf"\b{name}\b", tests)]
        self.assertEqual(missing, [])

    def test_a_declaration_that_it_does_not_understand_is_refused(self) -> None:
        frame = "namespace coda::ops {{\n{}\n}}  // namespace coda::ops\n"
        for text in ("int f(int x);", "struct A {\n  float a;\n  int f() const;\n};"):
            with self.assertRaises(c_api.ParseError):
                c_api.parse(frame.format(text))
        with self.assertRaises(c_api.ParseError):
            c_api.Names({}).of("std::string")


if __name__ == "__main__":
    unittest.main()
