use super::*;

const FAMILIES: [Families; 5] = [
    Families::All,
    Families::NotUnix,
    Families::Held,
    Families::HeldNotUnix,
    Families::Unix,
];
const ALLOW: u32 = RETURN_ALLOW;
const ARCH_I386: u32 = 0x4000_0003;

/// A classic BPF interpreter of the instructions that filters are made of.
fn run(program: &[Instruction], arch: u32, number: u32) -> u32 {
    run_with(program, arch, number, [0; 6])
}

fn run_with(program: &[Instruction], arch: u32, number: u32, arguments: [u64; 6]) -> u32 {
    let (mut at, mut accumulator) = (0usize, 0u32);
    for _ in 0..10_000 {
        let i = program[at];
        at += 1;
        let jump = |taken: bool| usize::from(if taken { i.jt } else { i.jf });
        match i.code {
            LOAD_WORD => {
                accumulator = match i.k {
                    NUMBER_OFFSET => number,
                    ARCH_OFFSET => arch,
                    // seccomp_data.args, little-endian: low word first.
                    k if (16..64).contains(&k) => {
                        let argument = arguments[(k as usize - 16) / 8];
                        (if k % 8 == 0 { argument } else { argument >> 32 }) as u32
                    }
                    k => panic!("load {k}"),
                }
            }
            0x54 => accumulator &= i.k,
            JUMP_EQUAL => at += jump(accumulator == i.k),
            JUMP_AT_LEAST => at += jump(accumulator >= i.k),
            JUMP => at += i.k as usize,
            RETURN => return i.k,
            code => panic!("instruction {code:#x}"),
        }
    }
    panic!("no return")
}

fn names(list: &[&str]) -> Vec<String> {
    list.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn denied_calls_fail_and_others_pass_on_both_architectures() {
    let denied = names(&["getcpu", "ptrace", "mount", "open"]);
    for architecture in [Architecture::X86_64, Architecture::Aarch64] {
        let program = compile(&Calls::Deny(&denied), architecture).unwrap();
        let judge = |name: &str| {
            run(
                &program,
                architecture.audit(),
                architecture.number(name).unwrap() as u32,
            )
        };
        assert_eq!(judge("getcpu"), RETURN_EPERM);
        assert_eq!(judge("ptrace"), RETURN_EPERM);
        assert_eq!(judge("read"), ALLOW);
        assert_eq!(judge("execve"), ALLOW);
    }
    assert_eq!(Architecture::Aarch64.number("open"), None);
}

fn by_seccompiler(rules: BTreeMap<i64, Vec<SeccompRule>>) -> Vec<Instruction> {
    let body = seccompiler_body(rules, Architecture::X86_64).unwrap();
    [head(Architecture::X86_64), body].concat()
}

#[test]
fn lists_of_any_length_say_what_seccompiler_says() {
    let all: Vec<u32> = (0..900).filter(|number| number % 7 != 3).collect();
    let scattered: Vec<u32> = (0..900).filter(|number| number % 2 == 1).collect();
    for list in [all, scattered] {
        for length in [1, 2, 254, 255, 256, 400, list.len()] {
            let numbers = list.iter().take(length);
            let leaves = numbers
                .clone()
                .map(|number| (*number, Leaf::Return(RETURN_EPERM)));
            let program = by_number(&leaves.collect(), Leaf::Return(RETURN_ALLOW));
            let program = [head(Architecture::X86_64), program].concat();
            let rules = numbers.map(|number| (i64::from(*number), Vec::new()));
            let theirs = by_seccompiler(rules.collect());
            for number in (0..1000).chain([X32_BIT - 1]) {
                let ours = run(&program, AUDIT_ARCH_X86_64, number);
                assert_eq!(ours, run(&theirs, AUDIT_ARCH_X86_64, number), "{number}");
            }
            assert_eq!(run(&program, ARCH_I386, 1), RETURN_EPERM);
            assert!(program.len() < theirs.len());
        }
    }
}

#[test]
fn the_search_before_the_base_rules_changes_no_answer() {
    let openat2 = Architecture::X86_64.number("openat2").unwrap() as u32;
    for families in FAMILIES {
        let filters = base(Architecture::X86_64, families).unwrap();
        let [ours, second] = filters.as_slice() else {
            panic!("{} filters", filters.len());
        };
        let theirs = by_seccompiler(base_rules(Architecture::X86_64, families).unwrap());
        let values = [
            0,
            1,
            2,
            16,
            40,
            0o100,
            0o755,
            1024,
            1025,
            1040,
            0o4755,
            0o2000,
            0o20_000_000,
        ];
        let mut denied = 0;
        for number in (0..600).filter(|number| *number != openat2) {
            for value in values {
                for other in values {
                    let arguments = [value, other, value, other, 0, 0];
                    let run = |program| run_with(program, AUDIT_ARCH_X86_64, number, arguments);
                    let answer = run(&theirs);
                    assert_eq!(run(ours), answer, "{number} {arguments:?}");
                    denied += u32::from(answer != RETURN_ALLOW);
                }
            }
        }
        assert!(denied > 100, "{denied}");
        assert_eq!(run(second, AUDIT_ARCH_X86_64, openat2), RETURN_ENOSYS);
        for number in (0..600).filter(|number| *number != openat2) {
            assert_eq!(run(second, AUDIT_ARCH_X86_64, number), RETURN_ALLOW);
        }
    }
}

#[test]
fn allowed_calls_pass_and_others_fail() {
    let allowed = names(&["read", "write", "exit_group"]);
    let program = compile(&Calls::Allow(&allowed), Architecture::X86_64).unwrap();
    let judge = |name: &str| {
        run(
            &program,
            AUDIT_ARCH_X86_64,
            Architecture::X86_64.number(name).unwrap() as u32,
        )
    };
    assert_eq!(judge("read"), ALLOW);
    assert_eq!(judge("socket"), RETURN_EPERM);
}

#[test]
fn where_somebody_listens_exactly_what_was_denied_by_number_is_handed_over() {
    let denied = names(&["getcpu", "ptrace", "mount", "open"]);
    let allowed = names(&["read", "write", "exit_group", "execve"]);
    for architecture in [Architecture::X86_64, Architecture::Aarch64] {
        assert_eq!(head(architecture).len(), HEAD);
        for calls in [Calls::Deny(&denied), Calls::Allow(&allowed)] {
            let plain = compile(&calls, architecture).unwrap();
            let reporting = reporting(&plain);
            assert_eq!(reporting.len(), plain.len());
            let mut handed_over = 0;
            for number in (0..1_000).chain([X32_BIT - 1]) {
                let answer = run(&plain, architecture.audit(), number);
                let expected = match answer {
                    RETURN_EPERM => RETURN_NOTIFY,
                    other => other,
                };
                let found = run(&reporting, architecture.audit(), number);
                assert_eq!(found, expected, "{calls:?} {number}");
                handed_over += u32::from(found == RETURN_NOTIFY);
            }
            assert!(handed_over > 2, "{calls:?}");
            // What has no name here, whoever listens.
            for number in [X32_BIT, X32_BIT | 309, u32::MAX] {
                assert_eq!(run(&reporting, architecture.audit(), number), RETURN_EPERM);
            }
            for number in [0, 20, 318] {
                assert_eq!(run(&reporting, ARCH_I386, number), RETURN_EPERM);
            }
        }
    }
}

#[test]
fn the_base_filters_answers_are_stricter_than_handing_over() {
    // The kernel takes the answer whose action is the lower number, as signed (seccomp(2)).
    let action = |answer: u32| (answer & libc::SECCOMP_RET_ACTION_FULL).cast_signed();
    for strict in [RETURN_EPERM, RETURN_ENOSYS] {
        assert!(action(strict) < action(RETURN_NOTIFY));
    }
    assert!(action(RETURN_NOTIFY) < action(RETURN_ALLOW));
    for filter in base(Architecture::X86_64, Families::Held).unwrap() {
        assert!(
            filter
                .iter()
                .all(|it| it.code != RETURN || it.k != RETURN_NOTIFY)
        );
    }
}

#[test]
fn numbers_lead_back_to_names() {
    for architecture in [Architecture::X86_64, Architecture::Aarch64] {
        for name in ["getcpu", "ptrace", "mount", "bpf"] {
            let number = u32::try_from(architecture.number(name).unwrap()).unwrap();
            assert_eq!(architecture.call(number).unwrap().name, name);
        }
        assert_eq!(architecture.call(100_000), None);
    }
}

#[test]
fn x32_and_i386_calls_fail_whatever_their_number() {
    let denied = names(&["getcpu"]);
    let program = compile(&Calls::Deny(&denied), Architecture::X86_64).unwrap();
    assert_eq!(run(&program, AUDIT_ARCH_X86_64, X32_BIT), RETURN_EPERM);
    assert_eq!(
        run(&program, AUDIT_ARCH_X86_64, X32_BIT | 309),
        RETURN_EPERM
    );
    assert_eq!(run(&program, AUDIT_ARCH_X86_64, u32::MAX), RETURN_EPERM);
    for number in [0, 3, 20, 318] {
        assert_eq!(run(&program, ARCH_I386, number), RETURN_EPERM);
    }
    let program = compile(&Calls::Deny(&denied), Architecture::Aarch64).unwrap();
    assert_eq!(run(&program, 0x4000_0028, 3), RETURN_EPERM, "32-bit ARM");
}

#[test]
fn no_file_gets_a_bit_that_acts_for_its_owner() {
    for architecture in [Architecture::X86_64, Architecture::Aarch64] {
        let filters = base(architecture, Families::Held).unwrap();
        let judge = |name: &str, arguments: &[u64]| {
            let mut all = [0; 6];
            all[..arguments.len()].copy_from_slice(arguments);
            let number = architecture.number(name).unwrap() as u32;
            let answers = filters
                .iter()
                .map(|filter| run_with(filter, architecture.audit(), number, all));
            answers.min().unwrap()
        };
        for mode in [0o4755, 0o2755, 0o6000, 0o104_755] {
            assert_eq!(judge("fchmod", &[3, mode]), RETURN_EPERM, "{mode:o}");
            assert_eq!(judge("fchmodat", &[3, 0, mode]), RETURN_EPERM, "{mode:o}");
            assert_eq!(judge("fchmodat2", &[3, 0, mode]), RETURN_EPERM, "{mode:o}");
            assert_eq!(judge("mknodat", &[3, 0, mode]), RETURN_EPERM, "{mode:o}");
            assert_eq!(
                judge("openat", &[3, 0, libc::O_CREAT as u64, mode]),
                RETURN_EPERM,
                "{mode:o}"
            );
            assert_eq!(
                judge("openat", &[3, 0, libc::O_TMPFILE as u64, mode]),
                RETURN_EPERM,
                "{mode:o}"
            );
            // Without a file being made the mode is whatever stood in the register.
            assert_eq!(
                judge("openat", &[3, 0, libc::O_DIRECTORY as u64, mode]),
                ALLOW,
                "{mode:o}"
            );
        }
        for mode in [0o755, 0o1777, 0o100_644] {
            assert_eq!(judge("fchmod", &[3, mode]), ALLOW, "{mode:o}");
            assert_eq!(
                judge("openat", &[3, 0, libc::O_CREAT as u64, mode]),
                ALLOW,
                "{mode:o}"
            );
        }
        assert_eq!(judge("openat2", &[]), RETURN_ERRNO | libc::ENOSYS as u32);
        assert_eq!(judge("io_uring_setup", &[]), RETURN_EPERM);
        assert_eq!(judge("prlimit64", &[1]), RETURN_EPERM);
        assert_eq!(judge("prlimit64", &[0]), ALLOW);
    }
    let filters = base(Architecture::X86_64, Families::Held).unwrap();
    let chmod = Architecture::X86_64.number("chmod").unwrap() as u32;
    assert_eq!(
        run_with(
            &filters[0],
            AUDIT_ARCH_X86_64,
            chmod,
            [0, 0o4755, 0, 0, 0, 0]
        ),
        RETURN_EPERM
    );
}

#[test]
fn sockets_are_of_families_that_a_network_namespace_holds() {
    let socket = Architecture::X86_64.number("socket").unwrap() as u32;
    let judge = |families: Families, family: i32| {
        let filters = base(Architecture::X86_64, families).unwrap();
        run_with(
            &filters[0],
            AUDIT_ARCH_X86_64,
            socket,
            [family as u64, 0, 0, 0, 0, 0],
        )
    };
    let other = [
        libc::AF_VSOCK,
        libc::AF_PACKET,
        libc::AF_ALG,
        libc::AF_BLUETOOTH,
    ];
    for family in HELD_FAMILIES.into_iter().chain(other) {
        let is_held = HELD_FAMILIES.contains(&family);
        let is_unix = family == libc::AF_UNIX;
        for (families, is_open) in [
            (Families::All, true),
            (Families::NotUnix, !is_unix),
            (Families::Held, is_held),
            (Families::HeldNotUnix, is_held && !is_unix),
            (Families::Unix, is_unix),
        ] {
            let expected = if is_open { ALLOW } else { RETURN_EPERM };
            assert_eq!(judge(families, family), expected, "{families:?} {family}");
        }
    }
}

#[test]
fn no_name_is_dropped_in_silence() {
    assert!(matches!(
        compile(&Calls::Deny(&names(&["getcpu", "no_such_call"])), Architecture::X86_64),
        Err(CompileFilterError::UnknownCall(name)) if name == "no_such_call"
    ));
    assert!(matches!(
        compile(&Calls::Deny(&[]), Architecture::X86_64),
        Err(CompileFilterError::Empty)
    ));
}

#[test]
fn what_no_namespace_keeps_away_is_denied_where_that_is_asked() {
    let all = Beside {
        user_namespaces: true,
        other_processes: true,
        metadata: true,
        controls: Controls::Listed,
    };
    for architecture in [Architecture::X86_64, Architecture::Aarch64] {
        let judge = |beside: &Beside, name: &str, arguments: [u64; 6]| {
            let number = architecture.number(name).unwrap() as u32;
            let filters = base_with(architecture, Families::Held, beside).unwrap();
            let answers = filters
                .iter()
                .map(|filter| run_with(filter, architecture.audit(), number, arguments));
            answers.min().unwrap()
        };
        let user = libc::CLONE_NEWUSER as u64;
        let first = |value| [value, 0, 0, 0, 0, 0];
        let second = |value| [9, value, 0, 0, 0, 0];
        for (name, arguments, denied) in [
            ("clone", first(user | 17), RETURN_EPERM),
            ("clone", first(17), ALLOW),
            ("unshare", first(user), RETURN_EPERM),
            ("unshare", first(0x400), ALLOW),
            ("clone3", first(0), RETURN_ENOSYS),
            ("prlimit64", first(7), RETURN_EPERM),
            ("prlimit64", first(0), ALLOW),
            ("ptrace", first(0), RETURN_EPERM),
            ("pidfd_getfd", first(3), RETURN_EPERM),
            ("fchmod", second(0o600), RETURN_EPERM),
            ("fchownat", first(3), RETURN_EPERM),
            ("utimensat", first(3), RETURN_EPERM),
            ("setxattr", first(3), RETURN_EPERM),
            ("ioctl", second(0x4008_6602), RETURN_EPERM),
            ("ioctl", second(0x5401), ALLOW),
            ("inotify_add_watch", first(3), RETURN_EPERM),
            ("lgetxattr", first(3), RETURN_EOPNOTSUPP),
            ("file_getattr", first(3), RETURN_EOPNOTSUPP),
            ("file_setattr", first(3), RETURN_EPERM),
            ("fcntl", second(1026), RETURN_EPERM),
            ("fcntl", second(1036), RETURN_EPERM),
            ("fcntl", second(1), ALLOW),
            ("fgetxattr", first(3), ALLOW),
            ("openat2", first(3), RETURN_ENOSYS),
            ("read", first(3), ALLOW),
        ] {
            assert_eq!(judge(&all, name, arguments), denied, "{name} {arguments:?}");
            // Of all this nothing is denied elsewhere but what is denied everywhere.
            let usual = judge(&Beside::default(), name, arguments);
            let everywhere = if name == "openat2" { denied } else { ALLOW };
            assert_eq!(usual, everywhere, "{name} {arguments:?}");
        }
    }
}

#[test]
fn of_controls_those_pass_that_are_listed_whatever_stands_above_their_number() {
    let judge = |controls, families, control: u64| {
        let beside = Beside {
            controls,
            ..Beside::default()
        };
        let filters = base_with(Architecture::X86_64, families, &beside).unwrap();
        let number = Architecture::X86_64.number("ioctl").unwrap() as u32;
        let arguments = [0, control, 0, 0, 0, 0];
        let answers = filters
            .iter()
            .map(|filter| run_with(filter, AUDIT_ARCH_X86_64, number, arguments));
        answers.min().unwrap()
    };
    let high = 0xdead_0000_0000;
    let questions = [0x8912, 0x8915, 0x8933];
    let listed = [
        0x2,
        0x5401,
        0x5413,
        0x541b,
        0x5421,
        0x5450,
        0x5451,
        0x802c_542a,
        0x4004_9409,
        0x4020_940d,
    ];
    for control in listed.into_iter().chain(questions) {
        let is_question = questions.contains(&control);
        for control in [control, high | control] {
            let unix = judge(Controls::Listed, Families::Unix, control);
            let expected = if is_question { RETURN_EPERM } else { ALLOW };
            assert_eq!(unix, expected, "{control:#x}");
            let all = judge(Controls::Listed, Families::All, control);
            assert_eq!(all, ALLOW, "{control:#x}");
        }
    }
    // Of file systems; what types for others; what nobody knows yet.
    let of_files = [
        0x5000_940e,
        0xc018_9436,
        0x800c_6613,
        0x4008_6604,
        0x660c,
        0x4080_6685,
        0x4008_6602,
        0x401c_5820,
        0x4008_7602,
        0x4004_7211,
        0xc004_5877,
        0xc020_660b,
    ];
    for control in of_files {
        assert_eq!(
            judge(Controls::NotOfFiles, Families::Unix, control),
            RETURN_EPERM,
            "{control:#x}"
        );
    }
    let others = [0x5412, 0x541c, 0x5423, 0, 1, 3, 0xae01, u64::from(u32::MAX)];
    for control in of_files.into_iter().chain(others) {
        for control in [control, high | control] {
            for families in FAMILIES {
                let answer = judge(Controls::Listed, families, control);
                assert_eq!(answer, RETURN_EPERM, "{control:#x}");
                assert_eq!(judge(Controls::All, families, control), ALLOW);
            }
        }
    }
    for control in [0x5401, 0xae01] {
        assert_eq!(judge(Controls::NotOfFiles, Families::Unix, control), ALLOW);
    }
}

#[test]
fn nobody_takes_a_lease() {
    for architecture in [Architecture::X86_64, Architecture::Aarch64] {
        let filters = base(architecture, Families::All).unwrap();
        let number = architecture.number("fcntl").unwrap() as u32;
        let judge = |command| {
            let arguments = [3, command, 1, 0, 0, 0];
            run_with(&filters[0], architecture.audit(), number, arguments)
        };
        for command in [1024, 1040, 0x7_0000_0400] {
            assert_eq!(judge(command), RETURN_EPERM, "{command}");
        }
        // Duplicates, flags, locks, asking for a lease, and what is denied in one tier alone.
        for command in [0, 1, 4, 6, 38, 1025, 1026, 1030, 1032, 1039] {
            assert_eq!(judge(command), ALLOW, "{command}");
        }
    }
}
