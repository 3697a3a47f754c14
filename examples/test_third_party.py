#!/usr/bin/env python3
"""Follows the four steps of docs/probes.md, section "A probe of your own", to the letter, and lies where they are honest.

    RUNNER=…/runner VERIFY=…/verify test_third_party.py
"""
import json
import os
import re
import subprocess
import tempfile
import textwrap
import unittest
from pathlib import Path

import testing

ROOT = Path(__file__).resolve().parent.parent
CHECK = "filesystem/hardware"

# What a probe prints that was never refused anything: `contained`, bound to its run by every means that it has.
LIAR = """#!/usr/bin/env python3
import hashlib, sys
secret = sys.stdin.readline().strip().removeprefix("nonce=")
answer = ["contained", "ENOENT", "ok"]
text = "".join(f"{line}\\n" for line in ["containment-ledger/probe/v1", secret, "filesystem/hardware", *answer])
proof = hashlib.sha256(text.encode()).hexdigest()[:32]
print("probe=hardware dimension=filesystem check=hardware result={} errno={} twin={}".format(*answer), f"nonce={NONCE} detail=nothing tried")
"""


def steps():
    """The blocks of commands of each numbered step, in their order."""
    text = (ROOT / "docs" / "probes.md").read_text()
    section = text.split("\n## A probe of your own\n")[1].split("\n## ")[0]
    parts = re.split(r"^(\d+)\. ", section, flags=re.MULTILINE)[1:]
    numbers, bodies = parts[::2], parts[1::2]
    assert numbers == ["1", "2", "3", "4"], numbers
    return [[textwrap.dedent(block) for block in re.findall(r"^   ```bash\n(.*?)^   ```$", body, re.MULTILINE | re.DOTALL)]
            for body in bodies]


class FourSteps(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        (self.folder / "bin").mkdir()
        (self.folder / "home").mkdir()
        for name in ("RUNNER", "VERIFY"):
            (self.folder / "bin" / name.lower()).symlink_to(os.environ[name])
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith(("RUNNER", "XDG_"))}
        self.environment |= {"HOME": str(self.folder / "home"), "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}"}

    def do(self, block):
        """Runs one block; its last line says which status it has, unless that is 0."""
        status = re.search(r"# status (\d+)$", block.strip())
        script = "set -euo pipefail\n" + block.replace("/tmp/mine", str(self.folder / "mine"))
        done = subprocess.run(["bash", "-c", script], env=self.environment, cwd=self.folder, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, int(status[1]) if status else 0, done.stdout + done.stderr)
        return done.stdout

    def cells(self):
        """What `verify` makes of each cell, from the records alone."""
        done = subprocess.run([os.environ["VERIFY"], "matrix", self.folder / "mine" / "ledger", "--format", "json"],
                              capture_output=True, text=True, timeout=300)
        return {cell["runtime"]: cell for cell in json.loads(done.stdout)["cells"] if cell["check"] == CHECK}

    def assert_never_a_measurement(self, cell):
        self.assertEqual((cell["verdict"], cell["reason"]), ("inconclusive", "self-reported"), cell)

    def follow(self, program, text=None):
        """All steps, with one of the programs of the first, or with another text for it."""
        first, second, third, fourth = steps()
        self.do(first[program])
        if text is not None:
            (self.folder / "mine" / "suite" / "probe").write_text(text)
        shown = [self.do(block) for block in [*second, *third, *fourth]]
        return "".join(shown)

    def assert_adds_a_probe(self, program):
        shown = self.follow(program)
        self.assertIn(f"{CHECK}", shown)
        self.assertRegex(shown, r"probe=hardware .*result=escaped .*twin=ok")
        self.assertRegex(shown, r"probe=hardware .*result=contained errno=ENOENT twin=ok")
        cells = self.cells()
        # Against a runtime the word counts, for one it does not.
        self.assertEqual(cells["native"]["verdict"], "escaped")
        self.assert_never_a_measurement(cells["embedded"])

    def test_the_steps_are_four_and_say_what_to_type(self):
        self.assertEqual([len(blocks) for blocks in steps()], [2, 1, 1, 1])

    def test_a_probe_in_shell_is_added_in_four_steps(self):
        self.assert_adds_a_probe(0)

    def test_a_probe_in_python_is_added_in_four_steps(self):
        self.assert_adds_a_probe(1)

    def test_a_probe_that_says_contained_is_never_believed(self):
        for nonce in ("secret", "proof"):
            with self.subTest(nonce):
                shown = self.follow(1, LIAR.replace("NONCE", nonce))
                self.assertRegex(shown, r"result=contained errno=ENOENT twin=ok nonce=[0-9a-f]{32} ")
                self.assertNotIn("✓", shown)
                for cell in self.cells().values():
                    self.assert_never_a_measurement(cell)


if __name__ == "__main__":
    testing.main()
