"""What guests are expected to show: exit statuses of the steps of payload/steps, and cells of the matrix.

A cell is written `[declared] VERDICT [REASON]`. CELLS is what the reference host shows. Where another host shows something
else, a row of DIFFERENCES says what, and in which field of the host record (as `verify diff` names it) it differs from the
reference: judge.py asserts that it does. Where two cells stand side by side, emulation is now fast enough for the two
seconds of a check and now not; a false guarantee is never expected.
"""

from fnmatch import fnmatchcase

REFERENCE = ("6.1", "root")

# Too slow to be tried within the check's two seconds, as emulation is.
SLOW = "inconclusive instrument-missing"

# runtime -> allowed cells -> checks.
CELLS = {
    "embedded": {
        ("declared contained",): """
            network/tcp4 network/tcp6 network/udp network/udp6 network/path network/dns
            filesystem/read filesystem/tree filesystem/write filesystem/traversal filesystem/evidence filesystem/knobs
            process/visibility process/memory process/pid1 process/signal process/survival
            environment/inherited
            privilege/capabilities privilege/no-new-privs privilege/userns
            syscalls/calibration syscalls/alternate syscalls/after-exec syscalls/new
            timeout/deadline output/cap devices/nodes user/inside user/host
            ipc/unix ipc/abstract ipc/host-sockets
            descriptors/inherited terminal/inject files/open""",
        ("escaped",): "processes/fork processes/threads cpu/quota",
        ("escaped", SLOW): "memory/touch memory/children memory/tmpfs",
        ("inconclusive ablation-contained", "inconclusive not-calibrated", SLOW): "disk/quota",
    },
}

# guests, who, runtime, field that explains it, allowed cells, checks (`*`: all of the runtime). A later row counts.
DIFFERENCES = [
    # What only root can do bare shows nothing where an ordinary user tries it.
    ("*", "user", "embedded", "host uid", ("declared not-applicable host-forbids",),
     "filesystem/knobs process/pid1 privilege/capabilities user/host"),
    # Linux 6.2 can switch TIOCSTI off, and Debian does; root may use it all the same.
    ("6.12*", "user", "embedded", "host sysctls dev.tty.legacy_tiocsti", ("declared not-applicable host-forbids",), "terminal/inject"),
    ("7.*", "user", "embedded", "host sysctls dev.tty.legacy_tiocsti", ("declared not-applicable host-forbids",), "terminal/inject"),
    # What root's runner shows a workload with another id, it shows by an idmapped mount: Linux 5.12.
    ("5.10", "root", "embedded", "host kernel", ("not-applicable plan-refused",), "*"),
    # There an ordinary user may not look at the descriptors of what runs inside, so the control is not declared.
    ("5.10", "user", "embedded", "host kernel", ("contained",), "descriptors/inherited"),
    # No namespace of a user's, so no sandbox: every run is refused, and nothing is measured.
    ("*-no-userns", "*", "embedded", "host sysctls user.max_user_namespaces", ("inconclusive instrument-missing",), "*"),
    ("*-apparmor", "user", "embedded", "host confinement", ("inconclusive instrument-missing",), "*"),
]

# step -> exit status.
STEPS = {
    "facts": 0,
    "doctor": 0,
    "exec": 0,
    "best-effort": 0,
    "limits": 126,  # a limit on the command line makes its control required, and this version has none
    "timeout": 124,
    "not-found": 127,
    "verify": 0,
    "matrix": 0,
    "verify-matrix": 0,
    "bundle": 0,
}

NO_SANDBOX = {"doctor": 1, "exec": 126, "best-effort": 125, "timeout": 126, "not-found": 126}

# `user` is in a login session, `delegated` the same user in a unit with Delegate=yes, where no matrix is made.
MATRIX_STEPS = ("matrix", "verify-matrix", "bundle")

# guests, who, steps that end with another status there.
OTHER_STEPS = [
    ("5.10", "user", {"exec": 126, "timeout": 126}),
    ("5.10", "delegated", {"exec": 126, "timeout": 126}),
    ("*-no-userns", "*", NO_SANDBOX),
    ("*-apparmor", "user", NO_SANDBOX),
    ("*-apparmor", "delegated", NO_SANDBOX),
]


def _applies(row, guest, who):
    return fnmatchcase(guest, row[0]) and fnmatchcase(who, row[1])


def _checks(runtime, text):
    return [(runtime, check) for check in text.split()]


def _table():
    return {key: allowed for runtime, rows in CELLS.items() for allowed, text in rows.items() for key in _checks(runtime, text)}


def _differences(guest, who):
    """(runtime, check) to field and allowed cells."""
    found = {}
    for row in DIFFERENCES:
        if _applies(row, guest, who):
            _, _, runtime, field, allowed, text = row
            keys = _checks(runtime, text) if text != "*" else [key for key in _table() if key[0] == runtime]
            found.update({key: (field, allowed) for key in keys})
    return found


def cells(guest, who):
    """(runtime, check) to the cells that are allowed."""
    return {**_table(), **{key: allowed for key, (_, allowed) in _differences(guest, who).items()}}


def explanations(guest, who):
    """Field of the host record to the cells that it explains."""
    found = {}
    for key, (field, _) in _differences(guest, who).items():
        found.setdefault(field, set()).add(key)
    return found


def steps(guest, who):
    """Step to its exit status."""
    found = dict(STEPS)
    for row in OTHER_STEPS:
        if _applies(row, guest, who):
            found.update(row[2])
    return {step: status for step, status in found.items() if who != "delegated" or step not in MATRIX_STEPS}
