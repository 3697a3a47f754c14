#!/usr/bin/env python3
"""Holds report.py and its input against what they should be, without a sandbox: there the probe must see things."""
import json
import socket
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import report
import testing

HERE = Path(__file__).resolve().parent
SALES = HERE / "data" / "sales.csv"


def run(*arguments):
    return subprocess.run([sys.executable, HERE / "report.py", *map(str, arguments)], capture_output=True, text=True, timeout=60)


class Report(unittest.TestCase):
    def test_the_input_is_what_its_generator_gives(self):
        done = subprocess.run([sys.executable, HERE / "data" / "generate.py"], capture_output=True, timeout=60)
        self.assertEqual(done.stdout, SALES.read_bytes())

    def test_sums_agree_with_a_plain_addition(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(run(SALES, folder).returncode, 0)
            summary = json.loads(Path(folder, "summary.json").read_text())
            cents = units = 0
            for line in SALES.read_text().splitlines()[1:]:
                _, _, _, count, price = line.split(",")
                units += int(count)
                cents += int(count) * int(price.replace(".", ""))
            self.assertEqual((summary["cents"], summary["units"], summary["sales"]), (cents, units, 200))
            for name in ("byMonth", "byProduct", "byRegion"):
                self.assertEqual(sum(summary[name].values()), cents)
            self.assertIn(f"{cents // 100:,}.{cents % 100:02}", Path(folder, "report.md").read_text())

    def test_the_report_is_the_same_each_time(self):
        outputs = []
        for _ in range(2):
            with tempfile.TemporaryDirectory() as folder:
                run(SALES, folder)
                outputs.append([Path(folder, name).read_bytes() for name in ("report.md", "summary.json")])
        self.assertEqual(outputs[0], outputs[1])

    def test_a_row_that_is_none_is_an_error_with_its_line(self):
        header = "date,region,product,units,unit_price\n"
        for text in ("a,b\n", header + "2026-01-01,north,bolt,1,0.35\nx,y,z,one,1.00\n", header + "2026-01-01,n,b,1,0.355\n", header + "2026-01-01,n\n"):
            with self.subTest(text), tempfile.TemporaryDirectory() as folder:
                Path(folder, "in.csv").write_text(text)
                done = run(Path(folder, "in.csv"), folder)
                self.assertEqual(done.returncode, 2)
                self.assertRegex(done.stderr, r"in\.csv: line \d+: ")
                self.assertFalse(Path(folder, "summary.json").exists())


class Probe(unittest.TestCase):
    """An attempt that cannot succeed would prove nothing in a sandbox."""

    def test_attempts_succeed_where_nothing_contains_them(self):
        with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as listener:
            Path(folder, ".ssh").mkdir()
            Path(folder, ".ssh", "id_ed25519").write_text("secret")
            Path(folder, ".git", "hooks").mkdir(parents=True)
            # A process that is neither an ancestor of the probe nor its child.
            with subprocess.Popen(["sleep", "60"]) as other:
                try:
                    done = run(SALES, folder, "--probe", listener.getsockname()[1], "--home", folder)
                finally:
                    other.kill()
            lines = dict(line.rsplit(": SUCCEEDED: ", 1) for line in done.stdout.splitlines() if ": SUCCEEDED: " in line)
            self.assertEqual(done.returncode, 1)
            self.assertIn(f"read {folder}/.ssh/id_*", lines)
            self.assertIn(f"connect to 127.0.0.1:{listener.getsockname()[1]}", lines)
            self.assertIn("see processes of the host", lines)
            self.assertIn("write .git/hooks/pre-commit", lines)
            self.assertFalse(Path(folder, ".git", "hooks", "pre-commit").exists())

    def test_a_refusal_is_named(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        results = dict(report.probe("/proc/nowhere", port, ["/nonexistent"]))
        self.assertIsInstance(results["read /nonexistent/.ssh/id_*"], FileNotFoundError)
        self.assertIsInstance(results[f"connect to 127.0.0.1:{port}"], ConnectionRefusedError)
        self.assertIsInstance(results["write .git/hooks/pre-commit"], OSError)


if __name__ == "__main__":
    testing.main()
