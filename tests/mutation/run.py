#!/usr/bin/env python3
"""Applies each fault of faults.py to a copy of one file and requires a test to fail. Prints caught/total."""

import argparse
import concurrent.futures
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
import time

from faults import FAULTS

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIMIT_S = 300  # a fault that hangs is caught too
SUPPORT = ("accuracy", "any_call", "expect")  # of tests/support, in every test
TESTS = {path.stem: path for path in (ROOT / "tests").glob("*/*_test.cpp")}


class Build:
    """Compiles and links as the library was."""

    def __init__(self, args: argparse.Namespace, folder: pathlib.Path) -> None:
        self.compiler = shlex.split(args.compiler)
        self.flags = ["-std=c++20", "-O1", "-w", "-fopenmp", *shlex.split(args.flags)]
        self.library = args.library
        self.folder = folder

    def compile(self, source: pathlib.Path, output: pathlib.Path, overlay: pathlib.Path | None = None) -> str:
        """Empty, or what the compiler said."""
        includes = [f"-I{path}" for path in (overlay, ROOT) if path]
        done = subprocess.run(
            [*self.compiler, *self.flags, *includes, "-c", source, "-o", output],
            capture_output=True,
            text=True,
            check=False,
        )
        return "" if done.returncode == 0 else done.stderr

    def link(self, objects: list[pathlib.Path], output: pathlib.Path) -> str:
        libraries = [self.library, "-ldnnl", "-lfmt", "-lgtest", "-lgtest_main", "-lpthread"]
        done = subprocess.run(
            [*self.compiler, "-fopenmp", *objects, *libraries, "-o", output],
            capture_output=True,
            text=True,
            check=False,
        )
        return "" if done.returncode == 0 else done.stderr

    def object(self, name: str) -> pathlib.Path:
        return self.folder / f"{name}.o"


def parts_of(check: str) -> tuple[str, str, dict[str, str]]:
    """Source to compile (or none: the test's own), test, and its environment: `[source] test [NAME=value]`."""
    words = check.split()
    names = [word for word in words if "=" not in word]
    environment = dict(word.split("=", 1) for word in words if "=" in word)
    return "".join(names[:-1]), names[-1], environment


def passes(binary: pathlib.Path, own: dict[str, str]) -> bool:
    environment = {**os.environ, "OMP_WAIT_POLICY": "passive", "GTEST_FAIL_FAST": "1", **own}
    try:
        done = subprocess.run([binary], env=environment, capture_output=True, check=False, timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def mutated(path: str, text: str | tuple[str, int], wrong: str) -> str:
    """The file with one occurrence of the text replaced."""
    source = (ROOT / path).read_text()
    wanted, which = text if isinstance(text, tuple) else (text, 0)
    count = source.count(wanted)
    if count <= which or (not isinstance(text, tuple) and count != 1):
        raise ValueError(f"{path}: expected the text once, or occurrence {which} of it, got {count}: {wanted}")
    parts = source.split(wanted)
    return wanted.join(parts[: which + 1]) + wrong + wanted.join(parts[which + 1 :])


def attempt(build: Build, number: int) -> str:
    """What became of a fault: `caught`, or why not."""
    path, text, wrong, check = FAULTS[number]
    with tempfile.TemporaryDirectory(dir=build.folder) as name:
        overlay = pathlib.Path(name)
        (overlay / path).parent.mkdir(parents=True)
        (overlay / path).write_text(mutated(path, text, wrong))
        source, test, environment = parts_of(check)
        changed = overlay / "changed.o"
        relative = f"coda/{source}" if source else str(TESTS[test].relative_to(ROOT))
        at = overlay / relative if (overlay / relative).exists() else ROOT / relative
        failure = build.compile(at, changed, overlay)
        if failure:
            return "does not compile:\n" + failure[:2000]
        objects = [changed, *map(build.object, SUPPORT)] + ([build.object(test)] if source else [])
        failure = build.link(objects, overlay / "check")
        if failure:
            return "does not link:\n" + failure[:2000]
        return "SURVIVED" if passes(overlay / "check", environment) else "caught"


def texts_are_there(faults: list[tuple[str, str | tuple[str, int], str]]) -> bool:
    """Whether each fault, (path, text, what takes its place), finds its text once; tells those that do not."""
    wrong = 0
    for path, text, other in faults:
        try:
            mutated(path, text, other)
        except (ValueError, OSError) as error:
            wrong += 1
            print(f"mutation: {error}")
    print(f"mutation: {len(faults) - wrong} of {len(faults)} texts are there")
    return wrong == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compiler", default="c++", help="compiler, and what launches it")
    parser.add_argument("--flags", default="-march=native -fno-math-errno -fno-trapping-math -Wno-psabi")
    parser.add_argument("--library", help="libcoda.a without any fault")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", help="faults of files whose path contains this")
    parser.add_argument("--texts", action="store_true", help="only see that each text is there once")
    args = parser.parse_args()
    if args.texts:
        return 0 if texts_are_there([fault[:3] for fault in FAULTS]) else 1
    if not args.library:
        parser.error("--library: expected libcoda.a")
    chosen = [i for i, fault in enumerate(FAULTS) if not args.only or args.only in fault[0]]
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        build = Build(args, pathlib.Path(folder))
        tests = sorted({parts_of(FAULTS[i][3])[1] for i in chosen})
        sources = [TESTS[test] for test in tests] + [ROOT / f"tests/support/{name}.cpp" for name in SUPPORT]
        for source, failure in zip(sources, pool.map(lambda s: build.compile(s, build.object(s.stem)), sources)):
            if failure:
                print(f"mutation: {source}: does not compile without a fault:\n{failure}")
                return 1

        def sound(number: int) -> bool:
            _, test, environment = parts_of(FAULTS[number][3])
            binary = build.folder / f"{test}-{number}"
            linked = not build.link([build.object(test), *map(build.object, SUPPORT)], binary)
            return linked and passes(binary, environment)

        # A test that fails in the environment of a check by itself would catch anything.
        checks = {parts_of(FAULTS[i][3])[1] + str(parts_of(FAULTS[i][3])[2]): i for i in chosen}
        for number, ok in zip(checks.values(), pool.map(sound, checks.values())):
            if not ok:
                print(f"mutation: {FAULTS[number][3]}: expected it to pass without a fault, but it fails")
                return 1
        caught = 0
        for i, result in zip(chosen, pool.map(lambda i: attempt(build, i), chosen)):
            path, text, wrong, check = FAULTS[i]
            caught += result == "caught"
            if result != "caught":
                what = text[0] if isinstance(text, tuple) else text
                print(f"mutation: {path}: {result}\n  - {what}\n  + {wrong}\n  check: {check}", flush=True)
    print(f"mutation: {caught} of {len(chosen)} faults caught in {time.monotonic() - begin:.0f} s")
    return 0 if caught == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
