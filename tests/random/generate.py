#!/usr/bin/env python3
"""Writes programs that nobody would write, of ports and operations at random.

    generate.py COUNT SEED FOLDER     random_programs.h, and random_<number>.cu for each, which compiles it for Hopper

Values stay integers of at most 30 (but for means of heads), so that fp32 holds every step exactly whatever its order,
and any backend must give the same numbers to the last bit.
"""

import pathlib
import random
import sys

SAME, HALF, DOUBLE = "Same", "Half", "Double"
WIDER = {HALF: SAME, SAME: DOUBLE}
NARROWER = {SAME: HALF, DOUBLE: SAME}
OPS = ("Sum", "Max", "AbsMax")

HEADER = """// Made by tests/random/generate.py {count} {seed}.
#pragma once

#include "coda/epilogue/tile.h"
#include "tests/random/functions.h"

namespace coda::test::random_programs {{

{programs}

}}  // namespace coda::test::random_programs

#define CODA_FOR_RANDOM_PROGRAMS(X) {all}
"""
ON_HOPPER = """#include "random_programs.h"
#include "tests/random/on_hopper.cuh"

CODA_RANDOM_ON_HOPPER(coda::test::random_programs::Random{number})
"""


class Program:
    def __init__(self, rng: random.Random, number: int) -> None:
        self.rng, self.number = rng, number
        self.members: list[str] = []
        self.lines: list[str] = []
        self.first: list[str] = []
        self.values = [("acc", SAME)]
        self.unused = ["acc"]
        self.lse = False

    def name(self, member: str) -> str:
        name = f"p{len(self.members)}"
        self.members.append(f"{member} {name} = {{}};")
        return name

    def value(self, expression: str, width: str) -> None:
        name = f"v{len(self.values)}"
        self.lines.append(f"auto {name} = {expression};")
        self.values.append((name, width))
        self.unused.append(name)

    def pick(self, *widths: str) -> tuple[str, str] | None:
        fitting = [value for value in self.values if not widths or value[1] in widths]
        if not fitting:
            return None
        # The latest are more likely, so that programs are deep.
        found = fitting[-1 - int(self.rng.random() ** 2 * len(fitting))]
        self.unused = [name for name in self.unused if name != found[0]]
        return found

    def element(self) -> str:
        return self.rng.choice(("T", "A"))

    # ---- steps

    def load(self) -> None:
        width = self.rng.choice((SAME, SAME, HALF, DOUBLE))
        kind = self.rng.randrange(8)
        if kind <= 2:
            port = self.name(f"TileLoad<{self.element()}, Width::{width}>")
        elif kind == 3:
            port = self.name(f"RowVector<const {self.element()}, Width::{width}>")
        else:
            width = SAME
            port = self.name(
                {
                    4: f"ColVector<const {self.element()}>",
                    5: "GatherLoad<T>",
                    6: "OneHot",
                    7: f"RowVector<const {self.element()}>",
                }[kind]
            )
        self.value(f"tile.load({port})", width)

    def load_heads(self) -> None:
        port = self.name(self.rng.choice(("RotaryTable<A>", "HeadVector<T>")))
        self.value(f"tile.load({port})", SAME)

    def binary(self) -> None:
        a, width = self.pick()
        b, _ = self.pick(width)
        self.value(f"map(Clamp{{}}, {a} {self.rng.choice('+-*')} {b})", width)

    def unary(self) -> None:
        a, width = self.pick()
        self.value(
            self.rng.choice(
                (f"map(Relu{{}}, {a})", f"map(Magnitude{{}}, {a})", f"-{a}", f"map(Clamp{{}}, {a} * 2 - 3)")
            ),
            width,
        )

    def narrow(self) -> None:
        if found := self.pick(SAME, DOUBLE):
            a, width = found
            function = self.rng.choice(("Difference", "Product", "Gate"))
            self.value(f"contract({a}, {function}{{}})", NARROWER[width])

    def widen(self) -> None:
        if found := self.pick(HALF, SAME):
            a, width = found
            self.value(f"expand({a}, Mirror{{}})", WIDER[width])

    def turn(self) -> None:
        a, width = self.pick(SAME, DOUBLE)
        b, _ = self.pick(width)
        self.value(f"pairwise({a}, {b}, Turn{{}})", width)

    def derive(self) -> None:
        dy, width = self.pick()
        paired = width in WIDER and self.rng.random() < 0.6
        z = self.pick(WIDER[width] if paired else width)
        if not z:
            self.unused.append(dy)
            return
        name = f"r{len(self.values)}"
        self.lines.append(f"auto {name} = backward({'Gate' if paired else 'Relu'}{{}}, {z[0]}, {dy});")
        self.value(f"map(Clamp{{}}, {name}.dz)", z[1])
        self.value(f"{name}.out", width)

    # ---- outputs

    def store(self, *widths: str) -> None:
        kind = self.rng.randrange(6) if not widths else 0
        a, width = self.pick(*(widths or ((SAME,) if kind == 4 else ())))
        if kind < 4:
            port = self.name(f"TileStore<{self.element()}, Width::{width}>")
        elif kind == 4:
            port = self.name(f"ColVector<{self.element()}>")
        else:
            port = self.name(f"RowVector<{self.element()}, Width::{width}>")
        self.lines.append(f"tile.store({port}, {a});")

    def reduce(self) -> None:
        kind = self.rng.randrange(7)
        a, _ = self.pick(*((SAME,) if kind in (2, 3, 6) else ()))
        if kind <= 1:
            member = f"ReduceN<{self.rng.choice(OPS)}, A>"
        elif kind <= 3:
            member = f"ReduceM<{self.rng.choice(OPS)}, A>"
        elif kind == 4 or (kind == 5 and self.lse):
            member = "MomentsN<A>"
        elif kind == 5:
            member, self.lse = "OnlineLse<A>", True
        else:
            member = "TargetSelect<A>"
        self.lines.append(f"tile.reduce({self.name(member)}, {a});")

    def store_the_rest(self) -> None:
        """Each value ends in an output: those of one width that none has yet, in one."""
        for width in (SAME, HALF, DOUBLE):
            rest = [name for name, of in self.values if name in self.unused and of == width]
            if rest:
                port = self.name(f"TileStore<{self.element()}, Width::{width}>")
                self.lines.append(f"tile.store({port}, map(Clamp{{}}, {' + '.join(rest)}));")

    def means(self) -> None:
        for slot in range(self.rng.choice((1, 1, 2))):
            port = self.name(f"HeadMean<A, {slot}>")
            self.first.append(f"tile.reduce({port}, map(Clamp{{}}, acc * {slot + 1}));")
            self.value(f"tile.load({port})", SAME)

    def text(self) -> str:
        if self.rng.random() < 0.3:
            self.means()
        if self.rng.random() < 0.3:
            self.load_heads()
        steps = (
            self.load,
            self.load,
            self.binary,
            self.binary,
            self.unary,
            self.narrow,
            self.widen,
            self.turn,
            self.derive,
        )
        for _ in range(self.rng.randint(3, 8)):
            self.rng.choice(steps)()
            if len(self.members) < 8 and self.rng.random() < 0.4:
                self.rng.choice((self.store, self.reduce))()
        if self.rng.random() < 0.85:  # a kernel of one's own needs it
            self.store(SAME, DOUBLE)
        self.reduce() if self.rng.random() < 0.7 else self.store()
        self.store_the_rest()
        members = self.members
        at = self.rng.randint(0, max(0, len(members) - 2))
        text = [f"template <class T, class A>\nstruct Random{self.number} {{"]
        body = "\n    ".join(self.lines)
        first = "\n    ".join(self.first)
        # A struct has at most twelve members; some are in one of their own before that.
        if len(members) > 4 and self.rng.random() < 0.6 or len(members) > 12:
            group = members[at : at + 5]
            inner = "\n    ".join(group)
            rest = members[:at] + [f"struct {{\n    {inner}\n  }} group = {{}};"] + members[at + 5 :]
            for member in group:
                port = member.split(" = ")[0].split()[-1]
                for pattern in ("(%s)", "(%s,"):
                    body = body.replace(pattern % port, pattern % f"group.{port}")
                    first = first.replace(pattern % port, pattern % f"group.{port}")
            members = rest
        text += [f"  {member}" for member in members]
        if first:
            text.append(
                f"\n  template <class Tile>\n  CODA_FN void first(Tile& tile, auto acc) const {{\n    {first}\n  }}"
            )
        text.append(
            f"\n  template <class Tile>\n  CODA_FN void operator()(Tile& tile, auto acc) const {{\n    {body}\n  }}\n}};"
        )
        return "\n".join(text)


def write(path: pathlib.Path, text: str) -> None:
    """Without a new date where nothing is new: a build would begin anew."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def main() -> None:
    count, seed, folder = int(sys.argv[1]), int(sys.argv[2]), pathlib.Path(sys.argv[3])
    folder.mkdir(parents=True, exist_ok=True)
    programs = [Program(random.Random(seed * 1000 + number), number).text() for number in range(count)]
    everyone = " ".join(f"X(Random{number})" for number in range(count))
    header = HEADER.format(count=count, seed=seed, programs="\n\n".join(programs), all=everyone)
    write(folder / "random_programs.h", header)
    for number in range(count):
        write(folder / f"random_{number}.cu", ON_HOPPER.format(number=number))


if __name__ == "__main__":
    main()
