#!/usr/bin/env python3
"""The demo's script, with a command in coda's place that only writes its files."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]

# A run of three steps, the second of which has no finite loss.
CODA = r"""#!/usr/bin/env bash
set -euo pipefail
echo "$@" >>"$(dirname "$0")/calls"
[[ $1 == train ]] || exit 0
while [[ $# -gt 0 ]]; do
  case $1 in
    --data) [[ -f $2 ]] ;;
    --out) out=$2 ;;
    --compare-unfused) compare=1 ;;
    --overwrite) overwrite=1 ;;
  esac
  shift
done
mkdir -p "$out"
if [[ -n ${compare:-} ]]; then
  run='{"losses":[3.0,null,1.0]}'
  echo "{\"fp32\":{\"fused\":$run,\"unfused\":$run},\"bf16\":{\"fused\":$run,\"unfused\":$run}}" >"$out/comparison.json"
else
  [[ ! -f $out/unfinished || -n ${overwrite:-} ]]
  printf '{"step":%s,"loss":%s,"validation_loss":2.5}\n' 1 3.0 2 null 3 1.0 >"$out/log.jsonl"
fi
"""


class Demo(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.repository, self.here = pathlib.Path(folder.name) / "coda", pathlib.Path(folder.name) / "here"
        shutil.copytree(ROOT / "scripts", self.repository / "scripts")
        (self.repository / ".deps").symlink_to(ROOT / ".deps")
        self.here.mkdir()
        (self.here / "command").write_text(CODA)
        (self.here / "command").chmod(0o755)
        (self.here / "my text.txt").write_text("some text")

    def demo(self, data: str, command: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [self.repository / "scripts" / "demo.sh", command],
            cwd=self.here,
            env={**os.environ, "DATA": data},
            capture_output=True,
            text=True,
        )

    def test_paths_are_those_of_the_caller(self) -> None:
        for data, command in (
            ("my text.txt", "./command"),
            (str(self.here / "my text.txt"), str(self.here / "command")),
        ):
            done = self.demo(data, command)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("validation loss 2.5000 nats per byte after 3 steps", done.stdout)
        self.assertIn("DATA: " + str(self.here / "none"), self.demo("none", "./command").stderr)

    def test_one_that_was_stopped_can_be_run_again(self) -> None:
        checkpoint = self.repository / "build/demo/checkpoint"
        checkpoint.mkdir(parents=True)
        (checkpoint / "unfinished").touch()
        done = self.demo("my text.txt", "./command")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_loss_that_is_not_finite_is_plotted(self) -> None:
        done = self.demo(str(self.here / "my text.txt"), str(self.here / "command"))
        self.assertEqual(done.returncode, 0, done.stderr)
        if "matplotlib is not installed" not in done.stderr:
            self.assertTrue((self.repository / "build/demo/loss.png").exists())


if __name__ == "__main__":
    unittest.main()
