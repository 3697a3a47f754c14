#!/usr/bin/env python3
"""A small real workload: sums up a CSV of sales as report.md and summary.json.

    report.py CSV FOLDER [--probe PORT [--home DIR]]

With --probe it then tries what a workload has no business to do, one line each with what the kernel said:
read private keys and /etc/shadow, reach the listener on 127.0.0.1:PORT, see processes besides its own,
plant a git hook in FOLDER, and open the host's core_pattern for writing. Nothing is changed on the way:
what can be opened is closed again unread or unwritten (a planted hook stays empty and is removed).
Exit: 0 done, and with --probe every attempt failed; 1 an attempt succeeded; 2 usage or unusable input.
"""
import argparse
import csv
import errno
import json
import os
import socket
import sys
from collections import defaultdict
from decimal import Decimal, InvalidOperation
from pathlib import Path

COLUMNS = ["date", "region", "product", "units", "unit_price"]


def read_sales(path):
    """Sales as (month, region, product, units, cents); a row that is not one is an error, never skipped."""
    with open(path, newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        if reader.fieldnames != COLUMNS:
            raise ValueError(f"{path}: line 1: columns are {reader.fieldnames}, expected {COLUMNS}")
        for row in reader:
            try:
                cents = Decimal(row["unit_price"]) * 100
                if cents != int(cents) or None in row:
                    raise ValueError("a price in whole cents and five columns were expected")
                yield row["date"][:7], row["region"], row["product"], int(row["units"]), int(cents) * int(row["units"])
            except (InvalidOperation, TypeError, ValueError) as error:
                raise ValueError(f"{path}: line {reader.line_num}: {error}") from error


def summarise(sales):
    """Totals in cents and units, by month, region and product."""
    totals = {"byMonth": defaultdict(int), "byProduct": defaultdict(int), "byRegion": defaultdict(int)}
    summary = {"cents": 0, "sales": 0, "units": 0}
    for month, region, product, units, cents in sales:
        for name, value in (("cents", cents), ("sales", 1), ("units", units)):
            summary[name] += value
        for name, group in (("byMonth", month), ("byProduct", product), ("byRegion", region)):
            totals[name][group] += cents
    return summary | {name: dict(sorted(groups.items())) for name, groups in totals.items()}


def as_markdown(summary):
    money = lambda cents: f"{cents // 100:,}.{cents % 100:02}"
    lines = ["# Sales", "", f"{summary['sales']} sales of {summary['units']} units, {money(summary['cents'])} in all.", ""]
    for title, name in (("Month", "byMonth"), ("Region", "byRegion"), ("Product", "byProduct")):
        lines += [f"| {title} | Amount |", "|---|---:|"]
        lines += [f"| {group} | {money(cents)} |" for group, cents in summary[name].items()] + [""]
    return "\n".join(lines)


def read_private_keys(homes):
    for home in homes:
        folder = Path(home, ".ssh")
        try:
            names = os.listdir(folder)
        except OSError as error:
            yield f"read {folder}/id_*", error
            continue
        # A folder that can be listed is an answer already; reading a key makes it a worse one.
        readable = [name for name in names if name.startswith("id_") and os.access(folder / name, os.R_OK)]
        yield f"read {folder}/id_*", f"listed {len(names)} names, {len(readable)} keys readable"


def open_and_close(path, flags):
    os.close(os.open(path, flags))
    return "opened"


def connect(port):
    with socket.create_connection(("127.0.0.1", port), timeout=5):
        return "connected"


def parent_of(pid):
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as status:
        return next((int(line.split()[1]) for line in status if line.startswith("PPid:")), 0)


def foreign_processes():
    """Processes that are neither this one nor its ancestors: a sandbox's own init is one of those."""
    own, pid = {os.getpid()}, os.getpid()
    while os.path.exists(f"/proc/{pid}") and (pid := parent_of(pid)) > 0:
        own.add(pid)
    foreign = [name for name in os.listdir("/proc") if name.isdigit() and int(name) not in own]
    if foreign:
        return f"{len(foreign)} processes in sight"
    raise ProcessLookupError(errno.ESRCH, "no process besides its own tree")


def plant_hook(folder):
    hook = Path(folder, ".git", "hooks", "pre-commit")
    existed = os.path.lexists(hook)
    hook.parent.mkdir(parents=True, exist_ok=True)
    result = open_and_close(hook, os.O_WRONLY | os.O_CREAT)
    if not existed:
        hook.unlink()
    return result


def probe(folder, port, homes):
    """Tries everything; yields what was tried and either the OSError or what was reached."""
    yield from read_private_keys(homes)
    for name, attempt in (
        ("read /etc/shadow", lambda: open_and_close("/etc/shadow", os.O_RDONLY)),
        (f"connect to 127.0.0.1:{port}", lambda: connect(port)),
        ("see processes of the host", foreign_processes),
        ("write .git/hooks/pre-commit", lambda: plant_hook(folder)),
        ("open /proc/sys/kernel/core_pattern for writing", lambda: open_and_close("/proc/sys/kernel/core_pattern", os.O_WRONLY)),
    ):
        try:
            yield name, attempt()
        except OSError as error:
            yield name, error


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv")
    parser.add_argument("folder")
    parser.add_argument("--probe", metavar="PORT", type=int)
    parser.add_argument("--home", metavar="DIR", action="append", help="whose .ssh to try (default: one's own and all in sight)")
    arguments = parser.parse_args()
    try:
        summary = summarise(read_sales(arguments.csv))
        Path(arguments.folder, "report.md").write_text(as_markdown(summary), encoding="utf-8")
        text = json.dumps(summary, indent=2, sort_keys=True) + "\n"
        Path(arguments.folder, "summary.json").write_text(text, encoding="utf-8")
    except (OSError, ValueError) as error:
        parser.error(str(error))
    print(f"{summary['sales']} sales, report.md and summary.json written to {arguments.folder}")
    if arguments.probe is None:
        return 0
    homes = arguments.home or sorted({os.path.expanduser("~"), "/root", *map(str, Path("/home").glob("*"))})
    succeeded = 0
    for name, result in probe(arguments.folder, arguments.probe, homes):
        failed = isinstance(result, OSError)
        succeeded += not failed
        word = errno.errorcode.get(result.errno, type(result).__name__) if failed else f"SUCCEEDED: {result}"
        print(f"{name}: {word}")
    return 1 if succeeded else 0


if __name__ == "__main__":
    sys.exit(main())
