#!/usr/bin/env python3
"""Runs report.py in the embedded sandbox and checks the ledger with both verifiers.

    RUNNER=…/runner VERIFY=…/verify test_workload.py
"""
import hashlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import testing

HERE = Path(__file__).resolve().parent


class InTheSandbox(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.home, self.out, self.ledger = (self.folder / name for name in ("home", "out", "ledger"))
        (self.home / ".ssh").mkdir(parents=True)
        (self.home / ".ssh" / "id_ed25519").write_text("secret")
        (self.out / ".git" / "hooks").mkdir(parents=True)
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith(("RUNNER_", "XDG_"))}
        self.environment |= {"HOME": str(self.home), "MARKER": "a-value-that-must-not-be-kept"}

    def exec(self, *arguments):
        command = [os.environ["RUNNER"], "--ledger", self.ledger, "exec", "--runtime", "embedded", "--read", HERE, "--write", self.out,
                   "--", "python3", HERE / "report.py", HERE / "data" / "sales.csv", self.out, *arguments]
        return subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=300, env=self.environment)

    def records(self):
        lines = (self.ledger / "records" / "00000000.jsonl").read_text().splitlines()
        return [json.loads(line)["record"] for line in lines if not line.startswith('{"open":')]

    def assert_verified(self):
        verified = subprocess.run([os.environ["VERIFY"], self.ledger, "--format", "json"], capture_output=True, text=True, timeout=300)
        self.assertEqual(verified.returncode, 0, verified.stdout + verified.stderr)
        self.assertEqual(json.loads(verified.stdout)["exitCode"], 0)
        ours = subprocess.run([sys.executable, HERE / "verify.py", self.ledger], capture_output=True, text=True, timeout=300)
        self.assertEqual(ours.returncode, 0, ours.stdout + ours.stderr)

    def test_artifacts_are_recorded_with_their_hash(self):
        done = self.exec()
        self.assertEqual(done.returncode, 0, done.stderr)
        execution = self.records()[-1]
        self.assertEqual(execution["kind"], "execution")
        artifacts = {artifact["path"]: artifact for artifact in execution["body"]["artifacts"]}
        for name in ("report.md", "summary.json"):
            content = (self.out / name).read_bytes()
            artifact = artifacts[str(self.out / name)]
            self.assertEqual((artifact["bytes"], artifact["sha256"]), (len(content), hashlib.sha256(content).hexdigest()))
            self.assertEqual((self.out / name).stat().st_uid, os.getuid())
        self.assertIn(execution["body"]["verdict"], ("as-requested", "reduced"))
        self.assert_verified()

    def test_every_attempt_to_get_out_fails(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
            done = self.exec("--probe", str(port), "--home", str(self.home))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(len(done.stdout.splitlines()), 7, done.stdout)
        self.assertNotIn("SUCCEEDED", done.stdout)
        self.assertFalse((self.out / ".git" / "hooks" / "pre-commit").exists())
        self.assert_verified()

    def test_environment_values_are_nowhere_in_the_ledger(self):
        self.assertEqual(self.exec().returncode, 0)
        self.assertEqual(self.records()[-1]["kind"], "execution")
        for path in self.ledger.rglob("*"):
            if path.is_file():
                self.assertNotIn(b"a-value-that-must-not-be-kept", path.read_bytes(), path)


if __name__ == "__main__":
    missing = [name for name in ("RUNNER", "VERIFY") if name not in os.environ]
    if missing:
        sys.exit(f"usage: {__doc__.strip().splitlines()[-1].strip()}")
    testing.main()
