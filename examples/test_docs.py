#!/usr/bin/env python3
"""Runs what docs/evidence.md tells people to type, on a vector, and what docs/hosts.md shows.

    VERIFY=…/verify test_docs.py [FOLDER]       FOLDER: vectors (default: ../schema/vectors/ledger)
"""
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import testing

ROOT = Path(__file__).resolve().parent.parent
VERIFY = os.environ.get("VERIFY") or ROOT / "target" / "release" / "verify"
VECTORS = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "schema" / "vectors" / "ledger"


class ByHand(unittest.TestCase):
    def test_the_commands_of_the_evidence_page_do_what_it_says(self):
        blocks = re.findall(r"^```bash\n(.*?)^```", (ROOT / "docs" / "evidence.md").read_text(), re.MULTILINE | re.DOTALL)
        self.assertEqual(len(blocks), 4)
        with tempfile.TemporaryDirectory() as folder:
            script = "set -euo pipefail\n" + "".join(blocks).replace("/tmp/", folder + "/")
            done = subprocess.run(["bash", "-c", script], cwd=VECTORS / "valid" / "ledger", capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        name, link, key_id, key, verified, commitment = done.stdout.splitlines()
        self.assertEqual(link, f'"previous":"{name.split()[0]}"')
        self.assertEqual(key_id.split()[0], key)
        self.assertEqual(verified, "Signature Verified Successfully")
        self.assertEqual(commitment.split()[0], hashlib.sha256(b"\2" + bytes(range(16)) + b'["python3","report.py"]').hexdigest())

    def test_the_length_that_the_page_names_is_true(self):
        lines = len((ROOT / "examples" / "verify.py").read_text().splitlines())
        self.assertIn(f"in {lines} lines that you can read", (ROOT / "docs" / "evidence.md").read_text())


class Hosts(unittest.TestCase):
    def test_the_bundles_of_real_hosts_verify(self):
        bundles = sorted((ROOT / "evidence" / "hosts").glob("*.bundle"))
        self.assertGreater(len(bundles), 1)
        for bundle in bundles:
            done = subprocess.run([VERIFY, "-q", bundle], capture_output=True, text=True, timeout=60)
            self.assertEqual((done.returncode, done.stderr), (0, ""), f"{bundle.name}: {done.stdout}")

    def test_the_page_shows_what_verify_says_of_two_of_them(self):
        blocks = re.findall(r"^```console\n\$ verify (diff evidence/.*?)\n(.*?)^```", (ROOT / "docs" / "hosts.md").read_text(), re.MULTILINE | re.DOTALL)
        self.assertEqual(len(blocks), 1)
        for arguments, shown in blocks:
            done = subprocess.run([VERIFY, *arguments.split()], cwd=ROOT, capture_output=True, text=True, timeout=60)
            self.assertEqual((done.stdout, done.stderr), (shown, ""))


if __name__ == "__main__":
    testing.main()
