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
    """Commands of the README's only bash block, with the status that each is to have."""
    blocks = re.findall(r"^```bash\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 1, "the README has one bash block, its tour"
    for line in blocks[0].splitlines():
        command, _, comment = line.partition(" #")
        status = re.search(r"\bstatus (\d+)", comment)
        yield command.strip(), int(status[1]) if status else 0


class Commands(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        for name in ("bin", "home", "data", "out"):
            (self.folder / name).mkdir()
        (self.folder / "data" / "in.csv").write_text("a,b\n")
        for name in ("RUNNER", "VERIFY"):
            (self.folder / "bin" / name.lower()).symlink_to(os.environ[name])
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith(("RUNNER", "XDG_"))}
        self.environment |= {"HOME": str(self.folder / "home"), "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
                             "RUNNER_LEDGER": str(self.folder / "ledger")}

    def run_here(self, command):
        return subprocess.run(["bash", "-c", command], cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=300)

    def test_each_line_of_the_tour_ends_as_it_says(self):
        lines = list(tour())
        self.assertGreaterEqual(len(lines), 20)
        for command, status in lines:
            with self.subTest(command):
                done = self.run_here(command)
                self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        self.assertEqual((self.folder / "out" / "copy.csv").read_text(), "a,b\n")
        self.assertEqual((self.folder / "out" / "copy.csv").stat().st_uid, os.getuid())

    def test_a_checkpoint_held_elsewhere_shows_a_cut_end(self):
        self.assertEqual(self.run_here("runner note one && runner note two && cp ledger/checkpoint kept && runner note three").returncode, 0)
        done = self.run_here("verify --checkpoint kept ledger")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("complete through 2 (the given checkpoint); 1 later record", done.stdout)
        segment = self.folder / "ledger" / "records" / "00000000.jsonl"
        segment.write_bytes(b"".join(segment.read_bytes().splitlines(keepends=True)[:1]))
        (self.folder / "ledger" / "checkpoint").unlink()
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

    def test_it_needs_the_c_library_alone(self):
        if not shutil.which("readelf"):
            self.skipTest("readelf is missing (package binutils)")
        done = subprocess.run(["readelf", "--dynamic", self.program], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", done.stdout))
        self.assertTrue(needed)
        self.assertFalse([name for name in needed if not re.match(r"(lib(c|m|gcc_s|dl|pthread|rt)|ld-linux.*)\.so", name)], needed)


if __name__ == "__main__":
    missing = [name for name in ("RUNNER", "VERIFY") if name not in os.environ]
    if missing:
        sys.exit(f"usage: {__doc__.strip().splitlines()[-1].strip()}")
    testing.main()
