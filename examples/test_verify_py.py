#!/usr/bin/env python3
"""Holds verify.py against the vectors, against ledgers that are made here, and against what is done to a real one.

    RUNNER=…/runner test_verify_py.py [FOLDER]      FOLDER: vectors with expected.json each (default: ../schema/vectors/ledger)
"""
import base64
import contextlib
import hashlib
import io
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

import testing
import verify

HERE = Path(__file__).resolve().parent
ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
VECTORS = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE.parent / "schema" / "vectors" / "ledger"
BUNDLES = HERE.parent / "schema" / "vectors" / "bundle"

# What verify.py is about; everything else that `verify` finds is none of its business.
OURS = {
    "signature-invalid", "key-unknown", "key-weak", "ledger-mismatch", "chain-previous-mismatch", "chain-sequence-gap",
    "genesis-missing", "genesis-repeated", "rotation-invalid", "record-after-close", "segment-unexpected",
    "record-not-canonical", "record-too-large", "torn-tail",
}
# `record-malformed` has two halves: no JSON or no envelope, which is ours, and canonical JSON that is no record.
MALFORMED_IN_FORM = {"blank_line_in_middle", "invalid_utf8"}
MALFORMED_IN_MEANING = {"integer_above_2_53", "time_with_offset", "time_without_micros", "unknown_field", "unknown_field_in_body",
                        "violations_after_the_end", "violations_listed_and_unmeasured", "violations_not_executed", "violations_of_no_call",
                        "violations_seven_arguments", "violations_partly_heard_of_none", "runtime_of_no_template"}


def expected_bad(name, any_of):
    if any_of == ["record-malformed"]:
        if name not in MALFORMED_IN_FORM | MALFORMED_IN_MEANING:
            raise AssertionError(f"{name}: say in this file whether its form or its meaning is malformed")
        return name in MALFORMED_IN_FORM
    return bool(OURS & set(any_of))


def run(path, stdin=None):
    return subprocess.run([sys.executable, HERE / "verify.py", path], input=stdin, capture_output=True, timeout=120)


class Maker:
    """Signed lines from a seed; each method returns the next line and moves on."""

    def __init__(self, seed=0):
        self.ledger, self.previous, self.sequence, self.lines = "ab" * 32, "0" * 64, 0, []
        self.key = self.make_key(seed)

    @staticmethod
    def make_key(seed):
        return Ed25519PrivateKey.from_private_bytes(bytes(range(seed, seed + 32)))

    @staticmethod
    def public(key):
        return key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)

    def add(self, kind, body, key=None, sign=None, **changes):
        key = key or self.key
        record = {"body": body, "clock": {"bootId": "6b1bcd0e-5f0b-4a3e-9a44-0f2b1d2c3e4f", "sinceBootUs": 1}, "kind": kind,
                  "ledger": self.ledger, "previous": self.previous, "sequence": self.sequence,
                  "time": "2026-11-29T12:00:00.000000Z", "version": 1} | changes
        text = json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        signature = (sign or key.sign)(b"containment-ledger/record/v1\n" + text.encode())
        key_id = hashlib.sha256(self.public(key)).hexdigest()
        line = f'{{"key":"{key_id}","record":{text},"signature":"{base64.b64encode(signature).decode()}"}}'.encode()
        self.previous, self.sequence = hashlib.sha256(b"\0" + line).hexdigest(), self.sequence + 1
        self.lines.append(line)
        return self

    def genesis_body(self):
        tool = {"name": "test", "version": "1"}
        return {"custody": "file", "origin": "example.com/x", "publicKey": base64.b64encode(self.public(self.key)).decode(), "tool": tool}

    def genesis(self, **more):
        return self.add("genesis", self.genesis_body() | more)

    def note(self, text="x", **how):
        return self.add("note", {"text": text}, **how)

    def rotate(self, new, signer=None, possession=True, **more):
        new_id = hashlib.sha256(self.public(new)).hexdigest()
        message = f"containment-ledger/possession/v1\n{self.ledger}\n{self.sequence}\n{self.previous}\n{new_id}\n".encode()
        body = {"custody": "file", "publicKey": base64.b64encode(self.public(new)).decode(), "reason": "routine"}
        if possession:
            body["possession"] = base64.b64encode(new.sign(message)).decode()
        self.add("key", body | more, key=signer)
        self.key = new
        return self

    def stream(self):
        return b"".join(line + b"\n" for line in self.lines)


def verdict(stream):
    """The exit code of verify.py and the codes that it named."""
    done = run("-", stream)
    assert not done.stderr, done.stderr.decode()
    codes = {part for line in done.stdout.decode().splitlines() for part in line.split(": ")[1:2]}
    return done.returncode, codes


class Vectors(unittest.TestCase):
    def test_calls_bad_exactly_what_is_its_business(self):
        names = sorted(path.parent.name for path in VECTORS.glob("*/expected.json"))
        self.assertGreaterEqual(len(names), 50, f"vectors expected in {VECTORS}")
        for name in names:
            with self.subTest(name):
                expected = json.loads((VECTORS / name / "expected.json").read_text())
                done = run(VECTORS / name / "ledger")
                self.assertIn(done.returncode, (0, 10, 13), done.stderr.decode())
                self.assertEqual(done.returncode == 10, expected_bad(name, expected["anyOf"]), done.stdout.decode())
                self.assertEqual(done.stderr, b"")

    def test_a_stream_is_read_as_its_folder_is(self):
        for name in ("valid", "signature_changed", "key_rotated"):
            segment = VECTORS / name / "ledger" / "records" / "00000000.jsonl"
            codes = {run(VECTORS / name / "ledger").returncode, run(segment).returncode, run("-", segment.read_bytes()).returncode}
            self.assertEqual(len(codes), 1, name)


class Bundles(unittest.TestCase):
    # What records and openings mean, and blobs that are not there, are for `verify`.
    NOT_OURS = {"opening_changed", "host_left_out", "blob_left_out"}

    def test_calls_bad_exactly_what_is_its_business(self):
        names = sorted(path.parent.name for path in BUNDLES.glob("*/expected.json"))
        self.assertGreaterEqual(len(names), 20, f"bundles expected in {BUNDLES}")
        for name in names:
            with self.subTest(name):
                expected = json.loads((BUNDLES / name / "expected.json").read_text())["exitCode"]
                done = run(BUNDLES / name / "bundle")
                self.assertEqual(done.returncode, 10 if expected and name not in self.NOT_OURS else 0, done.stdout.decode() + done.stderr.decode())
                self.assertEqual(done.stderr, b"")
                self.assertEqual(run("-", (BUNDLES / name / "bundle").read_bytes()).returncode, done.returncode)

    def test_every_change_but_of_openings_is_found(self):
        lines = (BUNDLES / "valid_part" / "bundle").read_bytes().splitlines(keepends=True)
        seed = random.SystemRandom().getrandbits(32)
        by = random.Random(seed)

        def check(changed, what):
            with self.subTest(what, seed=seed), contextlib.redirect_stdout(io.StringIO()):
                problems = []
                verify.bundle(list(io.BytesIO(b"".join(changed))), problems)
                self.assertTrue(problems, what)

        # Bits that say nothing, in the last character before the `=` of a proof, a piece, or the checkpoint's signature and root.
        loose = 0
        for at, line in enumerate(lines):
            for end in () if line.startswith(b'{"open":') else (it.start() for it in re.finditer(rb"[A-Za-z0-9+/]=", line)):
                index = ALPHABET.index(line[end])
                check(lines[:at] + [line[:end] + ALPHABET[index ^ 1:][:1] + line[end + 1:]] + lines[at + 1:], f"loose bit at {end} of line {at}")
                loose += 1
        self.assertGreater(loose, 12)
        for at, line in enumerate(lines):
            if line.startswith(b'{"open":'):
                continue
            for _ in range(4):
                bit = by.randrange(len(line) * 8)
                flipped = bytearray(line)
                flipped[bit // 8] ^= 1 << bit % 8
                check(lines[:at] + [bytes(flipped)] + lines[at + 1:], f"bit {bit} of line {at}")
            check(lines[:at] + lines[at + 1:], f"without line {at}")
            check(lines[:at] + [line] + lines[at:], f"line {at} twice")
            check(lines[:at], f"cut before line {at}")


class Made(unittest.TestCase):
    def test_every_flipped_bit_is_found(self):
        stream = Maker().genesis().note().stream()
        self.assertEqual(verdict(stream), (0, set()))
        line = stream.splitlines()[1]
        for bit in range(0, len(line) * 8, 7):
            changed = bytearray(line)
            changed[bit // 8] ^= 1 << bit % 8
            chain = verify.Chain()
            chain.step(stream.splitlines()[0])
            self.assertTrue(b"\n" in changed or chain.step(bytes(changed)), f"bit {bit}")

    def test_rotation_and_standby(self):
        other, third = Maker.make_key(96), Maker.make_key(64)
        standby = hashlib.sha256(Maker.public(third)).hexdigest()
        self.assertEqual(verdict(Maker().genesis().rotate(other).note().stream())[0], 0)
        self.assertEqual(verdict(Maker().genesis(standby=standby).rotate(third, signer=third, possession=False).note().stream())[0], 0)
        bad = {
            "possession missing": Maker().genesis().rotate(other, possession=False),
            "by standby, with possession": Maker().genesis(standby=standby).rotate(third, signer=third),
            "standby names another key": Maker().genesis(standby=standby).rotate(other, signer=third, possession=False),
            "standby changed by the active key": Maker().genesis(standby=standby).rotate(other, standby="00" * 32),
            "a key that returns": Maker().genesis().rotate(other).rotate(Maker.make_key(0)),
        }
        for name, maker in bad.items():
            with self.subTest(name):
                code, codes = verdict(maker.stream())
                self.assertEqual(code, 10)
                self.assertTrue(codes & {"rotation-invalid", "key-unknown"}, codes)
        # A rotation that does not hold moves nothing: the old key goes on.
        maker = Maker().genesis().rotate(other, possession=False)
        maker.key = Maker.make_key(0)
        self.assertEqual(verdict(maker.note().stream()), (10, {"rotation-invalid"}))

    def test_small_order_r_is_refused_though_openssl_takes_it(self):
        # The key's holder can sign with R = the identity: S = k·a.
        key = Maker.make_key(0)
        digest = hashlib.sha512(bytes(range(32))).digest()
        scalar = (int.from_bytes(digest[:32], "little") & (2**254 - 8)) | 2**254
        order = 2**252 + 27742317777372353535851937790883648493

        def sign(message):
            r = (1).to_bytes(32, "little")
            k = int.from_bytes(hashlib.sha512(r + Maker.public(key) + message).digest(), "little")
            return r + (k * scalar % order).to_bytes(32, "little")

        key.public_key().verify(sign(b"m"), b"m")
        self.assertEqual(verdict(Maker().genesis().note(sign=sign).stream()), (10, {"signature-invalid"}))

    def test_the_list_of_small_order_points_is_complete(self):
        p, d = verify.P, -121665 * pow(121666, -1, verify.P) % verify.P
        root = pow(2, (p - 1) // 4, p)

        def x_of(y):
            square = (y * y - 1) * pow(d * y * y + 1, -1, p) % p
            x = pow(square, (p + 3) // 8, p)
            x = x if x * x % p == square else x * root % p
            return x if x * x % p == square else None

        def double(point):
            x, y = point
            t = d * x * x * y * y
            return 2 * x * y * pow(1 + t, -1, p) % p, (y * y + x * x) * pow(1 - t, -1, p) % p

        def order_divides_8(y):
            x = x_of(y % p)
            return x is not None and double(double(double((x, y % p)))) == (0, 1)

        listed = {int.from_bytes(point, "little") % 2**255 for point in verify.WEAK}
        self.assertTrue(all(order_divides_8(y) for y in listed))
        # y: 1, -1, 0 and the two of order 8 give all eight points; below 2^255 only 0 and 1 have a second form.
        points = {(x, y % p) for y in listed for x in (x_of(y % p), -x_of(y % p) % p)}
        self.assertEqual((len(points), len(listed), len(verify.WEAK)), (8, 7, 14))
        self.assertEqual({y for y in range(p, 2**255) if order_divides_8(y)}, {p, p + 1})

    def test_json_has_one_meaning(self):
        good = [b'{"a":9007199254740993}', b'{"a":' + b"1" * 5000 + b"}", b'{"a":' * 17 + b"{}" + b"}" * 17, b'{"a":-1,"b":[true,null]}', '{"a":"é\u2028\x7f\U0001f600"}'.encode(), b'{"a":"\\b\\u0001\\\\\\""}', b'{"\xf0\x9f\x98\x80":1,"\xef\xbf\xbd":2}']
        bad = [b'{"a":-0}', b'{"a":1.0}', b'{"a":1e2}', b'{"a":NaN}', b'{"a":Infinity}', b'{"a":1.5}', b'{"a":1,"a":1}',
               b'{"a":"\\ud800"}', b'{"a":"\\u001F"}', b'{"a":"\\u0008"}', b'{"a":"\\/"}', b'{"a":01}', b'\xef\xbb\xbf{}', b'{} {}', b'',
               b'{"b":1,"a":1}', b'{"a":1}\r', b'{"\xef\xbf\xbd":2,"\xf0\x9f\x98\x80":1}',
               b'{"a":00}', b'{"a":+1}', b"[" * 60000, b"[" * 30000 + b"]" * 30000]
        for line in good:
            self.assertTrue(verify.parse(line), line)
        for line in bad:
            with self.subTest(line[:40]), self.assertRaises(ValueError):
                verify.parse(line)

    def test_envelope_must_be_in_place(self):
        line = Maker().genesis().lines[0]
        key = line[8:72]
        # "==" leaves four unused bits, which must be zero.
        loose = line[:-5] + bytes([line[-5] + 1]) + line[-4:]
        self.assertEqual(base64.b64decode(loose[-90:-2]), base64.b64decode(line[-90:-2]))
        for changed in (line.replace(key, key.upper(), 1), loose, line.replace(b',"signature"', b',"s":1,"signature"'), b"[]", b"1"):
            with self.subTest(changed[-40:]):
                self.assertEqual(verdict(changed + b"\n")[0], 10)

    def test_openings_are_stepped_over_but_not_at_the_end(self):
        opening = b'{"open":{"argv":["00",[]]},"sequence":1}\n'
        first, second = (line + b"\n" for line in Maker().genesis().note().lines)
        self.assertEqual(verdict(first + opening + second), (0, set()))
        self.assertEqual(verdict(first + second + opening), (10, {"torn-tail"}))
        self.assertEqual(verdict(first + second[:-1]), (10, {"torn-tail"}))

    def test_what_changes_state_has_exactly_the_form_that_verify_wants(self):
        other = Maker.make_key(96)
        good = {"text": {"tool": {"name": "a\"\\\u0001é", "version": ""}}, "leap day": {}, "origin": {"origin": "a" + "/" * 254}}
        for name, more in good.items():
            with self.subTest(name):
                self.assertEqual(verdict(Maker().genesis(**more).rotate(other).add("close", {"reason": "é\n"}).stream()), (0, set()))
        for time in ("2000-02-29T23:59:59.999999Z", "0000-02-29T00:00:00.000000Z", "9999-12-31T00:00:00.000000Z"):
            self.assertEqual(verdict(Maker().genesis().add("close", {"reason": ""}, time=time).stream()), (0, set()), time)
        clock = {"bootId": "6b1bcd0e-5f0b-4a3e-9a44-0f2b1d2c3e4f", "sinceBootUs": 1}
        heads = [{"time": time} for time in ("2026-11-29T12:00:00Z", "2026-11-29T12:00:60.000000Z", "2026-11-29T24:00:00.000000Z", "2026-02-30T12:00:00.000000Z",
                                             "2100-02-29T12:00:00.000000Z", "2026-11-29 12:00:00.000000Z", "2026-11-29T12:00:00.000000+00:00", "2026-11-29T12:00:00.000000Z\n", 5)]
        heads += [{"clock": clock | {"sinceBootUs": value}} for value in (-1, 2**53, "1", None)] + [{"clock": clock | {"bootId": clock["bootId"].upper()}}, {"clock": clock | {"x": 1}}, {"clock": {}}]
        for head in heads:
            for name, maker in {"genesis": Maker().add("genesis", Maker().genesis_body(), **head), "close": Maker().genesis().add("close", {"reason": "r"}, **head)}.items():
                with self.subTest(name, head=head):
                    code, codes = verdict(maker.stream())
                    self.assertEqual((code, "record-malformed" in codes), (10, True), codes)
        # What is refused closes nothing: the note after it is no record after close.
        for body in ({}, {"reason": 1}, {"reason": "r", "x": 1}, {"text": "r"}, [], "r", None):
            with self.subTest(close=body):
                self.assertEqual(verdict(Maker().genesis().add("close", body).note().stream()), (10, {"record-malformed"}))
        for more in ({"custody": "cloud"}, {"custody": None}, {"origin": "-x"}, {"origin": ""}, {"origin": "a" * 256}, {"origin": "cosignature/x"}, {"origin": "a b"}, {"origin": "é"},
                     {"standby": "AB" * 32}, {"standby": None}, {"standby": "ab"}, {"tool": "x"}, {"tool": {"name": "x"}}, {"tool": {"name": "x", "version": 1}},
                     {"tool": {"name": "x", "version": "1", "y": ""}}, {"x": 1}, {"publicKey": "A" * 44}, {"publicKey": "x"}, {"publicKey": None}):
            with self.subTest(genesis=more):
                code, codes = verdict(Maker().genesis(**more).note().stream())
                self.assertEqual(code, 10)
                self.assertLessEqual({"record-malformed", "genesis-missing", "key-unknown"}, codes)
        for more in ({"custody": "cloud"}, {"reason": "whim"}, {"reason": None}, {"x": 1}, {"standby": "AB" * 32}):
            with self.subTest(key=more):
                maker = Maker().genesis().rotate(other, signer=Maker.make_key(0), **more)
                self.assertEqual(verdict(maker.note(key=Maker.make_key(0)).stream()), (10, {"record-malformed"}))
                self.assertEqual(verdict(Maker().genesis().rotate(other, signer=Maker.make_key(0), **more).note().stream()), (10, {"record-malformed", "key-unknown"}))

    def test_records_that_is_no_folder(self):
        make = {"link": lambda at: at.symlink_to("elsewhere"), "dangling": lambda at: at.symlink_to("nowhere"), "file": lambda at: at.write_bytes(b""), "fifo": os.mkfifo}
        for name, function in make.items():
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                Path(folder, "elsewhere").mkdir()
                Path(folder, "elsewhere", "00000000.jsonl").write_bytes(Maker().genesis().stream())
                function(Path(folder, "records"))
                done = run(folder)
                self.assertEqual((done.returncode, b"segment-unexpected" in done.stdout), (10, True), done.stderr)

    def test_closed_and_second_genesis(self):
        self.assertEqual(verdict(Maker().genesis().add("close", {"reason": "r"}).stream())[0], 0)
        self.assertEqual(verdict(Maker().genesis().add("close", {"reason": "r"}).note().stream()), (10, {"record-after-close"}))
        self.assertEqual(verdict(Maker().genesis().genesis().stream()), (10, {"genesis-repeated"}))

    def test_segments(self):
        maker = Maker().genesis()
        for _ in range(verify.SEGMENT):
            maker.note()
        whole, rest = maker.lines[:verify.SEGMENT], maker.lines[verify.SEGMENT:]
        text = lambda lines: b"".join(line + b"\n" for line in lines)
        layouts = {
            "good": ({"00000000.jsonl": text(whole), "00000001.jsonl": text(rest)}, 0),
            "too long": ({"00000000.jsonl": maker.stream()}, 10),
            "surplus": ({"00000000.jsonl": text(whole), "00000001.jsonl": text(rest), "notes.txt": b""}, 10),
            "gap": ({"00000000.jsonl": text(whole), "00000002.jsonl": text(rest)}, 10),
        }
        for name, (files, code) in layouts.items():
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                records = Path(folder, "records")
                records.mkdir()
                for file, content in files.items():
                    (records / file).write_bytes(content)
                self.assertEqual(run(folder).returncode, code)
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "records").mkdir()
            Path(folder, "elsewhere").write_bytes(text(whole))
            Path(folder, "records", "00000000.jsonl").symlink_to(Path(folder, "elsewhere"))
            self.assertEqual(run(folder).returncode, 10)

    def test_usage_and_nothing_are_never_good(self):
        self.assertEqual(run("/nonexistent").returncode, 2)
        self.assertEqual(run("-", b"").returncode, 13)
        self.assertEqual(subprocess.run([sys.executable, HERE / "verify.py"], capture_output=True).returncode, 2)

    def test_it_is_short(self):
        self.assertLess(len((HERE / "verify.py").read_text().splitlines()), 185)


class Tampered(unittest.TestCase):
    """Two ledgers of real executions by one key, and everything that can be done to the lines of one."""

    CHANGES = 400

    @classmethod
    def setUpClass(cls):
        if "RUNNER" not in os.environ:
            raise unittest.SkipTest("RUNNER names no runner that makes a ledger")
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        at = Path(folder.name)
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("RUNNER", "XDG_"))} | {"HOME": str(at)}
        call = lambda *arguments: subprocess.run([os.environ["RUNNER"], *map(str, arguments)], capture_output=True, timeout=300, env=environment, cwd=at)
        if not json.loads(call("--json", "doctor").stdout)["ready"]:
            raise unittest.SkipTest("this host makes no sandbox")
        call("key", "new", at / "key.pem").check_returncode()
        for ledger in ("one", "other"):
            by = ("--ledger", at / ledger, "--key", at / "key.pem")
            call(*by, "exec", "--", "echo", "words").check_returncode()
            call(*by, "exec", "--clear", "--", "sh", "-c", "seq 2000; echo told >&2").check_returncode()
            call(*by, "note", "a remark").check_returncode()
        cls.lines, cls.sibling = (io.BytesIO((at / ledger / "records" / "00000000.jsonl").read_bytes()).readlines() for ledger in ("one", "other"))
        cls.file = at / "changed.jsonl"

    @staticmethod
    def records(lines):
        return [line for line in lines if not line.startswith(b'{"open":')]

    def verified(self, lines):
        self.file.write_bytes(b"".join(lines))
        with contextlib.redirect_stdout(io.StringIO()) as said:
            code = verify.main(str(self.file))
        return code, said.getvalue()

    def changed(self, by):
        """The lines after one change, and what was done."""
        lines, kind = list(self.lines), by.choice(["flip", "delete", "repeat", "move", "swap", "insert", "truncate", "mix", "replace", "graft"])
        at, to = by.randrange(len(lines)), by.randrange(len(lines))
        if kind == "flip":
            line = bytearray(lines[at])
            bit = by.randrange(len(line) * 8)
            line[bit // 8] ^= 1 << bit % 8
            lines[at] = bytes(line)
        elif kind == "delete":
            del lines[at]
        elif kind == "repeat":
            lines.insert(to, lines[at])
        elif kind == "move":
            lines.insert(to, lines.pop(at))
        elif kind == "swap":
            lines[at], lines[to] = lines[to], lines[at]
        elif kind == "insert":
            lines.insert(at, by.choice([b"\n", b"{}\n", b'{"key":""}\n', by.randbytes(40)]))
        elif kind == "truncate":
            lines[at] = lines[at][:by.randrange(len(lines[at]) - 1)] + by.choice([b"", b"\n"])
        elif kind == "mix":
            lines.insert(at, by.choice(self.sibling))
        elif kind == "replace":
            lines[at] = self.sibling[min(at, len(self.sibling) - 1)]
        else:
            lines[:at] = self.sibling[:at]
        # As a reader cuts them: at newlines alone.
        return [line for line in io.BytesIO(b"".join(lines))], f"{kind} {at} {to}"

    def test_every_change_of_evidence_is_found(self):
        self.assertEqual(self.verified(self.lines)[0], 0)
        seed = random.SystemRandom().getrandbits(32)
        by, found = random.Random(seed), 0
        for number in range(self.CHANGES):
            lines, what = self.changed(by)
            code, said = self.verified(lines)
            records = self.records(lines)
            genuine = any(records == self.records(ledger)[:len(records)] for ledger in (self.lines, self.sibling))
            torn = not lines[-1].endswith(b"\n") or lines[-1].startswith(b'{"open":')
            with self.subTest(seed=seed, number=number, what=what):
                # An end that is gone needs a checkpoint to be missed, and openings are for `verify`.
                self.assertEqual(code, 10 if torn or not genuine else 0, said)
            found += code == 10
        self.assertGreater(found, self.CHANGES // 2)

    def test_every_flipped_bit_of_a_record_is_found(self):
        before, line = self.records(self.lines)[:-1], self.lines[-1].removesuffix(b"\n")
        chain = verify.Chain()
        self.assertEqual([chain.step(record.removesuffix(b"\n")) for record in before], [[]] * len(before))
        for bit in range(len(line) * 8):
            changed = bytearray(line)
            changed[bit // 8] ^= 1 << bit % 8
            here = verify.Chain()
            vars(here).update(vars(chain))
            self.assertTrue(here.step(bytes(changed)), f"bit {bit}")


if __name__ == "__main__":
    testing.main()
