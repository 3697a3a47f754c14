#!/usr/bin/env python3
"""Runs what docs/evidence.md tells people to type, on a vector.

    test_docs.py [FOLDER]       FOLDER: vectors (default: ../schema/vectors/ledger)
"""
import hashlib
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import testing

ROOT = Path(__file__).resolve().parent.parent
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


if __name__ == "__main__":
    testing.main()
