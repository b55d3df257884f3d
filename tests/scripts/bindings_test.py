#!/usr/bin/env python3
"""The interfaces for C and for PyTorch are made from the declarations for C++ as they are, and tests call all of them."""

import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import c_api  # noqa: E402
import torch_api  # noqa: E402


def bare(text: str) -> str:
    """Without what laying out changes: white space, the slashes of a comment and the quotes of a string that were
    broken, and a list's last comma."""
    return re.sub(r",(?=[)\]}])", "", re.sub(r"[\s/\"]", "", text))


class Interface(unittest.TestCase):
    def test_what_is_committed_was_made_from_these_declarations(self) -> None:
        made = c_api.files() | torch_api.files()
        self.assertEqual(len(made), 7)
        for path, text in made.items():
            self.assertEqual(bare((ROOT / path).read_text()), bare(text), f"{path}: run `make bindings`")

    def test_each_call_is_an_operator_of_pytorch(self) -> None:
        calls = {name for name, text in re.findall(r"^void (\w+)\((.*)\);", self.declarations(), re.MULTILINE)}
        registered = re.findall(r'm\.impl\("(\w+)"', (ROOT / "coda/torch/ops.cpp").read_text())
        made_by_pytorch = {"rotary_table", "rotary_table_from"}
        self.assertEqual(calls - made_by_pytorch, set(registered))

    def test_the_python_package_has_the_version_of_the_library(self) -> None:
        library = re.search(r"project\(coda VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())
        package = re.search(r'^version = "([\d.]+)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
        self.assertEqual(library[1], package[1])

    def declarations(self) -> str:
        return "".join((ROOT / f"coda/ops/{which}.h").read_text() for which in ("ops", "layer"))

    def test_each_function_is_called_by_a_test(self) -> None:
        tests = "".join((ROOT / "tests/c" / name).read_text() for name in ("c_calls_test.cpp", "members.h"))
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
