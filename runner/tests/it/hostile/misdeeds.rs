//! What [`crate::probe`] does inside when it means harm. The answer is `ok`, or a count and the error that ended it.

#![allow(unsafe_code, reason = "raw system calls")]

use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;

/// Commits one: its name, and what it needs after `:`.
pub(crate) fn commit(what: &str) -> String {
    let mut words = what.split(':');
    let mut next = || words.next().unwrap_or_default();
    match next() {
        "kill-init" => kill_init(),
        "forks" => forks(next().parse().unwrap()),
        "orphans" => orphans(next().parse().unwrap()),
        "descriptors" => until_error(|_| File::open("/dev/null").map(std::mem::forget)),
        "inodes" => {
            let folder = Path::new(next());
            until_error(|number| File::create(folder.join(number.to_string())).map(drop))
        }
        "fill" => fill(Path::new(next())),
        "lock-memory" => lock_memory(),
        "files" => {
            let (folder, count) = (Path::new(next()), next().parse::<u32>().unwrap());
            for number in 0..count {
                File::create(folder.join(format!("{number:06}"))).unwrap();
            }
            "ok".to_owned()
        }
        "deep" => {
            std::env::set_current_dir(next()).unwrap();
            deep(next().parse().unwrap())
        }
        "zoo" => {
            std::env::set_current_dir(next()).unwrap();
            zoo().unwrap();
            "ok".to_owned()
        }
        name => panic!("no misdeed is called {name}"),
    }
}

/// Tries until it fails: how often it went well, and the error.
fn until_error(mut attempt: impl FnMut(u32) -> io::Result<()>) -> String {
    for number in 0.. {
        if let Err(error) = attempt(number) {
            let errno = Errno::from_raw(error.raw_os_error().unwrap_or(0));
            return format!("{number},{errno:?}");
        }
    }
    unreachable!("it fails at last")
}

fn kill_init() -> String {
    for signal in 1..=64 {
        // SAFETY: two integers.
        unsafe { libc::kill(1, signal) };
        // SAFETY: as before; the value is an integer that nobody takes.
        unsafe {
            libc::sigqueue(
                1,
                signal,
                libc::sigval {
                    sival_ptr: std::ptr::null_mut(),
                },
            )
        };
    }
    "ok".to_owned()
}

/// Forks; what `child` returns is its exit status.
fn fork(child: impl FnOnce() -> i32) {
    // SAFETY: the child calls nothing but system calls and leaves by _exit.
    match unsafe { libc::fork() } {
        0 => {
            let status = child();
            // SAFETY: ends this process.
            unsafe { libc::_exit(status) }
        }
        pid => assert!(pid > 0, "{}", io::Error::last_os_error()),
    }
}

fn pause() -> i32 {
    loop {
        // SAFETY: takes nothing.
        unsafe { libc::pause() };
    }
}

/// A tree in which every process has two children and ignores what it can.
fn forks(count: u32) -> String {
    for signal in 1..32 {
        // SAFETY: the disposition is one of the constants.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    tree(count);
    "ok".to_owned()
}

fn tree(count: u32) {
    let below = count.saturating_sub(1) / 2;
    for share in [below, count.saturating_sub(1) - below] {
        if share > 0 {
            fork(|| {
                // SAFETY: takes nothing.
                unsafe { libc::setsid() };
                tree(share);
                pause()
            });
        }
    }
}

/// How long orphans are made at most: should they ever escape, they must not take the machine along.
const MAKING: Duration = Duration::from_secs(10);

/// Processes that make orphans without pause: each ends at once and is for pid 1 to reap.
fn orphans(makers: u32) -> String {
    let until = Instant::now() + MAKING;
    for _ in 0..makers {
        fork(|| {
            while Instant::now() < until {
                // SAFETY: the children call nothing but system calls.
                match unsafe { libc::fork() } {
                    0 => {
                        // SAFETY: as before.
                        unsafe { libc::fork() };
                        // SAFETY: ends this process.
                        unsafe { libc::_exit(0) };
                    }
                    -1 => return 1,
                    // SAFETY: no status is asked for.
                    pid => _ = unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) },
                }
            }
            0
        });
    }
    pause().to_string()
}

/// Fills a file system with one file.
fn fill(folder: &Path) -> String {
    let mut file = File::create(folder.join("full")).unwrap();
    let piece = [b'x'; 64 << 10];
    until_error(|_| io::Write::write_all(&mut file, &piece))
}

fn lock_memory() -> String {
    // SAFETY: a flag.
    let locked = unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) };
    if locked == 0 {
        "ok".to_owned()
    } else {
        format!("{:?}", Errno::last())
    }
}

/// Folders in one another, a file in the deepest one.
fn deep(depth: u32) -> String {
    for _ in 0..depth {
        std::fs::create_dir("d").unwrap();
        std::env::set_current_dir("d").unwrap();
    }
    std::fs::write("bottom", "deep").unwrap();
    "ok".to_owned()
}

/// One of each kind, and names that are no text.
fn zoo() -> io::Result<()> {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    let name = |bytes: &'static [u8]| std::ffi::OsStr::from_bytes(bytes);
    std::fs::write("plain", "plain")?;
    std::fs::hard_link("plain", "twin")?;
    std::fs::write(name(b"no\xfftext"), "1")?;
    std::fs::write(name(b"new\nline"), "2")?;
    std::fs::write(name(b"\x1b[31mred\x07"), "3")?;
    nix::unistd::mkfifo("pipe", nix::sys::stat::Mode::S_IRWXU)?;
    let _closed = std::os::unix::net::UnixListener::bind("socket")?;
    symlink("/etc/passwd", "to-host-file")?;
    symlink("/proc/self/root/etc", "to-proc")?;
    symlink("../../../../../../../..", "to-root")?;
    symlink("loop-b", "loop-a")?;
    symlink("loop-a", "loop-b")?;
    symlink(".", "here")?;
    File::create("sparse")?.set_len(10 << 40)?;
    std::fs::create_dir("closed")?;
    std::fs::write("closed/f", "4")?;
    std::fs::write("secret", "5")?;
    let none = || std::fs::Permissions::from_mode(0o000);
    std::fs::set_permissions("secret", none())?;
    std::fs::set_permissions("closed", none())
}
