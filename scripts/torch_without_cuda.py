#!/usr/bin/env python3
"""Lets the PyTorch wheel of PyPI be imported on a machine without CUDA's libraries.

usage: torch_without_cuda.py <site-packages>

PyPI has no CPU build of PyTorch for Linux on x86-64. Its CUDA build asks the loader for cuBLAS, cuDNN and nine more
libraries, 2 GB to download, though nothing of them is called where there is no GPU. This puts an empty library with the
wanted symbol names in place of each that is missing. Only the small CUDA runtime has to be the real one: it is called,
and answers that there is no device.
"""

import collections
import pathlib
import re
import subprocess
import sys
import tempfile


def output_of(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def main(site_packages):
    lib = site_packages / "torch" / "lib"
    needed = set()
    versions = collections.defaultdict(set)  # library -> its symbol versions that are asked for
    symbols = collections.defaultdict(set)  # symbol version, "" for none -> symbols that are asked for
    defined = set()
    for path in lib.glob("*.so*"):
        headers = output_of("objdump", "-p", path)
        needed.update(re.findall(r"NEEDED +(\S+)", headers))
        for library, rows in re.findall(r"required from (\S+):\n((?: +0x.*\n)+)", headers):
            versions[library].update(row.split()[-1] for row in rows.splitlines())
        for symbol, version in re.findall(r" U (\w+)@?(\S*)", output_of("nm", "-D", "--undefined-only", path)):
            symbols[version].add(symbol)
        defined.update(re.findall(r" \w (\w+)", output_of("nm", "-D", "--defined-only", path)))

    present = {path.name for path in site_packages.rglob("*.so*")} | {"libcuda.so.1"}
    missing = sorted(library for library in needed - present if re.match(r"lib(cu|nv|nccl)", library))
    # A symbol without a version names no library: any one may hold it, so the first such library holds them all.
    unversioned = symbols[""] - defined
    for library in missing:
        wanted = {version: symbols[version] for version in versions[library]}
        script = "".join(f"{version} {{ global: {'; '.join(names)}; }};\n" for version, names in wanted.items())
        names = set().union(*wanted.values())
        if not wanted:
            names, unversioned = unversioned, set()
        with tempfile.NamedTemporaryFile("w", suffix=".map") as map_file:
            map_file.write(script)
            map_file.flush()
            version_flag = [f"-Wl,--version-script={map_file.name}"] if script else []
            link = [
                "gcc",
                "-shared",
                "-nostdlib",
                f"-Wl,-soname,{library}",
                *version_flag,
                "-x",
                "c",
                "-",
            ]
            source = "".join(f"char {name}[64];\n" for name in sorted(names))
            subprocess.run([*link, "-o", lib / library], input=source, text=True, check=True)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]))
