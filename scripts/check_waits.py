#!/usr/bin/env python3
"""Fails if a kernel may touch global memory before it has waited for the kernel ahead of it in its stream.

With programmatic dependent launch a kernel begins while the one ahead still writes. The sources read nothing before
griddepcontrol.wait, but loads marked as of constant memory are ones that ptxas may move, and no test would see it but by
luck. So every path through the machine code is followed, from a kernel's first instruction on.

usage: check_waits.py OBJECT...     (objects, archives or binaries; needs the CUDA toolkit's cuobjdump)
"""

import argparse
import re
import shutil
import subprocess
import sys
from typing import Iterable, Iterator, NamedTuple

WAIT = "ACQBULK"  # griddepcontrol.wait
OURS = "_ZN4coda"  # kernels of this namespace are launched to begin early, all of them
MEMORY = re.compile(r"(LD|LDG|LDGSTS|ST|STG|ATOM|ATOMG|RED|REDG|UBLKCP|UBLKRED|UTMALDG|UTMASTG|UTMAREDG)(\.|$)")
FUNCTION = re.compile(r"\s*Function : (\S+)")
INSTRUCTION = re.compile(r"\s*/\*([0-9a-f]{4,})\*/\s+(?:@(!?U?P[0-9T]+)\s+)?(\S+)\s*([^;]*);")
ADDRESS = re.compile(r"\b0x([0-9a-f]+)$")


class Instruction(NamedTuple):
    """One of a kernel: `condition` is its predicate, or empty."""

    address: int
    condition: str
    name: str
    operands: str

    def target(self) -> int:
        """Where it may go to, as its last operand says."""
        found = ADDRESS.search(self.operands.strip())
        if not found:
            raise ValueError(f"no target in `{self.name} {self.operands}` at {self.address:#x}")
        return int(found.group(1), 16)


def kernels(sass: Iterable[str]) -> Iterator[tuple[str, list[Instruction]]]:
    """Name and instructions of each kernel that cuobjdump -sass tells of."""
    name, code = "", []
    for line in sass:
        if found := FUNCTION.match(line):
            if code:
                yield name, code
            name, code = found.group(1), []
        elif found := INSTRUCTION.match(line):
            address, condition, opcode, operands = found.groups()
            code.append(Instruction(int(address, 16), condition or "", opcode, operands.strip()))
    if code:
        yield name, code


def early_accesses(code: list[Instruction]) -> list[Instruction]:
    """Accesses that some path reaches without the wait.

    A walk along these paths alone. Where a barrier joins threads again (BSYNC) is where the last BSSY of it said. A call
    is taken to return without having waited.
    """
    at = {instruction.address: i for i, instruction in enumerate(code)}
    early, seen = set(), set()
    todo: list[tuple[int, tuple]] = [(0, ())]  # where a path is, and the barriers with their joins
    while todo:
        i, joins = todo.pop()
        if (i, joins) in seen or i >= len(code):
            continue
        seen.add((i, joins))
        this = code[i]
        kind = this.name.split(".")[0]
        if kind == WAIT and not this.condition:
            continue
        if MEMORY.match(this.name) and this.condition != "!PT":
            early.add(this)
        # A branch with modifiers, or with more operands than its target, depends on something.
        always = not this.condition and (this.name in ("BRA", "EXIT") or kind == "RET") and "," not in this.operands
        barrier = this.operands.split(",")[0]
        if kind in ("BRA", "CALL") or (kind == "WARPSYNC" and ADDRESS.search(this.operands)):
            todo.append((at[this.target()], joins))
        elif kind == "BSSY":
            joins = tuple(sorted({**dict(joins), barrier: this.target()}.items()))
        elif kind == "BSYNC":
            todo.append((at[dict(joins)[barrier]], joins))
            always = not this.condition
        elif kind in ("BRX", "BRXU", "JMX", "JMXU", "JMP", "BREAK"):
            raise ValueError(f"cannot follow `{this.name}` at {this.address:#x}")
        if not always:
            todo.append((i + 1, joins))
    return sorted(early)


def main() -> int:
    """Checks the objects; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("objects", nargs="+", metavar="OBJECT")
    options = parser.parse_args()
    checked = bad = 0
    if not shutil.which("cuobjdump"):
        print("check_waits: no cuobjdump here: it is part of the CUDA toolkit, and of `make setup`", file=sys.stderr)
        return 1
    for path in options.objects:
        with subprocess.Popen(["cuobjdump", "-sass", path], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for name, code in kernels(process.stdout):
                if not name.startswith(OURS) and not any(instruction.name == WAIT for instruction in code):
                    continue  # CUB's, which are launched behind the end of the kernel ahead
                checked += 1
                if early := early_accesses(code):
                    bad += 1
                    first = early[0]
                    print(
                        f"check_waits: {name}: {len(early)} accesses may come before the wait, such as"
                        f" `{first.name} {first.operands}` at {first.address:#x}",
                        file=sys.stderr,
                    )
        if process.returncode != 0:
            print(f"check_waits: cuobjdump cannot read {path}", file=sys.stderr)
            return 1
    if checked == 0:
        print("check_waits: no kernel here begins early: nothing was checked", file=sys.stderr)
        return 1
    print(f"check_waits: {checked} kernels, {bad} that may touch memory before they have waited")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
