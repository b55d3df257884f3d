#!/usr/bin/env python3
"""Writes the interface for C, coda/c/{ops,layer}.{h,cpp}, from the declarations in coda/ops/{ops,layer}.h; and what
tests of all its calls need to know of it, tests/c/members.h.

A struct of C has the members of the one of C++ in the same order, so that it is copied as it lies in memory; each of the
files for C++ that are written here checks every member's place when it is compiled. Comments are those of C++.
"""

import pathlib
import re
import subprocess
import sys
from dataclasses import dataclass, field

ROOT = pathlib.Path(__file__).resolve().parents[1]
CLANG_FORMAT = ROOT / ".deps/venv/bin/clang-format"
NEVER_FAIL = {"tiles_n", "tiles_m"}  # return their number, not a status

TYPES = {
    "void*": "void*",
    "double": "double",
    "bool": "bool",
    "std::int64_t": "int64_t",
    "std::span<std::byte>": "coda_workspace",
    "Traffic*": "int64_t*",
    "DType": "coda_dtype",
    "Layout": "coda_layout",
    "Matrix": "coda_matrix",
    "ConstMatrix": "coda_const_matrix",
    "Vector": "coda_vector",
    "ConstVector": "coda_const_vector",
}
HEADS = {
    "ops": """\
// The checked calls: one for each program of CODA. Made from coda/ops/ops.h by scripts/c_api.py, with its comments: they
// name the structs of C++ (GemmNorm is coda_gemm_norm_args here), and an Error there is a status other than CODA_OK here,
// with its message in coda_last_error.
//
// `coda_..._defaults()` is a struct whose options are off and whose views are absent. Every argument of a call (shape,
// dtype, pitch, alignment, null, overlap) is checked before anything is computed or written.
""",
    "layer": """\
// A layer of a Transformer as one checked call. Made from coda/ops/layer.h by scripts/c_api.py; see coda/c/ops.h.
// A call adds the bytes of activations that it moves to `*traffic`, if that is no null pointer.
""",
}
MADE = "// Made from coda/ops/{0}.h by scripts/c_api.py.\n"


class ParseError(Exception):
    pass


@dataclass
class Member:
    cpp: str  # type
    name: str
    default: str
    comment: str


@dataclass
class Item:
    """A comment that stands alone, an enumeration, a struct, or a function."""

    kind: str
    comment: list[str]
    name: str = ""
    members: list = field(default_factory=list)  # of Member, of a struct's comments (str), or an enumeration's names
    result: str = ""
    gap: bool = False  # a blank line is ahead of it


def snake(name: str) -> str:
    """QkNorm is one word each in `qknorm`, as in the functions' names."""
    name = name.replace("QkNorm", "Qknorm").replace("LayerNorm", "Layernorm").replace("AdamW", "Adamw")
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def split(text: str) -> list[str]:
    """At the commas outside of braces and parentheses."""
    return [part.strip() for part in re.split(r",(?![^({]*[)}])", text)]


def members_of(line: str) -> list[Member]:
    found = re.fullmatch(r"\s*([\w:<>]+\*?) ([^;()]+);\s*(?://\s*(.*))?", line)
    if not found:
        raise ParseError(f"a member: {line}")
    cpp, declarators, comment = found[1], split(found[2]), found[3] or ""
    members = []
    for declarator in declarators:
        name, _, default = (part.strip() for part in declarator.partition("="))
        members.append(Member(cpp, name, "" if default == "{}" else default, ""))
    members[-1].comment = comment
    return members


def parse(text: str) -> list[Item]:
    lines = text[text.index("namespace coda::ops {") : text.rindex("}  // namespace coda::ops")].splitlines()[1:]
    items, comment, struct, gap = [], [], None, False
    for line in lines:
        bare = line.strip()
        if struct is not None:
            if bare == "};":
                struct = None
            elif bare.startswith("//") or not bare:
                struct.members.append(bare)
            else:
                struct.members.append(members_of(line))
            continue
        if not bare:
            if comment:
                items.append(Item("comment", comment, gap=gap))
            comment, gap = [], True
            continue
        if bare.startswith("//"):
            comment.append(bare)
            continue
        if found := re.fullmatch(r"enum class (\w+) : std::uint8_t \{ (.*) \};", bare):
            items.append(Item("enum", comment, found[1], split(found[2]), gap=gap))
        elif found := re.fullmatch(r"struct (\w+) \{", bare):
            struct = Item("struct", comment, found[1], gap=gap)
            items.append(struct)
        elif found := re.fullmatch(r"(void|std::int64_t) (\w+)\((.*)\);", bare):
            items.append(Item("function", comment, found[2], split(found[3]), found[1], gap))
        elif not bare.startswith("const char* name_of("):
            raise ParseError(f"a declaration: {bare}")
        comment, gap = [], False
    return items


class Names:
    """Of structs in C: those that a call takes end in `_args`."""

    def __init__(self, files: dict[str, list[Item]]) -> None:
        self.types = dict(TYPES)
        self.arguments = {}  # struct of C++: the function that takes it
        everything = [item for items in files.values() for item in items]
        for item in everything:
            if item.kind == "function" and item.result == "void" and len(item.members) == 1:
                self.arguments[item.members[0].removeprefix("const ").removesuffix("& args")] = item.name
        for item in everything:
            if item.kind in ("struct", "enum"):
                function = self.arguments.get(item.name)
                self.types[item.name] = f"coda_{function}_args" if function else f"coda_{snake(item.name)}"

    def of(self, cpp: str) -> str:
        if cpp not in self.types:
            raise ParseError(f"no type of C for {cpp}")
        return self.types[cpp]


def shown_default(member: Member) -> str:
    value = member.default.rpartition("::")[2]
    return "" if value in ("", "0", "nullptr", "false", "cpu", "identity", "swiglu", "nt", "bf16") else value


def struct_of_c(item: Item, names: Names) -> list[str]:
    name = names.of(item.name)
    lines = [*item.comment, f"typedef struct {name} {{"]
    for row in item.members:
        if isinstance(row, str):
            lines.append(row)
            continue
        notes = [row[-1].comment] if row[-1].comment else []
        values = [f"{m.name} {shown_default(m)}" if len(row) > 1 else shown_default(m) for m in row if shown_default(m)]
        notes += [f"{', '.join(values)} by default"] if values else []
        declarators = ", ".join(m.name for m in row)
        lines.append(f"{names.of(row[0].cpp)} {declarators};" + (f"  // {'; '.join(notes)}" if notes else ""))
    return [*lines, f"}} {name};"]


def parameters_of(function: Item, names: Names) -> list[tuple[str, str, str]]:
    """(type of C++, type of C, name), without default values."""
    found = []
    for parameter in function.members:
        cpp, _, name = parameter.partition("=")[0].strip().removeprefix("const ").rpartition(" ")
        pointer = cpp.endswith("&")
        cpp = cpp.removesuffix("&")
        found.append((cpp, f"const {names.of(cpp)}*" if pointer else names.of(cpp), name))
    return found


def function_of_c(item: Item, names: Names) -> str:
    listed = [f"{c} {name}" for _, c, name in parameters_of(item, names)]
    if item.name in NEVER_FAIL:
        return f"int64_t coda_{item.name}({', '.join(listed)})"
    if item.result != "void":
        listed.append("int64_t* result")
    return f"coda_status coda_{item.name}({', '.join(listed)})"


def defaults_of_c(item: Item, names: Names) -> str:
    name = names.of(item.name)
    return f"{name} {name.removesuffix('_args')}_defaults(void)"


def has_defaults(item: Item, names: Names) -> bool:
    return item.kind == "struct" and (item.name in names.arguments or item.name == "LayerShape")


def header(which: str, items: list[Item], names: Names) -> str:
    top = (ROOT / f"coda/ops/{which}.h").read_text().partition("#pragma once")[0].partition("//\n")[2]
    include = "coda/c/core.h" if which == "ops" else "coda/c/ops.h"
    lines = [HEADS[which] + "//", top.rstrip(), "#pragma once", "", f'#include "{include}"', ""]
    lines += ["#ifdef __cplusplus", 'extern "C" {', "#endif"]
    for item in items:
        lines += [""] * item.gap
        if item.kind == "comment":
            lines += item.comment
        elif item.kind == "enum":
            name = names.of(item.name)
            values = ", ".join(f"{name}_{value}".upper() for value in item.members)
            lines += [*item.comment, f"typedef uint8_t {name};", f"enum {{ {values} }};"]
        elif item.kind == "struct":
            lines += struct_of_c(item, names)
            if has_defaults(item, names):
                lines.append(f"{defaults_of_c(item, names)};")
        else:
            lines += [*item.comment, f"{function_of_c(item, names)};"]
    return "\n".join([*lines, "", "#ifdef __cplusplus", "}", "#endif", ""])


def same_places(item: Item, names: Names) -> str:
    c, cpp = names.of(item.name), f"ops::{item.name}"
    members = [m.name for row in item.members if not isinstance(row, str) for m in row]
    checks = [f"sizeof({c}) == sizeof({cpp})"]
    checks += [f"CODA_SAME_PLACE({c}, {cpp}, {m})" for m in members]
    return f"static_assert({' && '.join(checks)});"


def body_of(item: Item, names: Names) -> str:
    """What the function of C does, as statements of C++."""
    operation = f'"{item.name}"'
    if item.result == "void" and item.members[0].endswith("& args"):
        return f"return coda::c::call({operation}, coda::ops::{item.name}, args);"
    passed = []
    for cpp, c, name in parameters_of(item, names):
        if c.endswith("*"):
            passed.append(f'coda::c::from_c<coda::ops::{cpp}>({operation}, "{name}", {name})')
        elif cpp == "Backend":
            passed.append(f"static_cast<coda::ops::Backend>({name})")
        elif cpp in ("Matrix", "ConstVector"):
            passed.append(f"std::bit_cast<coda::{cpp}>({name})")
        else:
            passed.append(name)
    run = f"coda::ops::{item.name}({', '.join(passed)})"
    if item.name in NEVER_FAIL:
        return f"return {run};"
    if item.result == "void":
        return f"return coda::c::guarded({operation}, [&] {{ {run}; }});"
    return f"return coda::c::value({operation}, result, [&] {{ return {run}; }});"


def source(which: str, items: list[Item], names: Names) -> str:
    includes = [f"coda/c/{which}.h", f"coda/ops/{which}.h"]
    lines = [MADE.format(which).rstrip(), f'#include "{includes[0]}"', "", '#include "coda/c/call.h"']
    lines += [f'#include "{includes[1]}"', "", "namespace coda::c {", "namespace {", ""]
    for item in items:
        if item.kind == "enum":
            name = names.of(item.name)
            values = [f"{f'{name}_{v}'.upper()} == static_cast<int>(ops::{item.name}::{v})" for v in item.members]
            lines.append(f"static_assert({' && '.join(values)});")
        elif item.kind == "struct":
            lines.append(same_places(item, names))
    lines += ["", "}  // namespace", "}  // namespace coda::c", "", 'extern "C" {', ""]
    for item in items:
        if has_defaults(item, names):
            run = f"return coda::c::defaults<coda::ops::{item.name}, {names.of(item.name)}>();"
            lines.append(f"{defaults_of_c(item, names)} {{ {run} }}")
        elif item.kind == "function":
            lines.append(f"{function_of_c(item, names)} {{ {body_of(item, names)} }}")
    return "\n".join([*lines, "}", ""])


def members(files: dict[str, list[Item]], names: Names) -> str:
    """A header for tests: for_each_call, and for_each_member of each struct."""
    lines = ["// The calls of the interface for C and the members of its structs. Made by scripts/c_api.py."]
    lines += ["#pragma once", "", '#include "coda/c/coda.h"', "", "namespace coda::test {", ""]
    everything = [item for items in files.values() for item in items]
    lines.append("/// f(operation, what makes its arguments' defaults, the call).")
    lines.append("template <class F> void for_each_call(F&& f) {")
    calls = [item.name for item in everything if item.name in names.arguments.values()]
    lines += [f'f("{name}", coda_{name}_defaults, coda_{name});' for name in calls]
    lines += ["}", "", "/// f(member), in their order."]
    for item in everything:
        if item.kind == "struct":
            listed = ", ".join(f"f(x.{m.name})" for row in item.members if not isinstance(row, str) for m in row)
            lines.append(f"template <class F> void for_each_member({names.of(item.name)}& x, F&& f) {{ {listed}; }}")
    return "\n".join([*lines, "", "}  // namespace coda::test", ""])


def files() -> dict[pathlib.Path, str]:
    """Path in the repository: what it should hold, but for its layout."""
    parsed = {which: parse((ROOT / f"coda/ops/{which}.h").read_text()) for which in ("ops", "layer")}
    names = Names(parsed)
    made = {}
    for which, items in parsed.items():
        made[pathlib.Path(f"coda/c/{which}.h")] = header(which, items, names)
        made[pathlib.Path(f"coda/c/{which}.cpp")] = source(which, items, names)
    made[pathlib.Path("tests/c/members.h")] = members(parsed, names)
    return made


def main() -> int:
    for path, text in files().items():
        laid_out = subprocess.run(
            [CLANG_FORMAT, f"--assume-filename={path}"],
            input=text,
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
        ).stdout
        (ROOT / path).write_text(laid_out)
        print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
