"""What guests are expected to show: exit statuses of the steps of payload/steps, and cells of the matrix.

A cell is written `[declared] VERDICT [REASON]`. CELLS is what the reference host shows. Where another host shows something
else, a row of DIFFERENCES says what, and in which field of the host record (as `verify diff` names it) it differs from the
reference: judge.py asserts that it does.
"""

from fnmatch import fnmatchcase

REFERENCE = ("6.1", "root")

EVERY_CHECK = """
    network/tcp4 network/tcp6 network/udp network/udp6 network/path network/dns
    filesystem/read filesystem/tree filesystem/write filesystem/traversal filesystem/evidence filesystem/knobs
    process/visibility process/memory process/pid1 process/signal process/survival
    environment/inherited
    privilege/capabilities privilege/no-new-privs privilege/userns
    memory/touch memory/children memory/tmpfs processes/fork processes/threads
    syscalls/calibration syscalls/alternate syscalls/after-exec syscalls/new
    cpu/quota timeout/deadline output/cap devices/nodes user/inside user/host
    ipc/unix ipc/abstract ipc/host-sockets
    descriptors/inherited terminal/inject files/open disk/quota"""

# runtime -> cell -> checks; a later row counts.
CELLS = {
    "embedded": {
        "declared contained": EVERY_CHECK,
    },
    "bwrap": {
        "declared contained": EVERY_CHECK,
    },
    "unshare": {
        "escaped": EVERY_CHECK,
        "declared contained": """
            network/tcp4 network/tcp6 network/udp network/udp6 network/path network/dns
            process/visibility process/memory process/pid1 process/signal process/survival""",
        # By what the runner does around any template, and by the namespaces that it declares for other controls.
        "contained": "environment/inherited privilege/capabilities timeout/deadline ipc/abstract",
    },
    # examples/runtimes/systemd-run.json, measured by root.
    "systemd-run": {
        "escaped": "process/visibility user/inside output/cap disk/quota",
        "declared contained": """
            network/tcp4 network/tcp6 network/udp network/udp6 network/path network/dns
            filesystem/read filesystem/tree filesystem/write filesystem/traversal filesystem/evidence filesystem/knobs
            environment/inherited
            privilege/capabilities privilege/no-new-privs privilege/userns
            memory/touch memory/children memory/tmpfs processes/fork processes/threads
            syscalls/calibration syscalls/alternate syscalls/after-exec syscalls/new
            cpu/quota devices/nodes ipc/unix ipc/abstract ipc/host-sockets descriptors/inherited files/open""",
        "contained": "process/memory process/pid1 process/signal terminal/inject",
        # Behind a root of its own it reaches nobody who would see who it is, or that it lives on.
        "inconclusive oracle-unavailable": "process/survival user/host",
    },
}

# What nobody declares there and is left out, as it depends on how fast the machine is: whether a service was started before its
# deadline of 0.4 s.
UNSTEADY = [("systemd-run", "timeout/deadline")]

# guests, who, runtimes, field that explains it, cell, checks. A later row counts.
DIFFERENCES = [
    # What only root can do bare shows nothing where an ordinary user tries it.
    ("*", "user", "embedded bwrap", "host uid", "declared not-applicable host-forbids", "filesystem/knobs privilege/capabilities user/host"),
    ("*", "user", "unshare", "host uid", "not-applicable host-forbids", "filesystem/knobs privilege/capabilities user/host"),
    # The user has the policy's id already.
    ("*", "user", "unshare", "host uid", "inconclusive baseline-contained", "user/inside"),
    # Linux 6.2 can switch TIOCSTI off, and Debian does; root may use it all the same, but not in a namespace of its own.
    *(
        (guests, who, runtimes, "host sysctls dev.tty.legacy_tiocsti", cell, "terminal/inject")
        for guests in ("6.12*", "7.*")
        for who, runtimes, cell in (
            ("user", "embedded bwrap", "declared not-applicable host-forbids"),
            ("user", "unshare", "not-applicable host-forbids"),
            ("root", "unshare", "contained"),
        )
    ),
    # What root's runner shows a workload with another id, it shows by an idmapped mount: Linux 5.12.
    ("5.10", "root", "embedded bwrap", "host kernel", "not-applicable plan-refused", EVERY_CHECK),
    # There an ordinary user may not look at the descriptors of what runs inside, so the control is not declared.
    ("5.10", "user", "embedded", "host kernel", "contained", "descriptors/inherited"),
    # No namespace of a user's, so no sandbox: every run is refused, and nothing is measured.
    ("*-no-userns", "*", "embedded bwrap unshare", "host sysctls user.max_user_namespaces", "inconclusive instrument-missing", EVERY_CHECK),
    ("*-apparmor", "user", "bwrap unshare", "host confinement", "inconclusive instrument-missing", EVERY_CHECK),
    # Nothing can be done in a user namespace: the tier landlock.
    *(
        ("*-apparmor", "user", "embedded", "host confinement", cell, checks)
        for cell, checks in (
            ("escaped", "process/visibility ipc/unix ipc/host-sockets disk/quota"),
            ("contained", "process/signal process/survival timeout/deadline ipc/abstract"),
            ("inconclusive twin-failed", "process/memory process/pid1"),
            # The user has the policy's id already; who may do nothing in a namespace shows nothing by making one.
            ("inconclusive baseline-contained", "user/inside"),
            ("declared inconclusive baseline-contained", "privilege/userns"),
            ("not-applicable host-forbids", "user/host terminal/inject"),
        )
    ),
]

# guests, who, tier that the embedded runtime says it is in, and that stands in the record of a run. A later row counts.
TIERS = [
    ("*", "*", "full"),
    ("*-apparmor", "user", "landlock"),
    ("*-apparmor", "delegated", "landlock"),
    # No namespace, and too old a Landlock: there is no tier.
    ("*-no-userns", "*", None),
]

# step -> exit status.
STEPS = {
    "facts": 0,
    "doctor": 0,
    "exec": 0,
    "best-effort": 0,
    "limits": 0,
    "oom": 137,
    "fork": 2,
    "burn": 124,
    "fill": 137,
    "touch": 0,
    "timeout": 124,
    "not-found": 127,
    "verify": 0,
    "matrix": 0,
    "verify-matrix": 0,
    "bundle": 0,
    "template": 0,
    "verify-template": 0,
}

# step -> what its execution record has to say: the verdict, and what was observed, from and to. `cpuPermille` is cpuUs over
# durationUs: without a limit it would be near 1,000, and 200 is asked for.
OBSERVED = {
    "oom": ("failed", {"oomKills": (1, 1), "memoryPeakBytes": (60 << 20, 64 << 20)}),
    "fork": ("failed", {"pidsPeak": (16, 16)}),
    "burn": ("failed", {"cpuPermille": (100, 500)}),
    "fill": ("failed", {"oomKills": (1, 2), "memoryPeakBytes": (60 << 20, 64 << 20)}),
    "touch": ("as-requested", {"oomKills": (0, 0), "memoryPeakBytes": (40 << 20, 60 << 20)}),
}

# guests, who, what that kernel does not observe: it is absent then, and never 0.
UNOBSERVED = [
    ("5.10", "*", ("memoryPeakBytes", "pidsPeak")),
]

LIMITED = ("limits", *OBSERVED)
# What the policies of the steps require is not to be had without namespaces; without what is missing it runs.
LANDLOCK = {"doctor": 1, "exec": 126, "best-effort": 0, "timeout": 126, "not-found": 126, **dict.fromkeys(LIMITED, 126)}
NO_SANDBOX = {"doctor": 1, "exec": 126, "best-effort": 125, "timeout": 126, "not-found": 126, **dict.fromkeys(LIMITED, 126)}

MATRIX_STEPS = ("matrix", "verify-matrix", "bundle")
# By root alone, as the template needs.
TEMPLATE_STEPS = ("template", "verify-template")
TEMPLATES = ("systemd-run",)

# guests, who, steps that end with another status there.
OTHER_STEPS = [
    ("5.10", "user", {"exec": 126, "timeout": 126, **dict.fromkeys(LIMITED, 126)}),
    ("5.10", "delegated", {"exec": 126, "timeout": 126, **dict.fromkeys(LIMITED, 126)}),
    ("*-no-userns", "*", NO_SANDBOX),
    ("*-apparmor", "user", LANDLOCK),
    ("*-apparmor", "delegated", LANDLOCK),
]


def people(guest):
    """Who does the steps: `user` is in a login session, `delegated` the same user in a unit with Delegate=yes, where no matrix is
    made, and `profiled` the same user in a session, after the profile of examples/apparmor was loaded."""
    return ("root", "user", "delegated") + ("profiled",) * guest.endswith("-apparmor")


def _host(guest, who):
    """With the profile everything is as it is for a user whom nothing confines."""
    return (guest.removesuffix("-apparmor"), "user") if who == "profiled" else (guest, who)


def _applies(row, guest, who):
    guest, who = _host(guest, who)
    return fnmatchcase(guest, row[0]) and fnmatchcase(who, row[1])


def _keys(runtimes, checks):
    return [(runtime, check) for runtime in runtimes.split() for check in checks.split()]


def _differences(guest, who):
    """(runtime, check) to field and cell."""
    rows = [row[2:] for row in DIFFERENCES if _applies(row, guest, who)]
    return {key: (field, cell) for runtimes, field, cell, checks in rows for key in _keys(runtimes, checks)}


def cells(guest, who):
    """(runtime, check) to the cell that is expected."""
    shown = [runtime for runtime in CELLS if who == "root" or runtime not in TEMPLATES]
    found = {key: cell for runtime in shown for cell, checks in CELLS[runtime].items() for key in _keys(runtime, checks)}
    found.update({key: cell for key, (_, cell) in _differences(guest, who).items()})
    return found


def explanations(guest, who):
    """Field of the host record to the cells that it explains."""
    found = {}
    for key, (field, _) in _differences(guest, who).items():
        found.setdefault(field, set()).add(key)
    return found


def tier(guest, who):
    """The tier of the embedded runtime, or None where it cannot be had."""
    return [row[2] for row in TIERS if _applies(row, guest, who)][-1]


def observed(guest, who):
    """Step to its verdict and what has to be observed; None for what must be absent."""
    absent = {name for row in UNOBSERVED if _applies(row, guest, who) for name in row[2]}
    ran = [step for step in OBSERVED if steps(guest, who)[step] != 126]
    return {
        step: (OBSERVED[step][0], {name: None if name in absent else span for name, span in OBSERVED[step][1].items()})
        for step in ran
    }


def steps(guest, who):
    """Step to its exit status."""
    found = dict(STEPS)
    for row in OTHER_STEPS:
        if _applies(row, guest, who):
            found.update(row[2])
    left_out = MATRIX_STEPS * (who == "delegated") + TEMPLATE_STEPS * (who != "root")
    return {step: status for step, status in found.items() if step not in left_out}
