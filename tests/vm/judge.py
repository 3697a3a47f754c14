#!/usr/bin/env python3
"""Judges what came back from guests.

    judge.py VERIFY FOLDER GUEST…      FOLDER/GUEST/{root,user,…} are what payload/steps left, VERIFY is the program

Every ledger is verified here, on the machine that built it all, and has to end where it ended in the guest. Exit statuses
and cells are compared with expected.py. A host whose cells are not those of the reference has to differ from it in the
field of the host record that expected.py names for them; `verify diff` says in which fields two hosts differ.
Exit status: 0, or 1 and a line for each thing that is not as expected.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import expected

class Problems:
    def __init__(self):
        self.lines = []

    def add(self, where, what):
        self.lines.append(f"{where}: {what}")


def call(verify, *arguments):
    """Exit status and document of a call of verify."""
    done = subprocess.run([verify, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        return done.returncode, json.loads(done.stdout)
    except ValueError:
        return done.returncode, {"not JSON": done.stderr.decode(errors="replace").strip()}


def codes(document):
    """What was found wrong."""
    found = document.get("findings", [])
    return sorted({finding["code"] for finding in found if finding["severity"] != "observation"})


def steps(folder):
    """Name and exit status of each step that was done."""
    return {path.stem: path.read_text().strip() for path in sorted(folder.glob("*.status"))}


def check_steps(problems, where, folder, guest, who):
    found = steps(folder)
    for name, status in expected.steps(guest, who).items():
        if found.get(name) != str(status):
            problems.add(where, f"step {name}: status {found.get(name, 'missing')}, expected {status}")
            said = folder / f"{name}.err"
            for line in said.read_text(errors="replace").splitlines()[-6:] if said.exists() else []:
                problems.add(where, f"step {name}: | {line}")
    for name in sorted(found.keys() - expected.steps(guest, who).keys()):
        problems.add(where, f"step {name} stands in no table")


def bodies_of(ledger, kind):
    """Sequence to body of the records of a kind in a ledger that verifies."""
    lines = (line for path in sorted((ledger / "records").iterdir()) for line in path.read_bytes().splitlines())
    records = (json.loads(line).get("record") for line in lines)
    return {record["sequence"]: record["body"] for record in records if record and record["kind"] == kind}


def check_tier(problems, where, folder, guest, who):
    """What `doctor` says of the tier, and what stands in the start records of what was launched."""
    tier = expected.tier(guest, who)
    try:
        said = json.loads((folder / "doctor.out").read_text())
    except (OSError, ValueError) as error:
        problems.add(where, f"step doctor: what it said cannot be read: {error}")
        return
    if said.get("tier") != tier:
        problems.add(where, f"step doctor: tier {said.get('tier')}, expected {tier}")
    # What was refused, or is no program, was started in none.
    starts = [body["runtime"] for body in bodies_of(folder / "ledger", "start").values()]
    found = {f"{runtime['id']} {runtime['tier']}" for runtime in starts if "tier" in runtime}
    if found != ({f"embedded {tier}"} if tier else set()):
        problems.add(where, f"started in {sorted(found)}, expected {tier}")


def check_observed(problems, where, folder, guest, who):
    """What runs under limits left in their records."""
    bodies = bodies_of(folder / "ledger", "execution")
    for step, (verdict, spans) in expected.observed(guest, who).items():
        errors = folder / f"{step}.err"
        said = errors.read_text(errors="replace") if errors.exists() else "it was not done"
        named = re.search(r"^runner: record (\d+): ", said, re.MULTILINE)
        body = bodies.get(int(named[1])) if named else None
        if body is None:
            problems.add(where, f"step {step}: no execution record: {said.strip()}")
            continue
        if body["verdict"] != verdict:
            problems.add(where, f"step {step}: verdict {body['verdict']}, expected {verdict}")
        observed = dict(body.get("observed", {}))
        if "cpuUs" in observed and "durationUs" in body["result"]:
            observed["cpuPermille"] = observed["cpuUs"] * 1000 // body["result"]["durationUs"]
        for name, span in spans.items():
            found = observed.get(name)
            if span is None or found is None:
                if span is not None or found is not None:
                    problems.add(where, f"step {step}: {name} is {found}, expected {span}")
            elif not span[0] <= found <= span[1]:
                problems.add(where, f"step {step}: {name} is {found}, expected {span[0]} to {span[1]}")


def check_ledger(problems, verify, where, ledger, seen_inside):
    """The ledger verifies here, with the same head as in the guest."""
    status, document = call(verify, "--json", ledger)
    if status != 0:
        problems.add(where, f"verify {ledger.name}: status {status}, {codes(document) or document}")
        return False
    try:
        inside = json.loads(seen_inside.read_text())
    except (OSError, ValueError) as error:
        problems.add(where, f"verify {ledger.name}: what it said in the guest cannot be read: {error}")
        return True
    if (inside.get("head"), inside.get("ledger")) != (document["head"], document["ledger"]):
        problems.add(where, f"verify {ledger.name}: {inside.get('head')} in the guest, {document['head']} here")
    return True


def check_bundle(problems, verify, where, folder):
    """What was bundled in the guest verifies here, and shows the cells of the ledger it was made of."""
    bundle = folder / "measured.bundle"
    status, document = call(verify, "--json", bundle)
    if status != 0:
        problems.add(where, f"verify {bundle.name}: status {status}, {codes(document) or document}")
    elif cells(verify, bundle) != cells(verify, folder / "measured"):
        problems.add(where, f"{bundle.name} shows other cells than the ledger")


def cells(verify, ledger):
    """(runtime, check) to cell in words, and the host record."""
    status, document = call(verify, "matrix", "--json", ledger)
    if "cells" not in document:
        return {}, f"status {status}, {codes(document) or document}"
    return {(cell["runtime"], cell["check"]): words(cell) for cell in document["cells"]}, document["host"]


def words(cell):
    """A cell as expected.py writes it: `declared contained`, `not-applicable host-forbids`."""
    return " ".join(["declared"] * cell["declared"] + [cell["verdict"]] + [cell["reason"]] * bool(cell["reason"]))


def check_cells(problems, where, found, guest, who):
    table = expected.cells(guest, who)
    for key in sorted((table.keys() | found.keys()) - set(expected.UNSTEADY)):
        wanted, cell = table.get(key, "no such cell"), found.get(key, "missing")
        if cell != wanted:
            problems.add(where, f"{key[0]} {key[1]}: {cell}, expected {wanted}")
        if "false-guarantee" in cell and key[0] not in expected.TEMPLATES:
            problems.add(where, f"{key[0]} {key[1]}: a false guarantee")


def check_differences(problems, verify, folder, guest, who, reference):
    """Each kind of cell that this host has and the reference has not is explained by a field in which they differ."""
    explanations = expected.explanations(guest, who)
    if not explanations:
        return []
    where = f"{guest} {who}"
    status, document = call(verify, "diff", "--json", reference / "measured", folder / "measured")
    if "fingerprints" not in document:
        problems.add(where, f"verify diff with the reference: status {status}, {document}")
        return []
    differ = {entry["what"] for entry in document["fingerprints"]}
    changed = {(cell["runtime"], cell["check"]) for cell in document["cells"] if cell["change"] != "same"}
    lines = []
    for field, keys in explanations.items():
        shown = sorted(keys & changed)
        if shown and field not in differ:
            problems.add(where, f"{len(shown)} cells differ from the reference and `{field}` does not: {shown}")
        if shown:
            lines.append(f"{field}: {len(shown)} cells")
    return lines


def main(arguments):
    if len(arguments) < 3 or arguments[0].startswith("-"):
        print(__doc__.strip(), file=sys.stderr)
        return 0 if arguments[:1] in (["-h"], ["--help"]) else 2
    verify, out, guests = arguments[0], Path(arguments[1]), arguments[2:]
    problems = Problems()
    reference = out / expected.REFERENCE[0] / expected.REFERENCE[1]
    for guest in guests:
        for who in expected.people(guest):
            where, folder = f"{guest} {who}", out / guest / who
            if not folder.is_dir():
                problems.add(where, "there are no results")
                continue
            check_steps(problems, where, folder, guest, who)
            if check_ledger(problems, verify, where, folder / "ledger", folder / "verify.out"):
                check_observed(problems, where, folder, guest, who)
                check_tier(problems, where, folder, guest, who)
            if "matrix" not in expected.steps(guest, who):
                print(f"{where}: {len(expected.steps(guest, who))} steps")
                continue
            check_ledger(problems, verify, where, folder / "measured", folder / "verify-matrix.out")
            check_bundle(problems, verify, where, folder)
            found, host = cells(verify, folder / "measured")
            if not found:
                problems.add(where, f"verify matrix: {host}")
                continue
            if "template" in expected.steps(guest, who):
                check_ledger(problems, verify, where, folder / "template", folder / "verify-template.out")
                found.update(cells(verify, folder / "template")[0])
            check_cells(problems, where, found, guest, who)
            explained = []
            if (guest, who) != expected.REFERENCE and reference.is_dir():
                explained = check_differences(problems, verify, folder, guest, who, reference)
            counts = {}
            for cell in found.values():
                verdict = cell.split(" ")[1] if cell.startswith("declared ") else cell.split(" ")[0]
                counts[verdict] = counts.get(verdict, 0) + 1
            line = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))
            print(f"{where}: Linux {host['kernel']}: {line}" + "".join(f"; by {text}" for text in explained))
    for line in problems.lines:
        print(f"NOT AS EXPECTED: {line}")
    return 1 if problems.lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
