//! This test program again, run inside: what a process there can do, as lines `probe <name>=<ok or error>`.
//!
//! The same attempts are made outside by [`outside_everything_works`]: an attempt that fails there too would show
//! nothing by failing inside.

#![allow(
    unsafe_code,
    reason = "raw system calls, by numbers that no library offers"
)]

use std::collections::BTreeMap;
use std::io;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixStream};
use std::process::Command;
use std::time::Duration;

use crate::world::{Ran, World};

/// Which attempts to make, separated by `;`.
const VARIABLE: &str = "PROBE";
const TIMEOUT: Duration = Duration::from_secs(5);
/// Where the program stands inside.
const INSIDE: &str = "/probe/it";

/// Makes the attempts in a sandbox; the answers by attempt.
#[track_caller]
pub(crate) fn inside(world: &World, flags: &str, attempts: &[&str]) -> BTreeMap<String, String> {
    let ran = run_inside(world, flags, attempts);
    answers(&ran)
}

/// As [`inside`], with everything the run came to.
pub(crate) fn run_inside(world: &World, flags: &str, attempts: &[&str]) -> Ran {
    Ran::of(command_inside(world, flags, attempts).output().unwrap())
}

/// The command of [`run_inside`].
pub(crate) fn command_inside(world: &World, flags: &str, attempts: &[&str]) -> Command {
    let exe = std::env::current_exe().unwrap();
    let flags = format!(
        "--read {}:{INSIDE} --env {VARIABLE}={} {flags}",
        exe.display(),
        attempts.join(";")
    );
    let name = "probe::outside_everything_works";
    world.exec_command(
        &flags,
        &[INSIDE, "--exact", name, "--nocapture", "--test-threads=1"],
    )
}

/// The answers of a run that ended well.
#[track_caller]
pub(crate) fn answers(ran: &Ran) -> BTreeMap<String, String> {
    assert_eq!(ran.code, Some(0), "{ran:#?}");
    let lines = ran
        .out
        .lines()
        .filter_map(|line| line.split_once("probe ")?.1.split_once('='));
    lines
        .map(|(name, answer)| (name.to_owned(), answer.to_owned()))
        .collect()
}

#[test]
fn outside_everything_works() {
    let outside = ["getcpu", "getpid", "sched_yield", "fork", "own-loopback"];
    let Ok(asked) = std::env::var(VARIABLE) else {
        for name in outside {
            assert_eq!(attempt(name), "ok", "{name}");
        }
        return;
    };
    println!();
    for name in asked.split(';') {
        println!("probe {name}={}", attempt(name));
    }
}

fn attempt(name: &str) -> String {
    let made = match name.split_once(':') {
        Some(("tcp", address)) => tcp(address),
        Some(("udp", address)) => udp(address),
        Some(("abstract", name)) => UnixAddr::from_abstract_name(name)
            .and_then(|address| UnixStream::connect_addr(&address).map(drop)),
        Some(("unix", path)) => UnixStream::connect(path).map(drop),
        Some(("kill", pid)) => kill(pid),
        Some(("x32", number)) => call(number.parse::<i64>().unwrap() | 0x4000_0000),
        Some(("number", number)) => call(number.parse().unwrap()),
        Some(("args", name)) => call_with(number(name), [u64::MAX, 1 << 53, 3, 4, 5, 6]),
        Some(("flood", each)) => flood(each.parse().unwrap()),
        Some(("among-signals", count)) => among_signals(count.parse().unwrap(), true),
        Some(("cut-by-signals", count)) => among_signals(count.parse().unwrap(), false),
        Some(("do", what)) => return crate::hostile::misdeeds::commit(what),
        Some(("i386", number)) => int80(number.parse().unwrap()),
        None if name == "own-loopback" => own_loopback(),
        None if name == "fork" => Command::new("true").status().map(drop),
        None if name == "descriptors" => return descriptors(),
        None if name == "say-and-flood" => {
            println!("said before");
            io::stdout().flush().unwrap();
            flood(usize::MAX)
        }
        None if name == "killed-while-denied" => killed_while_denied(),
        None => call(number(name)),
        Some(_) => panic!("no attempt is called {name}"),
    };
    match made {
        Ok(()) => "ok".to_owned(),
        Err(error) => match error.raw_os_error() {
            Some(number) => format!("{:?}", nix::errno::Errno::from_raw(number)),
            None => format!("{:?}", error.kind()),
        },
    }
}

fn number(name: &str) -> i64 {
    let call = ledger::facts::policy::syscalls::lookup(name).expect("a system call's name");
    let number = if cfg!(target_arch = "x86_64") {
        call.x86_64
    } else {
        call.aarch64
    };
    number.expect("a system call of this architecture").into()
}

/// Makes a system call with zeros for arguments, which those that tests name take without harm.
fn call(number: i64) -> io::Result<()> {
    call_with(number, [0; 6])
}

/// The same with others, for calls that are denied before anybody looks at them.
fn call_with(number: i64, [a, b, c, d, e, f]: [u64; 6]) -> io::Result<()> {
    // SAFETY: six integers; no memory of this process is handed over.
    let answer = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    if answer < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Whether a call fails with EPERM, and with nothing else.
fn is_denied(number: i64) -> io::Result<()> {
    match call(number) {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => Ok(()),
        other => Err(io::Error::other(format!("call {number}: {other:?}"))),
    }
}

/// Makes five denied calls in each of eight threads, so many of each.
fn flood(each: usize) -> io::Result<()> {
    let calls = ["ptrace", "mount", "bpf", "keyctl", "perf_event_open"].map(number);
    let one = move || (0..each).try_for_each(|_| calls.into_iter().try_for_each(is_denied));
    let threads: Vec<_> = (0..8).map(|_| std::thread::spawn(one)).collect();
    threads
        .into_iter()
        .try_for_each(|thread| thread.join().unwrap())
}

/// Kills children again and again that do nothing but denied calls.
fn killed_while_denied() -> io::Result<()> {
    let ptrace = number("ptrace");
    for _ in 0..100 {
        let (read, write) = nix::unistd::pipe()?;
        // SAFETY: the child makes system calls alone, and never returns.
        match unsafe { libc::fork() } {
            -1 => return Err(io::Error::last_os_error()),
            0 => {
                // SAFETY: integers, and the call is denied.
                let denied = || unsafe { libc::syscall(ptrace, 0, 0, 0, 0, 0, 0) };
                denied();
                let _ = nix::unistd::write(&write, &[1]);
                loop {
                    denied();
                }
            }
            child => {
                nix::unistd::read(&read, &mut [0])?;
                let child = nix::unistd::Pid::from_raw(child);
                nix::sys::signal::kill(child, nix::sys::signal::Signal::SIGKILL)?;
                nix::sys::wait::waitpid(child, None)?;
            }
        }
    }
    Ok(())
}

extern "C" fn ignore(_: libc::c_int) {}

/// Makes denied calls while a handler is called every millisecond, after which the call is made again: by the kernel where it is to
/// `restart`, and by this program where it fails with EINTR.
fn among_signals(count: usize, restart: bool) -> io::Result<()> {
    use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
    let handler = SigHandler::Handler(ignore);
    let flags = if restart {
        SaFlags::SA_RESTART
    } else {
        SaFlags::empty()
    };
    let action = SigAction::new(handler, flags, SigSet::empty());
    // SAFETY: the handler does nothing.
    unsafe { sigaction(Signal::SIGALRM, &action)? };
    let every = libc::timeval {
        tv_sec: 0,
        tv_usec: 1_000,
    };
    let timer = libc::itimerval {
        it_interval: every,
        it_value: every,
    };
    // SAFETY: the value outlives the call, and the old one is not asked for.
    if unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let getcpu = number("getcpu");
    let denied = || loop {
        match is_denied(getcpu) {
            Err(error) if !restart && error.raw_os_error() == Some(libc::EINTR) => {}
            answer => return answer,
        }
    };
    (0..count).try_for_each(|_| denied())
}

/// Makes a 32-bit system call with zeros for arguments.
#[cfg(target_arch = "x86_64")]
fn int80(number: i32) -> io::Result<()> {
    let answer: i32;
    // SAFETY: the kernel saves all registers but eax; rbx is put back by hand, as LLVM reserves it.
    unsafe {
        std::arch::asm!(
            "push rbx", "xor ebx, ebx", "int 0x80", "pop rbx",
            inlateout("eax") number => answer,
            in("ecx") 0, in("edx") 0, in("esi") 0, in("edi") 0,
            out("r8") _, out("r9") _, out("r10") _, out("r11") _,
        );
    }
    if answer < 0 {
        Err(io::Error::from_raw_os_error(-answer))
    } else {
        Ok(())
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn int80(_: i32) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

fn tcp(address: &str) -> io::Result<()> {
    let address: SocketAddr = address.parse().unwrap();
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let mut greeting = [0; 5];
    stream.read_exact(&mut greeting)
}

fn udp(address: &str) -> io::Result<()> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.set_read_timeout(Some(Duration::from_millis(500)))?;
    socket.connect(address)?;
    socket.send(b"hello")?;
    socket.recv(&mut [0; 16]).map(drop)
}

fn own_loopback() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut client = TcpStream::connect_timeout(&listener.local_addr()?, TIMEOUT)?;
    let (mut served, _) = listener.accept()?;
    served.write_all(b"hello")?;
    client.read_exact(&mut [0; 5])
}

fn kill(pid: &str) -> io::Result<()> {
    // SAFETY: two integers.
    if unsafe { libc::kill(pid.parse().unwrap(), 0) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// The numbers of this process's descriptors, without those that libtest and the listing opened.
fn descriptors() -> String {
    let own = std::fs::read_dir("/proc/self/fd").unwrap();
    let mut numbers: Vec<i32> = own
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let target = std::fs::read_link(entry.path()).ok()?;
            let listing = target.starts_with("/proc");
            let number = entry.file_name().to_str()?.parse().ok()?;
            (!listing).then_some(number)
        })
        .collect();
    numbers.sort_unstable();
    numbers
        .iter()
        .map(i32::to_string)
        .collect::<Vec<_>>()
        .join(",")
}
