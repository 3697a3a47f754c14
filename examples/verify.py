#!/usr/bin/env python3
"""Checks form, signatures, keys and chain of a ledger without any code of this project.

It cuts each line at fixed offsets, and leaves JSON to the standard library and Ed25519 to the package `cryptography`:
nobody needs to trust our parser. What records mean (the range of a number, the fields of a body), openings, blobs,
checkpoints and recoveries are for `verify`; a run that writes meanwhile can look like a torn tail. Exit: 0 good, 10 bad, 2 usage or no ledger, 13 no records.
"""
import argparse, base64, hashlib, json, os, re, stat, sys
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

MAX_LINE, SEGMENT = 65535, 8192
getattr(sys, "set_int_max_str_digits", id)(0)  # a line is short enough for any number in it
ENVELOPE = re.compile(rb'\{"key":"([0-9a-f]{64})","record":(.*),"signature":"(.{88})"\}', re.DOTALL)  # offsets 83, -104
P, Y8 = 2**255 - 19, 0x05fc536d880238b13933c6d305acdfd5f098eff289f4c345b027b2c28f95e826  # WEAK: order divides 8, lax forms too
WEAK = {(y | sign << 255).to_bytes(32, "little") for y in (0, 1, P - 1, Y8, P - Y8, P, P + 1) for sign in (0, 1)}
FIELDS = {"body", "clock", "kind", "ledger", "previous", "sequence", "time", "version"}
BODY = {"genesis": {"custody", "origin", "publicKey", "tool"}, "key": {"custody", "publicKey", "reason"}}

def signed(public, message, signature):
    try:  # OpenSSL wants S below the order and R itself, no cofactor; strict refuses an R or key of small order too
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
        return public not in WEAK and signature[:32] not in WEAK
    except (InvalidSignature, ValueError):
        return False

def unbase64(text, size):
    try:  # so many bytes, or none when they are not written as encoding writes them
        data = base64.b64decode(text, validate=True)
        return data if len(data) == size and base64.b64encode(data).decode() == text else b""
    except (TypeError, ValueError):
        return b""

def no_number(text):
    raise ValueError(f"record-not-canonical: {text[:40]} is not written as a whole number")

def parse(line):
    if len(line) > MAX_LINE:
        raise ValueError(f"record-too-large: {len(line)} bytes, at most {MAX_LINE}")
    order = lambda pairs: dict(sorted(pairs, key=lambda pair: pair[0].encode("utf-16-be")))  # as RFC 8785 wants it
    try:  # integers of any size are exact here; which ones a record may hold is for `verify`
        value = json.loads(line.decode(), object_pairs_hook=order, parse_float=no_number, parse_constant=no_number)
        again = json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("record-malformed: nested too deeply to be read") from None
    if again != line:
        raise ValueError("record-not-canonical: the line is not the canonical form of what it says")
    return value if isinstance(value, dict) else {}

class Chain:
    ledger = public = standby = closed = None
    records, next, head, used = 0, 0, "0" * 64, set()

    def step(self, line):
        bad, value = [], {}  # everything that is wrong with the next record line
        say = lambda wrong, problem: bad.append(problem) if wrong else None
        try:
            value = parse(line)
        except ValueError as error:
            say(True, str(error) if str(error).startswith("record-") else f"record-malformed: {error}")
        envelope = ENVELOPE.fullmatch(line)
        key, signature = (envelope[1].decode(), unbase64(envelope[3].decode("latin-1"), 64)) if envelope else ("", b"")
        say(not bad and not (signature and value.keys() == {"key", "record", "signature"}), "record-malformed: no signed envelope")
        record = value["record"] if isinstance(value.get("record"), dict) else {}
        read = record.keys() == FIELDS and json.dumps(record["version"]) == "1" and isinstance(record["body"], dict)
        kind, body = (record["kind"], record["body"]) if read else (None, {})  # else `verify` says what is wrong with it
        new = unbase64(body.get("publicKey"), 32) if body.keys() - {"standby", "possession"} == BODY.get(str(kind)) else b""
        genesis, rotation, by_standby = new and kind == "genesis", new and kind == "key", key == self.standby and kind == "key"
        place = record["sequence"] if type(record.get("sequence")) is int else self.next
        for name, code, expected in (("sequence", "chain-sequence-gap", self.next), ("previous", "chain-previous-mismatch", self.head),
                                     ("ledger", "ledger-mismatch", self.ledger or record.get("ledger"))):
            say(record and record.get(name) != expected, f"{code}: {name} is {record.get(name)}, expected {expected}")
        say(self.closed is not None, f"record-after-close: record {self.closed} closed the ledger")
        say(bool(genesis) == bool(self.records), "genesis-repeated: a second one" if genesis else "genesis-missing: the first record is another")
        say(new and new in WEAK, "key-weak: the public key has small order, anybody could sign for it")
        if genesis and not self.records and new not in WEAK:
            self.ledger, self.public, self.standby, self.used = record["ledger"], new, body.get("standby"), {new}
        public = (new if by_standby else self.public) or b""
        if signature and hashlib.sha256(public).hexdigest() != key:
            say(True, f"key-unknown: signed by {key}, which may not sign here")
        elif signature and not signed(public, b"containment-ledger/record/v1\n" + envelope[2], signature):
            say(True, "signature-invalid: the signature is not the key's over this record")
        if rotation:
            message = "containment-ledger/possession/v1\n{ledger}\n{sequence}\n{previous}\n".format_map(record) + hashlib.sha256(new).hexdigest() + "\n"
            held = "possession" not in body if by_standby else signed(new, message.encode(), unbase64(body.get("possession"), 64))
            say(not held or new in self.used or "standby" in body and not by_standby,
                "rotation-invalid: the new key was active before, or the record does not prove that it may take over")
            if not bad:  # only a record that holds moves keys or closes
                self.public, self.used, self.standby = new, self.used | {new}, body.get("standby") if by_standby else self.standby
        self.closed = place if kind == "close" and not bad else self.closed
        self.records, self.next, self.head = self.records + 1, place + 1, hashlib.sha256(b"\0" + line).hexdigest()
        return bad

def main(path):
    chain, problems, opening = Chain(), [], False
    folder = os.path.join(path, "records") if os.path.isdir(path) else ""
    names = sorted(os.listdir(folder)) if folder else [path]
    for index, name in enumerate(names):
        if folder and (name != f"{index:08}.jsonl" or not stat.S_ISREG(os.lstat(os.path.join(folder, name)).st_mode)):
            problems.append(f"{name}: segment-unexpected: expected {index:08}.jsonl, a regular file")
            continue
        before, last = chain.records, name == names[-1]
        for number, line in enumerate(sys.stdin.buffer if path == "-" else open(os.path.join(folder, name), "rb"), 1):
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
    parser.add_argument("path", metavar="PATH", help="a ledger folder, a .jsonl file of its lines, or - for standard input")
    try:
        sys.exit(main(parser.parse_args().path))
    except OSError as error:
        parser.error(f"cannot read a ledger: {error}")
