#!/usr/bin/env python3
"""Applies each fault of faults_sm90.py to a copy of one file of the Hopper backend and requires a test to fail on this
machine's GPU. Prints caught/total.

A fault is compiled into one program of one source (see UNITS), in the reduced configuration, and linked in front of the
library of the preset `cuda`, which is built first: the rest comes from there. A test that hangs or crashes has caught
the fault too.
"""

import argparse
import concurrent.futures
import os
import pathlib
import resource
import shlex
import subprocess
import sys
import tempfile
import threading
import time

from faults_sm90 import FAULTS, UNITS
from run import mutated, texts_are_there

ROOT = pathlib.Path(__file__).resolve().parents[2]
BACKEND = "coda/backend/sm90"
LIMIT_S = 60  # of one test
ON_DEVICE = 6  # tests at a time: what is left of the processors compiles


class Failure(Exception):
    """What a compiler, or a test that should pass, said."""


class Build:
    """Compiles and links as the preset did, by the commands that it left."""

    def __init__(self, folder: pathlib.Path, tests: list[str], scratch: pathlib.Path) -> None:
        self.folder = folder
        self.scratch = scratch
        listed = subprocess.run(
            ["ninja", "-C", folder, "-t", "commands", *tests], capture_output=True, text=True, check=True
        ).stdout.splitlines()
        self.compilers = {}  # source: words of its command
        self.links = {}  # test: words of its command
        for words in map(shlex.split, listed):
            if "-c" in words:
                self.compilers[words[words.index("-c") + 1]] = words
            for test in tests:
                if words[-2:] != ["&&", ":"] or f"tests/{test}" not in words:
                    continue
                self.links[test] = words[words.index("&&") + 1 : -2]

    def compile(self, source: str, overlay: pathlib.Path, output: pathlib.Path) -> None:
        """`source` is relative to the repository; files of the overlay come before those of the repository."""
        words = self.compilers[str(ROOT / source)]
        compiler = next(i for i, word in enumerate(words) if pathlib.Path(word).name in ("nvcc", "c++", "g++"))
        words = words[compiler:]
        for flag, count in (("-MD", 1), ("-MT", 2), ("-MF", 2), ("-o", 2), ("-c", 2)):
            at = words.index(flag)
            del words[at : at + count]
        words = [word for word in words if word not in ("-Xptxas=-v", "-Xcompiler=-Werror", "-Werror")]
        changed = overlay / source if (overlay / source).exists() else ROOT / source
        flags = ["-w", "-DCODA_SM90_REDUCED", f"-I{overlay}"]
        self.run([words[0], *flags, *words[1:], "-c", str(changed), "-o", str(output)])

    def link(self, test: str, changed: pathlib.Path, output: pathlib.Path) -> None:
        words = list(self.links[test])
        words[words.index("-o") + 1] = str(output)
        # In front of all others: of a function that is there twice, the first is taken.
        first = next(i for i, word in enumerate(words) if word.endswith(".o"))
        self.run([*words[:first], str(changed), *words[first:]])

    def run(self, words: list[str]) -> None:
        done = subprocess.run(words, cwd=self.folder, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Failure(done.stderr[-3000:])


def write(overlay: pathlib.Path, path: str, text: str) -> None:
    (overlay / path).parent.mkdir(parents=True, exist_ok=True)
    (overlay / path).write_text(text)


def compile_unit(build: Build, unit: str, fault: tuple | None, overlay: pathlib.Path) -> pathlib.Path:
    """The unit's object, with the fault if there is one."""
    source, instance = UNITS[unit][:2]
    path = os.path.normpath(f"{BACKEND}/{source}")
    if fault:
        changed = os.path.normpath(f"{BACKEND}/{fault[0]}")
        write(overlay, changed, mutated(changed, *fault[1:3]))
    if instance:
        text = (overlay / path if (overlay / path).exists() else ROOT / path).read_text()
        all_of_them = "CODA_FOR_ELEMENTS(PROGRAMS)"
        if text.count(all_of_them) != 1:
            raise ValueError(f"{path}: expected {all_of_them} once")
        write(overlay, path, text.replace(all_of_them, f"template struct {instance};"))
    output = overlay / "changed.o"
    build.compile(path, overlay, output)
    return output


device = threading.Semaphore(ON_DEVICE)


def passes(binary: pathlib.Path, check: tuple) -> bool:
    settings = dict(word.split("=", 1) for word in check[2:])
    environment = {
        **os.environ,
        "OMP_WAIT_POLICY": "passive",
        "OMP_NUM_THREADS": "2",
        "GTEST_FAIL_FAST": "1",
        **settings,
    }
    command = [binary, f"--gtest_filter={check[1]}"]
    with device:
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, check=False, timeout=LIMIT_S
            )
        except subprocess.TimeoutExpired:
            return False
    # A filter that no longer finds a test would catch nothing and look sound.
    return done.returncode == 0 and " 0 tests" not in done.stdout and "SKIPPED" not in done.stdout


def check_of(fault: tuple) -> tuple:
    return fault[4] if len(fault) > 4 else UNITS[fault[3]][2]


def judge(build: Build, changed: pathlib.Path, check: tuple, run: bool, folder: pathlib.Path) -> str:
    """What the check makes of an object: `passes` or `fails`; `builds` if it is not to run."""
    binary = folder / check[0]
    build.link(check[0], changed, binary)
    if not run:
        return "builds"
    return "passes" if passes(binary, check) else "fails"


def attempt(build: Build, fault: tuple, run: bool) -> str:
    with tempfile.TemporaryDirectory(dir=build.scratch) as name:
        folder = pathlib.Path(name)
        try:
            return judge(build, compile_unit(build, fault[3], fault, folder), check_of(fault), run, folder)
        except Failure as failure:
            return f"does not build:\n{failure}"


def attempt_sound(build: Build, unit: str, checks: list[tuple], run: bool) -> list[tuple[tuple, str]]:
    """The unit without any fault, built in the same way."""
    with tempfile.TemporaryDirectory(dir=build.scratch) as name:
        folder = pathlib.Path(name)
        try:
            changed = compile_unit(build, unit, None, folder)
            return [(check, judge(build, changed, check, run, folder)) for check in checks]
        except Failure as failure:
            return [(checks[0], f"does not build:\n{failure}")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/cuda", help="what the preset cuda left")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument(
        "--only", nargs="+", default=[""], help="faults of files, units or texts that contain one of these"
    )
    parser.add_argument("--texts", action="store_true", help="only see that each text is there once; needs no GPU")
    parser.add_argument("--no-run", action="store_true", help="only compile and link; needs no GPU")
    args = parser.parse_args()

    chosen = [f for f in FAULTS if any(only in part for only in args.only for part in (f[0], f[3], str(f[1])))]
    there = texts_are_there([(f"{BACKEND}/{f[0]}", *f[1:3]) for f in chosen])
    if args.texts or not there:
        return 0 if there else 1

    begin = time.monotonic()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # many of these tests crash
    tests = sorted({check_of(f)[0] for f in chosen})
    if not os.environ.get("CODA_PREBUILT"):
        build_all = ["cmake", "--build", args.build, "--target", *tests]
        if args.build == ROOT / "build/cuda":
            subprocess.run(["cmake", "--preset", "cuda"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        subprocess.run(build_all, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)

    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        build = Build(args.build, tests, pathlib.Path(folder))
        run = not args.no_run
        units = {f[3]: sorted({check_of(g) for g in chosen if g[3] == f[3]}) for f in chosen}
        sound = {unit: pool.submit(attempt_sound, build, unit, checks, run) for unit, checks in units.items()}
        results = {pool.submit(attempt, build, f, run): f for f in chosen}
        unsound = 0
        for unit, checks in sound.items():
            for check, result in checks.result():
                if result in ("passes", "builds"):
                    continue
                unsound += 1
                print(f"mutation: {unit}: {' '.join(check)}: without a fault: {result}", flush=True)
        caught = 0
        for number, done in enumerate(concurrent.futures.as_completed(results), 1):
            fault, result = results[done], done.result()
            caught += result in ("fails", "builds")
            # Of a run that is cut off, this is what there is to see.
            if sys.stderr.isatty() or number % 10 == 0:
                end = "\r" if sys.stderr.isatty() else "\n"
                print(
                    f"mutation: {number} of {len(chosen)} done, {caught} caught", end=end, file=sys.stderr, flush=True
                )
            if result not in ("fails", "builds"):
                what = "SURVIVED" if result == "passes" else result
                check = " ".join(check_of(fault))
                print(
                    f"mutation: {fault[0]}: {what}\n  - {fault[1]}\n  + {fault[2]}\n  {fault[3]}: {check}", flush=True
                )
        # What broke the device would look as if it were caught.
        unit, checks = next(iter(units.items()))
        after = attempt_sound(build, unit, checks, run)
        if any(result not in ("passes", "builds") for _, result in after):
            unsound += 1
            print(f"mutation: {unit}: after all faults: {after}")
    print(
        f"mutation: {caught} of {len(chosen)} faults {'built' if args.no_run else 'caught'}, {unsound} checks fail without a "
        f"fault, {time.monotonic() - begin:.0f} s"
    )
    return 0 if caught == len(chosen) and unsound == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
