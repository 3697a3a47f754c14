//! The project's own vectors: made here from fixed seeds, salts and moments, checked in, and compared.
//!
//! `WRITE_VECTORS=1 cargo test -p ledger --test it` writes them again.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use ledger::bytes::canon::U53;
use ledger::bytes::hash::Hash;
use ledger::bytes::key::{Base64, LocalKey, Signer};
use ledger::bytes::time::{Clock, Stamp, Timestamp};
use ledger::facts::control::{Control, Controls, Declared, Unsupported};
use ledger::facts::execution::{
    Execution, NotExecuted, Outcome, Output, PolicyRef, Program, RunId, RunResult, RuntimeUsed,
    Start, Unmeasured, Verdict, Violation, Word, Workload,
};
use ledger::facts::host::{CgroupFacts, CgroupLayout, HostFacts, RunnerFacts};
use ledger::facts::list::{List, Sealable};
use ledger::facts::policy::Policy;
use ledger::record::{Body, Custody, Genesis, Opened, Opening, Record, Salt, Salted, Tool};

use crate::support::{BOOT, vectors};

/// The files of one vector, by path below its folder.
type Files = BTreeMap<String, Vec<u8>>;

/// The policy of the run; its blob is the effective form. What it protects is spelled out, so that a longer
/// default leaves the vectors as they are.
const POLICY: &[u8] = br#"{
    "id": "vectors",
    "enforcement": {"requiredControls": ["network", "timeout"], "wantedControls": ["memory"]},
    "filesystem": {"protect": [".git/hooks", ".git/config", ".envrc", ".vscode", ".github", ".bashrc",
        ".bash_profile", ".bash_login", ".bash_logout", ".profile", ".zshrc", ".zshenv", ".zprofile", ".zlogin",
        ".config/fish"]},
    "resources": {"timeoutMs": 30000, "memoryMb": 256},
    "process": {"environment": {"LANG": "C.UTF-8"}}
}"#;

fn policy_blob() -> Vec<u8> {
    let policy = Policy::parse("policy.json", POLICY).unwrap();
    policy.effective_blob().unwrap()
}

struct Maker {
    key: LocalKey,
    ledger: Hash,
    previous: Hash,
    sequence: u32,
    lines: Vec<Vec<u8>>,
}

impl Maker {
    fn new() -> Self {
        let seed = std::array::from_fn(|i| u8::try_from(i).unwrap());
        let mut maker = Self {
            key: LocalKey::from_seed(&seed).unwrap(),
            ledger: Hash::of(b"containment-ledger vectors: openings and runs"),
            previous: Hash::ZERO,
            sequence: 0,
            lines: Vec::new(),
        };
        let public = *maker.key.public();
        maker.record(Body::Genesis(Genesis {
            custody: Custody::File,
            origin: "example.com/ledger/host-1".parse().unwrap(),
            public_key: Base64(public.to_bytes()),
            standby: None,
            tool: Tool {
                name: "vectors".to_owned(),
                version: "1".to_owned(),
            },
        }));
        maker.record(Body::Host(Box::new(host())));
        maker
    }

    fn record(&mut self, body: Body) {
        let second = i64::from(self.sequence);
        let start: Timestamp = "2026-11-29T12:00:00.000000Z".parse().unwrap();
        let stamp = Stamp {
            time: Timestamp::from_unix_micros(start.unix_micros() + second * 1_000_000).unwrap(),
            clock: Clock {
                boot_id: boot(),
                since_boot_us: U53::from((self.sequence + 1) * 1_000_000),
            },
        };
        let sequence = U53::from(self.sequence);
        let record = Record::new(body, stamp, self.ledger, sequence, self.previous);
        let line = record.to_signed_line(&self.key).unwrap();
        self.previous = Hash::leaf(&line);
        self.sequence += 1;
        self.lines.push(line);
    }

    fn open(&mut self, open: Opened) {
        let sequence = U53::from(self.sequence);
        let opening = Opening { open, sequence };
        self.lines.push(opening.to_line().unwrap());
    }

    fn files(&self, exit_code: u8, any_of: &[&str]) -> Files {
        let any_of: Vec<String> = any_of.iter().map(|code| format!("  {code:?}")).collect();
        let list = if any_of.is_empty() {
            "[]".to_owned()
        } else {
            format!("[\n{}\n ]", any_of.join(",\n"))
        };
        let expected = format!("{{\n \"exitCode\": {exit_code},\n \"anyOf\": {list}\n}}\n");
        let mut records = self.lines.join(&b'\n');
        records.push(b'\n');
        let policy = policy_blob();
        let hash = Hash::of(&policy).to_string();
        let blob = format!("ledger/blobs/{}/{}", &hash[..2], &hash[2..]);
        [
            ("expected.json".to_owned(), expected.into_bytes()),
            ("ledger/records/00000000.jsonl".to_owned(), records),
            (blob, policy),
        ]
        .into()
    }
}

fn boot() -> ledger::bytes::time::BootId {
    BOOT.parse().unwrap()
}

fn host() -> HostFacts {
    HostFacts {
        architecture: "x86_64".to_owned(),
        boot_id: boot(),
        cgroup: CgroupFacts {
            delegated: vec![],
            layout: CgroupLayout::V2,
        },
        confinement: None,
        container: vec![],
        distribution: Some("example 1".to_owned()),
        gid: 1000,
        groups: vec![1000],
        kernel: "6.18.0".to_owned(),
        landlock_abi: Some(7),
        lsms: Some(vec!["landlock".to_owned()]),
        runner: RunnerFacts {
            file: None,
            sha256: Hash::of(b"runner"),
            version: "0.1.0".to_owned(),
        },
        swap_bytes: Some(U53::ZERO),
        sysctls: BTreeMap::new(),
        uid: 1000,
        unmeasured: None,
    }
}

fn salted<T>(salt: u8, value: T) -> Salted<T> {
    Salted(Salt([salt; 16]), value)
}

fn argv() -> Salted<List<String>> {
    let words = ["report", "--from", "sales.csv"];
    salted(1, List::Inline(words.map(str::to_owned).to_vec()))
}

fn launch() -> Salted<List<String>> {
    let words = ["runner-init", "--embedded"];
    salted(2, List::Inline(words.map(str::to_owned).to_vec()))
}

fn output(salt: u8, text: &str) -> Salted<Output> {
    let bytes = U53::new(text.len() as u64).unwrap();
    salted(
        salt,
        Output {
            base64: None,
            blob: None,
            bytes,
            kept: bytes,
            sha256: Hash::of(text.as_bytes()),
            text: Some(text.to_owned()),
        },
    )
}

fn start() -> Start {
    let declared = |control, mechanism: &str, value: Option<&str>| Declared {
        backup: None,
        control,
        mechanism: mechanism.to_owned(),
        value: value.map(str::to_owned),
    };
    Start {
        controls: Controls {
            declared: vec![
                declared(Control::Network, "network-namespace", None),
                declared(Control::Timeout, "supervisor", Some("30000 ms")),
            ],
            requested: vec![Control::Network, Control::Timeout],
            unsupported: vec![Unsupported {
                control: Control::Memory,
                reason: "no-resource-groups".to_owned(),
            }],
            wanted: vec![Control::Memory],
        },
        host: U53::from(1),
        key_reachable: None,
        matrix: None,
        policy: PolicyRef {
            id: "vectors".to_owned(),
            sha256: Hash::of(&policy_blob()),
        },
        run: RunId::from_bytes([7; 16]),
        runtime: RuntimeUsed {
            id: "embedded".to_owned(),
            launch: Some(launch().sealed().unwrap()),
            sha256: None,
            tier: Some("full".to_owned()),
            version: "0.1.0".to_owned(),
        },
        workload: Workload {
            argv: argv().sealed().unwrap(),
            id: "report".to_owned(),
            program: Program {
                path: "/usr/bin/report".to_owned(),
                sha256: Some(Hash::of(b"report")),
            },
        },
    }
}

fn execution(start: u32, exit_code: u8, verdict: Verdict) -> Execution {
    let sealed =
        |output: Salted<Output>| -> Option<Sealable<Output>> { Some(output.sealed().unwrap()) };
    Execution {
        artifacts: None,
        cleanup: None,
        observed: None,
        result: RunResult {
            duration_us: Some(U53::from(41_234)),
            errno: None,
            exit_code: Some(exit_code),
            outcome: Outcome::Exited,
            reason: None,
            signal: None,
            stderr: sealed(output(4, "")),
            stdout: sealed(output(3, "3 regions, 200 rows\n")),
        },
        start: U53::from(start),
        unmeasured: None,
        verdict,
        violations: None,
    }
}

/// The same of a run in which calls were denied.
fn with_violations(start: u32, exit_code: u8, verdict: Verdict) -> Execution {
    let violation = |call: &str, arguments: &[u64], count, number: Option<u32>| Violation {
        arguments: arguments.iter().map(|word| Word(*word)).collect(),
        call: call.to_owned(),
        count: U53::from(count),
        first_us: U53::from(1_042),
        number: number.map(U53::from),
    };
    let list = vec![
        violation("keyctl", &[0, 4_294_967_293, 0, 0, 0], 1, None),
        violation("ptrace", &[16, u64::MAX, 0, 0], 3, None),
        violation("unnamed", &[], 2, Some(9_999)),
    ];
    Execution {
        violations: Some(List::Inline(list)),
        ..execution(start, exit_code, verdict)
    }
}

fn start_opening(argv: Salted<List<String>>) -> Opened {
    Opened {
        argv: Some(argv),
        launch: Some(launch()),
        ..Opened::default()
    }
}

fn end_opening() -> Opened {
    Opened {
        stderr: Some(output(4, "")),
        stdout: Some(output(3, "3 regions, 200 rows\n")),
        ..Opened::default()
    }
}

/// A whole run; `openings` go before its start record.
fn run(openings: Vec<Opened>, end: Option<Opened>, exit_code: u8, verdict: Verdict) -> Maker {
    let mut maker = Maker::new();
    openings.into_iter().for_each(|open| maker.open(open));
    maker.record(Body::Start(Box::new(start())));
    end.into_iter().for_each(|open| maker.open(open));
    maker.record(Body::Execution(Box::new(execution(2, exit_code, verdict))));
    maker
}

fn outer_filter() -> Unmeasured {
    Unmeasured {
        field: "violations".to_owned(),
        reason: Execution::OUTER_FILTER.to_owned(),
    }
}

fn all() -> Vec<(&'static str, Files)> {
    let opened = || vec![start_opening(argv())];
    let words = ["report", "--from", "sales.tsv"]
        .map(str::to_owned)
        .to_vec();
    let changed = salted(1, List::Inline(words));
    let reduced = Verdict::Reduced;
    let mut without_start = Maker::new();
    without_start.open(end_opening());
    without_start.record(Body::Execution(Box::new(execution(1, 0, reduced))));
    let denied = |exit_code, any_of: &[&str], change: &dyn Fn(&mut Start, &mut Execution)| {
        let (mut start, mut end) = (start(), with_violations(2, 0, reduced));
        change(&mut start, &mut end);
        let mut maker = Maker::new();
        opened().into_iter().for_each(|open| maker.open(open));
        maker.record(Body::Start(Box::new(start)));
        if end.result.stdout.is_some() {
            maker.open(end_opening());
        }
        maker.record(Body::Execution(Box::new(end)));
        maker.files(exit_code, any_of)
    };
    let malformed = |change: &dyn Fn(&mut Vec<Violation>, &mut Execution)| {
        denied(10, &["record-malformed"], &|_, end| {
            let Some(List::Inline(mut list)) = end.violations.take() else {
                unreachable!("made above")
            };
            change(&mut list, end);
            end.violations = Some(List::Inline(list));
        })
    };
    vec![
        (
            "opening_valid",
            run(opened(), Some(end_opening()), 0, reduced).files(0, &[]),
        ),
        (
            "opening_erased",
            run(vec![], None, 0, reduced).files(0, &["opening-withheld"]),
        ),
        (
            "opening_changed",
            run(
                vec![start_opening(changed)],
                Some(end_opening()),
                0,
                reduced,
            )
            .files(10, &["opening-mismatch"]),
        ),
        (
            "opening_twice",
            run(
                [opened(), opened()].concat(),
                Some(end_opening()),
                0,
                reduced,
            )
            .files(10, &["opening-mismatch"]),
        ),
        (
            "execution_without_start",
            without_start.files(10, &["reference-invalid"]),
        ),
        (
            "verdict_changed",
            run(opened(), Some(end_opening()), 1, Verdict::AsRequested)
                .files(10, &["verdict-mismatch"]),
        ),
        (
            "runtime_of_no_template",
            denied(10, &["record-malformed"], &|start, end| {
                start.runtime.id = "runc".to_owned();
                start.runtime.tier = None;
                start.runtime.version = "1.1.5 template:0F1E2D3C4B5A6978".to_owned();
                end.violations = None;
            }),
        ),
        ("violations_valid", denied(0, &[], &|_, _| {})),
        (
            "violations_partly_heard",
            denied(0, &[], &|_, end| {
                end.unmeasured = Some(vec![outer_filter()])
            }),
        ),
        (
            "violations_partly_heard_of_none",
            denied(10, &["record-malformed"], &|_, end| {
                end.violations = None;
                end.unmeasured = Some(vec![outer_filter()]);
            }),
        ),
        (
            "violations_after_the_end",
            malformed(&|list, _| list[1].first_us = U53::from(41_235)),
        ),
        (
            "violations_listed_and_unmeasured",
            malformed(&|_, end| {
                end.unmeasured = Some(vec![Unmeasured {
                    field: "violations".to_owned(),
                    reason: "no-filter".to_owned(),
                }]);
            }),
        ),
        (
            "violations_not_executed",
            malformed(&|_, end| {
                end.verdict = Verdict::NotExecuted;
                end.result = RunResult {
                    duration_us: None,
                    errno: None,
                    exit_code: None,
                    outcome: Outcome::NotExecuted,
                    reason: Some(NotExecuted::Refused),
                    signal: None,
                    stderr: None,
                    stdout: None,
                };
            }),
        ),
        (
            "violations_of_no_call",
            malformed(&|list, _| list[1].call = "open_sesame".to_owned()),
        ),
        (
            "violations_seven_arguments",
            malformed(&|list, _| list[1].arguments = vec![Word(0); 7]),
        ),
        (
            "violations_under_native",
            denied(10, &["reference-invalid"], &|start, _| {
                start.runtime.id = "native".to_owned();
                start.runtime.tier = None;
            }),
        ),
        (
            "violations_unsaid",
            denied(0, &["violations-unsaid"], &|_, end| end.violations = None),
        ),
    ]
}

fn found(folder: &PathBuf, below: &str, files: &mut Files) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{below}{}", entry.file_name().to_str().unwrap());
        if entry.file_type().unwrap().is_dir() {
            found(&entry.path(), &format!("{name}/"), files);
        } else {
            files.insert(name, fs::read(entry.path()).unwrap());
        }
    }
}

#[test]
fn own_vectors_are_what_this_code_makes() {
    for (name, files) in all() {
        let folder = vectors().join(name);
        if std::env::var_os("WRITE_VECTORS").is_some() {
            let _ = fs::remove_dir_all(&folder);
            for (path, bytes) in &files {
                let path = folder.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, bytes).unwrap();
            }
        }
        let mut here = Files::new();
        found(&folder, "", &mut here);
        assert!(here == files, "{name} differs from what this code makes");
    }
}
