#!/usr/bin/env python3
"""Writes the operators for PyTorch from the declarations in coda/ops/{ops,layer}.h.

coda/torch/ops.cpp registers one operator for each call that computes, over the function of C; python/pycoda/ops.py
has a documented function for each. An operator's arguments are those of the call's struct, with the structs in it laid
flat (`norm.rstd` is `norm_rstd`; `in` is `input`), but for where it runs, its workspace and the count of its traffic.
"""

import re
import subprocess
import sys
from dataclasses import dataclass

from c_api import CLANG_FORMAT, ROOT, Item, Member, parse

RUFF = ROOT / ".deps/venv/bin/ruff"
LEFT_OUT = {"Target", "std::span<std::byte>", "Traffic*"}
ENUMS = {"Layout": ["nt", "nn", "tn"]}
SCALARS = {"double": ("float", "0.0"), "std::int64_t": ("int", "0")}
VIEWS = {"Matrix": True, "Vector": True, "ConstMatrix": False, "ConstVector": False}  # whether it is written
MADE = "Made from coda/ops/*.h by scripts/torch_api.py"


@dataclass
class Argument:
    cpp: str
    path: str  # its member of C's struct, "norm.rstd"
    default: str  # of Python
    comment: str

    @property
    def name(self) -> str:
        return "input" if self.path == "in" else self.path.replace(".", "_")  # `in` is a word of Python's own


class Operators:
    def __init__(self) -> None:
        self.items = [item for which in ("ops", "layer") for item in parse((ROOT / f"coda/ops/{which}.h").read_text())]
        self.structs = {item.name: item for item in self.items if item.kind == "struct"}
        self.enums = ENUMS | {item.name: item.members for item in self.items if item.kind == "enum"}

    def functions(self) -> list[Item]:
        """Those that compute: each takes the struct of its arguments."""
        return [item for item in self.items if item.kind == "function" and self.struct_of(item)]

    def struct_of(self, function: Item) -> Item | None:
        taken = function.members[0].removeprefix("const ").removesuffix("& args")
        return self.structs.get(taken) if function.result == "void" and len(function.members) == 1 else None

    def arguments(self, struct: Item, prefix: str = "") -> list[Argument]:
        flat = []
        for row in struct.members:
            if isinstance(row, str):
                continue
            for member in row:
                path = prefix + member.name
                if member.cpp in LEFT_OUT:
                    continue
                if member.cpp in self.structs:
                    flat += self.arguments(self.structs[member.cpp], path + ".")
                else:
                    flat.append(Argument(member.cpp, path, self.default(member), row[-1].comment))
        return flat

    def default(self, member: Member) -> str:
        if member.cpp in VIEWS:
            return "None"
        if member.cpp in self.enums:
            return f'"{member.default.rpartition("::")[2] or self.enums[member.cpp][0]}"'
        kind, nothing = SCALARS[member.cpp]
        return str(float(member.default)) if kind == "float" and member.default else member.default or nothing


def leading(function: Item, struct: Item) -> str:
    """The tensor that says how large the others are: without one, all would be empty."""
    if function.name == "block_pre_backward":
        return "x"
    return next(m.name for row in struct.members if not isinstance(row, str) for m in row if m.cpp in VIEWS)


def schema(function: Item, arguments: list[Argument], operators: Operators) -> str:
    letters = iter("abcdefghijklmnopqrstuvwxyz")
    listed = []
    for argument in arguments:
        if argument.cpp in VIEWS:
            kind = f"Tensor({next(letters)}!)?" if VIEWS[argument.cpp] else "Tensor?"
        else:
            kind = "str" if argument.cpp in operators.enums else SCALARS[argument.cpp][0]
        listed.append(f"{kind} {argument.name}={argument.default}")
    return f"{function.name}({', '.join(listed)}) -> ()"


def in_lines(text: str, width: int = 100) -> str:
    """String literals of C++, side by side."""
    words, lines = re.split(r"(?<=, )", text), [""]
    for word in words:
        if len(lines[-1]) + len(word) > width:
            lines.append("")
        lines[-1] += word
    return "\n".join('"' + line.replace('"', '\\"') + '"' for line in lines)


def source(operators: Operators) -> str:
    functions = operators.functions()
    used = {a.cpp for f in functions for a in operators.arguments(operators.struct_of(f)) if a.cpp in operators.enums}
    lines = [f"// The operators of PyTorch's dispatcher. {MADE}.", '#include "coda/torch/call.h"']
    lines += ['#include "coda/torch/layer_shape.h"', "", "namespace coda::pytorch {", "namespace {", ""]
    for enum in sorted(used):
        values = ", ".join(f'"{value}"' for value in operators.enums[enum])
        lines.append(f"constexpr const char* k{enum}[] = {{{values}}};")
    for function in functions:
        struct = operators.struct_of(function)
        name = function.name
        lines += ["", f"void {name}(StableIValue* stack, std::uint64_t, std::uint64_t) {{"]
        lines += [f'Call call("{name}", stack);', f"coda_{name}_args args = coda_{name}_defaults();"]
        for argument in operators.arguments(struct):
            names = f", k{argument.cpp}" if argument.cpp in operators.enums else ""
            lines.append(f'call.take("{argument.path}", args.{argument.path}{names});')
        lines.append(f'call.require("{leading(function, struct)}");')
        lines.append("args.on = call.target();")
        if any(m.name == "workspace" for row in struct.members if not isinstance(row, str) for m in row):
            lines.append(f"args.workspace = call.workspace(coda_{name}_workspace_bytes, shape_of(args));")
        lines += [f"call.run(coda_{name}, args);", "}"]
    lines += ["", "}  // namespace", "}  // namespace coda::pytorch", "", "STABLE_TORCH_LIBRARY_FRAGMENT(coda, m) {"]
    for function in functions:
        arguments = operators.arguments(operators.struct_of(function))
        lines.append(f"m.def({in_lines(schema(function, arguments, operators))});")
    lines += ["}", "", "STABLE_TORCH_LIBRARY_IMPL(coda, CompositeExplicitAutograd, m) {"]
    lines += [f'm.impl("{function.name}", &coda::pytorch::{function.name});' for function in functions]
    return "\n".join([*lines, "}", ""])


DOCSTRING = f'''"""One function for each checked call of CODA. {MADE}.

Each writes its result into the tensors that it is given, on their device: on the CPU, or on a Hopper GPU's current
stream. A tensor of two or more dimensions serves as the matrix of all but its last dimension times the last one, if its
rows are dense and lie at one distance from each other; one of any shape as a vector, if it is contiguous. `None` is an
argument that is not given. A wrong argument is a RuntimeError that names it, with what was expected and what came,
before anything is computed. Nothing here is differentiated by autograd, so that a tensor that requires a gradient is
refused unless gradients are off, and one with a tangent of forward mode always: see functional.py.

tiles.py has the numbers of tiles. Comments are those of C++: `norm.rstd` there is `norm_rstd` here, and `in` is `input`.

{{conventions}}
"""
'''


def sentence(comment: list[str]) -> str:
    """The text of a comment of C++."""
    return "\n".join(line.lstrip("/").removeprefix(" ") for line in comment)


def indented(text: str) -> str:
    return "\n".join(f"    {line}" if line else line for line in text.splitlines())


def python_type(argument: Argument, operators: Operators) -> str:
    if argument.cpp in VIEWS:
        return "Out" if VIEWS[argument.cpp] else "In"
    if argument.cpp in operators.enums:
        return "Literal[" + ", ".join(f'"{value}"' for value in operators.enums[argument.cpp]) + "]"
    return SCALARS[argument.cpp][0]


def python(operators: Operators) -> str:
    top = (ROOT / "coda/ops/ops.h").read_text().partition("#pragma once")[0].partition("//\n")[2]
    conventions = sentence(top.rstrip().splitlines())
    lines = [DOCSTRING.format(conventions=conventions), "from typing import Literal", "", "import torch"]
    lines += ["from torch import Tensor", "", "import pycoda._library", "", "In = Tensor | None"]
    lines += ["Out = Tensor | None  # written"]
    functions = operators.functions()
    for function in functions:
        struct = operators.struct_of(function)
        arguments = operators.arguments(struct)
        lines += ["", "", f"def {function.name}(", "*,"]
        for argument in arguments:
            comment = f"  # {argument.comment}" if argument.comment else ""
            lines.append(f"{argument.name}: {python_type(argument, operators)} = {argument.default},{comment}")
        text = sentence(function.comment or struct.comment).replace("\\", "\\\\")
        written = "".join(f"{a.name}, " for a in arguments if VIEWS.get(a.cpp))
        lines += [") -> None:", f'    """\n{indented(text)}\n    """', "    pycoda._library.call("]
        lines += [f"torch.ops.coda.{function.name}.default, (", *[f"{argument.name}," for argument in arguments]]
        lines += [f"), ({written})", "    )"]
    listed = ", ".join(f'"{function.name}"' for function in functions)
    lines += ["", "", f"pycoda._library.complete(({listed}))"]
    return "\n".join([*lines, ""])


def files() -> dict[str, str]:
    """Path in the repository: what it should hold, but for its layout."""
    operators = Operators()
    return {"coda/torch/ops.cpp": source(operators), "python/pycoda/ops.py": python(operators)}


def laid_out(path: str, text: str) -> str:
    command = [CLANG_FORMAT, f"--assume-filename={path}"]
    if path.endswith(".py"):
        command = [RUFF, "format", "-q", f"--stdin-filename={path}", "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True, cwd=ROOT).stdout


def main() -> int:
    for path, text in files().items():
        (ROOT / path).write_text(laid_out(path, text))
        print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
