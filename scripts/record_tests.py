#!/usr/bin/env python3
"""Puts what gpu_test.sh or tests/training printed into results/<device>/tests.json: one record for each total, with the
commit that it is of. A record takes the place of an earlier one of the same kind (of random cases: of the same first
seed). Lines without any total leave the file as it is, and are an error."""

import argparse
import contextlib
import datetime
import json
import pathlib
import re
import sys

# what: the line; groups are named as the members of its record.
LINES = {
    "tests": r"tests: (?P<run>\d+) run, (?P<passed>\d+) passed, (?P<failed>\d+) failed, (?P<skipped>\d+) skipped",
    "verify": r"verify: (?P<outputs>\d+) outputs of (?P<cases>\d+) cases: (?P<ok>\d+) ok, (?P<failed>\d+) failed",
    "torch": r"torch: (?P<run>\d+) run, (?P<passed>\d+) passed, (?P<failed>\d+) failed, (?P<skipped>\d+) skipped",
    "examples": r"examples: (?P<run>\d+) projects built and run, (?P<passed>\d+) passed",
    "first calls": r"first calls: (?P<operations>\d+) operations, .* replayed (?P<replays>\d+) times: (?P<same>\d+) with",
    "bad calls": r"bad calls: (?P<calls>\d+), (?P<named_errors>\d+) named errors, (?P<launched_something>\d+) launched",
    "edge cases": r"edge cases: (?P<cases>\d+) with .*, (?P<failed>\d+) failed",
    "fuzz": r"fuzz: (?P<cases>\d+) cases, (?P<fused>\d+) fused, (?P<outputs>\d+) outputs, (?P<failed>\d+) failed, "
    r"seeds (?P<first_seed>\d+)",
    "reruns": r"reruns: (?P<kernels_and_layouts>\d+) kernels and layouts x (?P<times>\d+) (?P<how>while idle|under load), "
    r"(?P<differ>\d+) differ",
    "processes": r"processes: (?P<processes>\d+), (?P<hashes>\d+) hashes each, (?P<differ>\d+) differ",
    "threads": r"threads: (?P<threads>\d+) threads x (?P<streams>\d+) streams x (?P<calls>\d+) calls, (?:the bits of "
    r"serial calls, none waited|(?P<verdict>FAILED)), the pool of workspaces grew by (?P<pool_grew_bytes>\d+) bytes",
    "training": r"training: (?P<by>\S+) (?P<model>\w+) in (?P<dtype>\w+), (?P<steps>\d+) steps x (?P<seeds>\d+) seeds: .* "
    r"differ by up to (?P<differ_by>[\d.e-]+).*, (?P<allowed>[\d.e-]+) .*; (?P<verdict>ok|FAILED)$",
    "sanitizer": r"(?P<tool>memcheck|racecheck|synccheck|initcheck): .*SUMMARY: ",
    "mutation": r"mutation: (?P<caught>\d+) of (?P<faults>\d+) faults caught",
}
BROKEN = "broken: "  # programs that ended before their summary, whose tests are in no count
KEYS = ("what", "first_seed", "how", "times", "by", "model", "dtype", "tool")


def number(text: str) -> int | float | str:
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


def records_of(lines: list[str]) -> list[dict]:
    """Lines of a kind that counts up, such as the edge cases, are one record."""
    found: list[dict] = []
    for line in lines:
        if line.startswith(BROKEN):
            next(r for r in found if r["what"] == "tests")["broken"] = line.removeprefix(BROKEN).split(",")
        for what, pattern in LINES.items():
            match = re.match(pattern, line)
            if not match:
                continue
            record = {"what": what, **{name: number(text) for name, text in match.groupdict().items() if text}}
            if what == "sanitizer":  # of each program that it watched
                record["reports"] = sum(map(int, re.findall(r"(\d+) errors?\b", line.partition("SUMMARY")[2])))
                if theirs := re.search(r"(\d+) of them in cuBLASLt's kernels", line):
                    record["of_cublaslt"] = int(theirs[1])
                    record["reports"] -= record["of_cublaslt"]
                if bad := re.search(r"(\d+) programs ended badly", line):
                    record["broken"] = int(bad[1])
            earlier = next((r for r in found if key_of(r) == key_of(record)), None)
            if earlier is None:
                found.append(record)
            elif what == "edge cases":
                for name in ("cases", "failed"):
                    earlier[name] += record[name]
            else:
                earlier["differ"] = earlier.get("differ", 0) + record.get("differ", 0)
    return found


def key_of(record: dict) -> tuple:
    return tuple(record.get(name) for name in KEYS)


def update(document: dict, found: list[dict]) -> None:
    for record in found:
        kept = [r for r in document["records"] if key_of(r) != key_of(record)]
        document["records"] = [*kept, record]
    order = list(LINES)
    document["records"].sort(key=lambda r: (order.index(r["what"]), r.get("first_seed", 0)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--device", required=True)
    parser.add_argument("--driver", help="of a GPU")
    parser.add_argument("--commit", required=True)
    args = parser.parse_args()

    today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    found = [{**r, "commit": args.commit, "date": today} for r in records_of(sys.stdin.read().splitlines())]
    if not found:
        sys.exit(f"record_tests: expected a total to record, got none; {args.out} is as it was")
    document = json.loads(args.out.read_text()) if args.out.exists() else {"records": []}
    of = {"device": args.device} | ({"driver": args.driver} if args.driver else {})
    update(document, found)
    head = "".join(f" {json.dumps(name)}: {json.dumps(value)},\n" for name, value in of.items())
    body = ",\n".join("  " + json.dumps(r) for r in document["records"])
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(f'{{\n{head} "records": [\n{body}\n ]\n}}\n')


if __name__ == "__main__":
    main()
