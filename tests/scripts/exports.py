#!/usr/bin/env python3
"""exports.py NM LIBRARY: fails unless a shared library shows the names of this project, and nothing else."""

import re
import subprocess
import sys

OURS = re.compile(r"coda_|_Z(T[A-Z]|GV|Z)*NK?4coda")
# A call for C, one for C++, and the type by which its exception is caught.
NEEDED = {"coda_gemm", "_ZN4coda3ops4gemmERKNS0_4GemmE", "_ZTIN4coda5ErrorE"}


def main(nm: str, library: str) -> int:
    listed = subprocess.run([nm, "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    names = {line.split()[-1] for line in listed.splitlines()}
    foreign = sorted(name for name in names if not OURS.match(name))
    print(f"{len(names)} names; of others: {foreign[:10]}; missing: {sorted(NEEDED - names)}")
    return 1 if foreign or NEEDED - names else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
