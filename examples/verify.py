#!/usr/bin/env python3
"""Checks form, signatures, keys and chain of a ledger, and the proofs of a bundle, without any code of this project.

It cuts each line at fixed offsets, and leaves JSON to the standard library and Ed25519 to the package `cryptography`:
nobody needs to trust our parser. What records mean that move no key and close nothing, openings, blobs and checkpoints of a folder,
and recoveries are for `verify`; a run that writes meanwhile can look like a torn tail. Exit: 0 good, 10 bad, 2 usage or no ledger, 13 no records.
"""
import argparse, base64, datetime, hashlib, itertools, json, os, re, stat, sys
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

MAX_LINE, SEGMENT = 65535, 8192
getattr(sys, "set_int_max_str_digits", id)(0)  # a line is short enough for any number in it
ENVELOPE = re.compile(rb'\{"key":"([0-9a-f]{64})","record":(.*),"signature":"([A-Za-z0-9+/]{85}[AQgw]==)"\}', re.DOTALL)  # offsets 83, -104
P, Y8 = 2**255 - 19, 0x05fc536d880238b13933c6d305acdfd5f098eff289f4c345b027b2c28f95e826  # WEAK: order divides 8, lax forms too
WEAK = {(y | sign << 255).to_bytes(32, "little") for y in (0, 1, P - 1, Y8, P - Y8, P, P + 1) for sign in (0, 1)}
HEX, TEXT, CUSTODY, PUBLIC = "[0-9a-f]{64}", r'"(?:[^"\\]|\\.)*"', '"custody":"(?:file|agent|ephemeral)"', '"publicKey":"[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]="'
BODY = {"genesis": rf'{CUSTODY},"origin":"(?!containment-ledger/|cosignature/|subtree/|SSHSIG|DSSEv1)[A-Za-z0-9][A-Za-z0-9._/-]{{0,254}}",{PUBLIC}(?:,"standby":"{HEX}")?,"tool":{{"name":{TEXT},"version":{TEXT}}}',
        "key": rf'{CUSTODY}(?:,"possession":"[A-Za-z0-9+/]{{85}}[AQgw]==")?,{PUBLIC},"reason":"(?:routine|loss|compromise)"(?:,"standby":"{HEX}")?', "close": f'"reason":{TEXT}'}
STATE = {kind: re.compile(rf'{{"body":{{{body}}},"clock":{{"bootId":"[0-9a-f]{{8}}(?:-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}","sinceBootUs":([0-9]+)}},"kind":"{kind}","ledger":"{HEX}",'
    rf'"previous":"{HEX}","sequence":([0-9]+),"time":"([0-9]{{4}})(-[0-9]{{2}}-[0-9]{{2}}T(?:[01][0-9]|2[0-3]):[0-9]{{2}}:[0-9]{{2}}\.[0-9]{{6}})Z","version":1}}') for kind, body in BODY.items()}

def fits(kind, text):
    try:  # a record that moves keys or closes is read to its last byte; the year is put where Python has a calendar
        since, place, year, rest = STATE[kind].fullmatch(text).groups()
        return bool(datetime.datetime.fromisoformat(f"{int(year) % 400 + 400:04}{rest}")) and max(int(since), int(place)) < 2**53
    except (AttributeError, ValueError):
        return False

def signed(public, message, signature):
    try:  # OpenSSL wants S below the order and R itself, no cofactor; strict refuses an R or key of small order too
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
        return public not in WEAK and signature[:32] not in WEAK
    except (InvalidSignature, ValueError):
        return False

def parse(line):
    if len(line) > MAX_LINE:
        raise ValueError(f"record-too-large: {len(line)} bytes, at most {MAX_LINE}")
    order = lambda pairs: dict(sorted(pairs, key=lambda pair: pair[0].encode("utf-16-be")))  # as RFC 8785 wants it
    try:  # integers of any size are exact here; which ones a record may hold is for `verify`
        value = json.loads(line.decode(), object_pairs_hook=order, parse_float=lambda text: None, parse_constant=lambda text: None)
        again = json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("record-malformed: nested too deeply to be read") from None
    if again != line:
        raise ValueError("record-not-canonical: the line is not the canonical form of what it says")
    return value if isinstance(value, dict) else {}

class Chain:
    ledger, origin, public, standby, closed, records, next, head, used = None, None, None, None, None, 0, 0, "0" * 64, set()

    def step(self, line, proven=None):
        bad, value = [], {}  # everything that is wrong with the next record line; of a bundle, `proven` says why it is not at its place
        say = lambda wrong, problem: bad.append(problem) if wrong else None
        try:
            value = parse(line)
        except ValueError as error:
            say(True, str(error) if str(error).startswith("record-") else f"record-malformed: {error}")
        envelope = ENVELOPE.fullmatch(line)
        key, signature = (envelope[1].decode(), base64.b64decode(envelope[3])) if envelope else ("", b"")
        say(not bad and not (signature and value.keys() == {"key", "record", "signature"}), "record-malformed: no signed envelope")
        record = value["record"] if isinstance(value.get("record"), dict) else {}
        moves = json.dumps(record.get("version")) == "1" and record.get("kind") in list(STATE)  # other kinds are for `verify`
        kind = record["kind"] if moves and envelope and fits(record["kind"], envelope[2].decode(errors="replace")) else None
        say(not bad and moves and not kind, "record-malformed: its fields are not those of its kind")
        new = base64.b64decode((body := record["body"] if kind else {}).get("publicKey", ""))
        genesis, rotation, by_standby = new and kind == "genesis", new and kind == "key", key == self.standby and kind == "key"
        place = record["sequence"] if type(record.get("sequence")) is int else self.next
        if proven:  # records may be left out before it, but for the first
            problem = record and proven(place)
            say(problem, f"chain-previous-mismatch: {problem}")
            if self.records and place > self.next:
                self.next, self.head = place, record.get("previous")
        for name, code, expected in (("sequence", "chain-sequence-gap", self.next), ("previous", "chain-previous-mismatch", self.head),
                                     ("ledger", "ledger-mismatch", self.ledger or record.get("ledger"))):
            say(record and record.get(name) != expected, f"{code}: {name} is {record.get(name)}, expected {expected}")
        say(self.closed is not None, f"record-after-close: record {self.closed} closed the ledger")
        say(bool(genesis) == bool(self.records), "genesis-repeated: a second one" if genesis else "genesis-missing: the first record is another")
        say(new and new in WEAK, "key-weak: the public key has small order, anybody could sign for it")
        if genesis and not self.records and new not in WEAK:
            self.origin, self.ledger, self.public, self.standby, self.used = body["origin"], record["ledger"], new, body.get("standby"), {new}
        public = (new if by_standby else self.public) or b""
        if signature and hashlib.sha256(public).hexdigest() != key:
            say(True, f"key-unknown: signed by {key}, which may not sign here")
        elif signature and not signed(public, b"containment-ledger/record/v1\n" + envelope[2], signature):
            say(True, "signature-invalid: the signature is not the key's over this record")
        if rotation:
            message = "containment-ledger/possession/v1\n{ledger}\n{sequence}\n{previous}\n".format_map(record) + hashlib.sha256(new).hexdigest() + "\n"
            held = "possession" not in body if by_standby else signed(new, message.encode(), base64.b64decode(body.get("possession", "")))
            say(not held or new in self.used or "standby" in body and not by_standby,
                "rotation-invalid: the new key was active before, or the record does not prove that it may take over")
            if not bad:  # only a record that holds moves keys or closes
                self.public, self.used, self.standby = new, self.used | {new}, body.get("standby") if by_standby else self.standby
        self.closed = place if kind == "close" and not bad else self.closed
        self.records, self.next, self.head = self.records + 1, place + 1, hashlib.sha256(b"\0" + line).hexdigest()
        return bad

def root_of(leaf, at, last, proof):  # RFC 9162, 2.1.3.2
    for beside in proof if at <= last else [b""] * 65:
        leaf, done = hashlib.sha256(b"\1" + (beside + leaf if at & 1 or at == last else leaf + beside)).digest(), last <= 0
        while at == last and at and not at & 1:
            at, last = at >> 1, last >> 1
        at, last = at >> 1, -1 if done else last >> 1
    return leaf if last == 0 else None

def vouches(note, origin, public):  # C2SP signed note: the key's own line is there and holds
    text, _, lines = note.rpartition("\n\n")
    key = hashlib.sha256(f"{origin}\n\1".encode() + public).digest()[:4]
    own = re.findall(rf"^\u2014 {re.escape(origin)} ((?:[A-Za-z0-9+/]{{4}})+(?:[A-Za-z0-9+/]{{2}}==|[A-Za-z0-9+/]{{3}}=)?)$", lines, re.M)
    own = [line[4:] for line in map(base64.b64decode, own) if line[:4] == key]
    return note.startswith(f"{origin}\n") and bool(own) and all(signed(public, f"{text}\n".encode(), signature) for signature in own)

def bundle(lines, problems):
    chain, seen, files, proof, opening, header, note, tree = Chain(), 0, {}, None, False, {}, "", (0, b"")
    def proven(place):
        given = [base64.b64decode(it) for it in proof["proof"]] if proof and proof["index"] == place else None
        found = given is not None and root_of(hashlib.sha256(b"\0" + line).digest(), place, tree[0] - 1, given)
        return "" if found == tree[1] else "no proof for this place leads to the checkpoint's root"
    for number, raw in enumerate(lines, 1):
        line, kind = raw.removesuffix(b"\n"), (re.match(rb'\{"([a-z]+)":', raw) or [b"", b""])[1]
        stage = {b"bundle": 1, b"checkpoint": 2, b"at": 3}.get(kind, 4)  # in this order, the first two once
        bad = [] if stage in ((1,), (2,), (3, 4), (3, 4), (4,))[seen] else ["record-malformed: a line that does not stand in its place"]
        seen = max(seen, stage)
        try:
            value = parse(line) if stage < 4 or kind in (b"index", b"open") else None
            header, opening = value if kind == b"bundle" else header, opening or kind == b"open"  # what it opens is for `verify`
            if value is None:
                bad, proof, opening = bad + chain.step(line, proven), None, False
            elif kind == b"index":
                bad, proof = bad + ["record-malformed: a proof that is not the first line of its record"] * (bool(proof) or opening), value
            elif kind == b"checkpoint":  # who signed it is known at the end
                note, (_, size, root) = value["checkpoint"], value["checkpoint"].split("\n\n")[0].split("\n")
                tree = int(size), base64.b64decode(root)
            elif kind == b"at":
                file, content = files.setdefault(value["blob"], [0, value["size"], hashlib.sha256()]), base64.b64decode(value["bytes"], validate=True)
                fits = file[:2] == [value["at"], value["size"]] and len(content) == min(45000, file[1] - file[0]) and value["blob"] == max(files)
                bad, file[0] = bad + ["blob-mismatch: the piece does not fit its file"] * (not fits), file[0] + len(content)
                file[2].update(content)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            bad.append(str(error) if str(error).startswith("record-") else f"record-malformed: {error!r}")
        problems += [f"{number}: {problem}" for problem in bad + ["record-malformed: no newline"] * (raw[-1:] != b"\n")]
    problems += [f"{name}: blob-mismatch: another content" for name, (at, size, of) in files.items() if at != size or of.hexdigest() != name]
    problems += [] if chain.public and vouches(note, chain.origin, chain.public) else ["checkpoint-invalid: not signed by the ledger's key"]
    told = {"bundle": "containment-ledger/bundle/v1", "files": len(files), "ledger": chain.ledger, "records": chain.records, "size": tree[0]}
    differs = {name: header.get(name) for name in told if header.get(name) != told[name]}
    problems += [f"tail-truncated: the header says {name} {said}, it should be {told[name]}" for name, said in differs.items()]
    problems += ["tail-truncated: a proof or an opening at the end without its record"] * bool(proof or opening)
    problems += ["tail-truncated: the header says more than it should"] * bool(header.keys() - told.keys())
    print(f"{chain.records} records shown, {max(tree[0] - chain.records, 0)} withheld")
    return chain

def main(path):
    folder = os.path.join(path, "records") if os.path.isdir(path) else ""
    problems = ["records: segment-unexpected: expected a folder"] if folder and not stat.S_ISDIR(os.lstat(folder).st_mode) else []
    chain, opening, names = Chain(), False, [] if problems else sorted(os.listdir(folder)) if folder else [path]
    for index, name in enumerate(names):
        if folder and (name != f"{index:08}.jsonl" or not stat.S_ISREG(os.lstat(os.path.join(folder, name)).st_mode)):
            problems.append(f"{name}: segment-unexpected: expected {index:08}.jsonl, a regular file")
            continue
        before, last = chain.records, name == names[-1]
        lines = sys.stdin.buffer if path == "-" else open(os.path.join(folder, name), "rb")
        if (first := lines.readline()).startswith(b'{"bundle":') and not folder:
            chain = bundle(itertools.chain([first], lines), problems)
            break
        for number, line in enumerate(itertools.chain([first] if first else [], lines), 1):
            opening = line.startswith(b'{"open":')
            bad = ([] if opening else chain.step(line.removesuffix(b"\n"))) + (["torn-tail: no newline"] if line[-1:] != b"\n" else [])
            problems += [f"{name}:{number}: {problem}" for problem in bad]
        if folder and not (chain.records - before == SEGMENT or chain.records - before < SEGMENT and last):
            problems.append(f"{name}: segment-unexpected: {chain.records - before} records, all but the last have {SEGMENT}")
    problems += [f"{name}: torn-tail: an opening at the end without its record"] if opening else []
    print("\n".join(problems + [f"{chain.records} records, {len(problems)} problems, head {chain.head}"]))
    return 10 if problems else 0 if chain.records else 13

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", metavar="PATH", help="a ledger folder, a bundle, a .jsonl file of its lines, or - for standard input")
    try:
        sys.exit(main(parser.parse_args().path))
    except OSError as error:
        parser.error(f"cannot read a ledger: {error}")
