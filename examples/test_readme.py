#!/usr/bin/env python3
"""Runs the README's tour, line by line, and looks at the release programs themselves.

    RUNNER=…/runner VERIFY=…/verify test_readme.py
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import testing

ROOT = Path(__file__).resolve().parent.parent
MAX_BYTES = 8 << 20


def tour():
    """Lines of the README's only bash block as they stand, with the status that each is to have."""
    blocks = re.findall(r"^```bash\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 1, "the README has one bash block, its tour"
    for line in blocks[0].splitlines():
        status = re.search(r" #.*\bstatus (\d+)", line)
        yield line, int(status[1]) if status else 0


class Commands(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        for name in ("bin", "home", "here", "temporary"):
            (self.folder / name).mkdir()
        for name in ("RUNNER", "VERIFY"):
            (self.folder / "bin" / name.lower()).symlink_to(os.environ[name])
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith(("RUNNER", "XDG_"))}
        self.environment |= {"HOME": str(self.folder / "home"), "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
                             "TMPDIR": str(self.folder / "temporary")}

    def run_here(self, command):
        return subprocess.run(["bash", "-c", command], cwd=self.folder / "here", env=self.environment, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=300)

    def test_each_line_of_the_tour_ends_as_it_says(self):
        lines = list(tour())
        self.assertGreaterEqual(len(lines), 20)
        # One shell for all, as somebody has who pastes the block; nothing is set or made for it.
        statuses = self.folder / "statuses"
        done = self.run_here("".join(f"{line}\nprintf '%s\\n' $? >>'{statuses}'\n" for line, _ in lines))
        found = [int(status) for status in statuses.read_text().split()]
        self.assertEqual(len(found), len(lines), done.stdout + done.stderr)
        for (line, status), result in zip(lines, found):
            with self.subTest(line):
                self.assertEqual(result, status, done.stdout + done.stderr)
        copies = list(self.folder.glob("temporary/*/out/copy.csv"))
        self.assertEqual([copy.read_text() for copy in copies], ["a,b\n"])
        self.assertEqual(copies[0].stat().st_uid, os.getuid())

    def test_the_tour_leaves_the_folder_and_the_default_ledger_alone(self):
        self.assertEqual(self.run_here("runner note mine").returncode, 0)
        ledger = self.folder / "home" / ".local" / "state" / "containment-ledger" / "default" / "records" / "00000000.jsonl"
        before = ledger.read_bytes()
        self.run_here("\n".join(line for line, _ in tour()))
        self.assertEqual(ledger.read_bytes(), before)
        self.assertEqual(list((self.folder / "here").iterdir()), [])
        self.assertEqual(self.run_here("runner note still").returncode, 0)

    def test_a_checkpoint_held_elsewhere_shows_a_cut_end(self):
        self.environment["RUNNER_LEDGER"] = "ledger"
        self.assertEqual(self.run_here("runner note one && runner note two && cp ledger/checkpoint kept && runner note three").returncode, 0)
        done = self.run_here("verify --checkpoint kept ledger")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("complete through 2 (the given checkpoint); 1 later record", done.stdout)
        ledger = self.folder / "here" / "ledger"
        segment = ledger / "records" / "00000000.jsonl"
        segment.write_bytes(b"".join(segment.read_bytes().splitlines(keepends=True)[:1]))
        (ledger / "checkpoint").unlink()
        self.assertEqual(self.run_here("verify ledger").returncode, 0)
        self.assertEqual(self.run_here("verify --checkpoint kept ledger").returncode, 10)

    def test_policy_files_are_valid_and_are_the_catalogue(self):
        files = sorted((ROOT / "policies").glob("*.json"))
        done = self.run_here(f"runner validate '{ROOT / 'policies'}'")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(len(done.stdout.splitlines()), len(files))
        for file in files:
            self.assertEqual(self.run_here(f"runner policies {file.stem}").stdout, file.read_text())
        self.assertNotEqual(self.run_here("echo '{}' > bad.json; runner validate bad.json").returncode, 0)

    def test_links_of_the_documentation_lead_somewhere(self):
        for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
            for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
                self.assertTrue((page.parent / link).exists(), f"{page.name}: {link}")


class Release(unittest.TestCase):
    def setUp(self):
        if "RUNNER_RELEASE" not in os.environ:
            self.skipTest("RUNNER_RELEASE is not set")
        self.program = Path(os.environ["RUNNER_RELEASE"])

    def test_the_runner_is_small(self):
        self.assertLess(self.program.stat().st_size, MAX_BYTES)

    def test_it_needs_no_library(self):
        if not shutil.which("readelf"):
            self.skipTest("readelf is missing (package binutils)")
        read = ["readelf", "--dynamic", "--program-headers", self.program]
        done = subprocess.run(read, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("LOAD", done.stdout)
        self.assertEqual(re.findall(r"\(NEEDED\).*|INTERP .*", done.stdout), [])



if __name__ == "__main__":
    missing = [name for name in ("RUNNER", "VERIFY") if name not in os.environ]
    if missing:
        sys.exit(f"usage: {__doc__.strip().splitlines()[-1].strip()}")
    testing.main()
