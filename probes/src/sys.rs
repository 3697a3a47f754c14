//! The C library by hand: what `std` does not have.

use std::ffi::{CString, c_char, c_int, c_long, c_ulong, c_void};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;

use crate::cause::{Cause, EFAULT};

mod numbers;

pub(crate) use numbers::*;

unsafe extern "C" {
    fn fork() -> c_int;
    fn _exit(code: c_int) -> !;
    fn waitpid(pid: c_int, status: *mut c_int, options: c_int) -> c_int;
    fn poll(fds: *mut PollFd, count: c_ulong, timeout: c_int) -> c_int;
    fn syscall(number: c_long, ...) -> c_long;
    fn getpgid(pid: c_int) -> c_int;
    fn setpgid(pid: c_int, group: c_int) -> c_int;
    fn setsid() -> c_int;
    fn signal(number: c_int, handler: usize) -> usize;
    fn ioctl(fd: c_int, request: c_ulong, ...) -> c_int;
    fn fcntl(fd: c_int, command: c_int, ...) -> c_int;
    fn openat(folder: c_int, path: *const c_char, flags: c_int, ...) -> c_int;
    fn send(fd: c_int, words: *const c_void, bytes: usize, flags: c_int) -> isize;
    fn close(fd: c_int) -> c_int;
    fn statfs(path: *const c_char, facts: *mut i64) -> c_int;
    fn socket(family: c_int, kind: c_int, protocol: c_int) -> c_int;
    fn mmap(
        at: *mut c_void,
        n: usize,
        prot: c_int,
        flags: c_int,
        fd: c_int,
        from: i64,
    ) -> *mut c_void;
    fn munmap(at: *mut c_void, n: usize) -> c_int;
    fn msync(at: *mut c_void, n: usize, flags: c_int) -> c_int;
    fn setxattr(
        path: *const c_char,
        name: *const c_char,
        value: *const c_void,
        size: usize,
        flags: c_int,
    ) -> c_int;
    fn getrlimit(what: c_int, limit: *mut Limit) -> c_int;
    fn setrlimit(what: c_int, limit: *const Limit) -> c_int;
    fn mknod(path: *const c_char, mode: u32, device: u64) -> c_int;
    fn unshare(flags: c_int) -> c_int;
    fn mount(
        source: *const c_char,
        target: *const c_char,
        kind: *const c_char,
        flags: c_ulong,
        data: *const c_void,
    ) -> c_int;
    fn swapon(path: *const c_char, flags: c_int) -> c_int;
    fn sched_getaffinity(pid: c_int, size: usize, mask: *mut u8) -> c_int;
    fn ptrace(request: c_long, ...) -> c_long;
    fn process_vm_readv(
        pid: c_int,
        local: *const Vector,
        locals: c_ulong,
        remote: *const Vector,
        remotes: c_ulong,
        flags: c_ulong,
    ) -> isize;
    fn prctl(what: c_int, ...) -> c_int;
    fn getresuid(real: *mut u32, effective: *mut u32, saved: *mut u32) -> c_int;
    fn getresgid(real: *mut u32, effective: *mut u32, saved: *mut u32) -> c_int;
    fn getgroups(count: c_int, groups: *mut u32) -> c_int;
    fn setresuid(real: u32, effective: u32, saved: u32) -> c_int;
    fn clock_gettime(clock: c_int, time: *mut [i64; 2]) -> c_int;
}

#[repr(C)]
struct PollFd {
    fd: c_int,
    events: i16,
    revents: i16,
}

#[repr(C)]
struct Vector {
    base: *mut c_void,
    bytes: usize,
}

/// A resource limit (setrlimit(2)).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limit {
    pub(crate) soft: u64,
    pub(crate) hard: u64,
}

type Attempt<T> = Result<T, Cause>;

fn last() -> Cause {
    Cause::from(io::Error::last_os_error())
}

fn done(answer: impl Into<i64>) -> Attempt<i64> {
    match answer.into() {
        -1 => Err(last()),
        answer => Ok(answer),
    }
}

fn text(path: &Path) -> Attempt<CString> {
    use std::os::unix::ffi::OsStrExt;
    CString::new(path.as_os_str().as_bytes()).map_err(|_| Cause::Errno(EFAULT))
}

/// A system call by its number, of at most four arguments that are numbers or null.
pub(crate) fn call(number: c_long, arguments: [c_long; 4]) -> Attempt<i64> {
    let [a, b, c, d] = arguments;
    // SAFETY: callers pass numbers and null pointers alone; the kernel answers what it cannot use with an error.
    done(unsafe { syscall(number, a, b, c, d, 0 as c_long, 0 as c_long) })
}

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Code(i32),
    Signal(i32),
}

/// Makes a child; `Some(pid)` in the parent, `None` in the child. This program has one thread when it does.
pub(crate) fn child() -> Attempt<Option<i32>> {
    // SAFETY: no arguments; the child goes on in the same code with its own memory.
    match unsafe { fork() } {
        -1 => Err(last()),
        0 => Ok(None),
        pid => Ok(Some(pid)),
    }
}

/// Ends this process without running anything of its parent's.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: it does not return.
    unsafe { _exit(code) }
}

/// Waits for a child; without `block`, `None` while it lives.
pub(crate) fn wait(pid: i32, block: bool) -> Attempt<Option<Ended>> {
    let mut status = 0;
    loop {
        // SAFETY: `status` lives through the call.
        match unsafe { waitpid(pid, &raw mut status, c_int::from(!block)) } {
            0 => return Ok(None),
            -1 if last() == Cause::Errno(crate::cause::EINTR) => {}
            -1 => return Err(last()),
            _ if status & 0x7f == 0 => return Ok(Some(Ended::Code(status >> 8 & 0xff))),
            _ => return Ok(Some(Ended::Signal(status & 0x7f))),
        }
    }
}

/// Runs something in a child of this process and says how that ended. What it returns is its exit code.
pub(crate) fn in_child(what: impl FnOnce() -> i32) -> Attempt<Ended> {
    match child()? {
        None => exit_now(what()),
        Some(pid) => wait(pid, true)?.ok_or(Cause::Errno(crate::cause::ECHILD)),
    }
}

/// Sends a signal, by the system call itself.
pub(crate) fn send_signal(pid: i32, number: c_int) -> Attempt<()> {
    call(KILL, [pid.into(), number.into(), 0, 0]).map(drop)
}

/// Whether there is something to read, or an end, within some milliseconds.
pub(crate) fn readable(fd: RawFd, milliseconds: i32) -> bool {
    let mut one = PollFd {
        fd,
        events: 1,
        revents: 0,
    };
    // SAFETY: one entry, which lives through the call.
    unsafe { poll(&raw mut one, 1, milliseconds) > 0 }
}

/// A group of its own for this process, so that all it starts can be ended at once.
pub(crate) fn own_group() {
    // SAFETY: numbers alone. A failure leaves the old group, and the process itself is still ended.
    unsafe { setpgid(0, 0) };
}

/// A session of its own.
pub(crate) fn own_session() {
    // SAFETY: no arguments.
    unsafe { setsid() };
}

/// Ignores what asks a process to end.
pub(crate) fn ignore_requests() {
    for number in [1, 2, 3, 13, 15] {
        // SAFETY: 1 is SIG_IGN; no code of ours runs.
        unsafe { signal(number, 1) };
    }
}

/// The group of a process.
pub(crate) fn group_of(pid: i32) -> Attempt<()> {
    // SAFETY: a number alone.
    done(unsafe { getpgid(pid) }).map(drop)
}

/// The processors of a process.
pub(crate) fn affinity_of(pid: i32) -> Attempt<()> {
    let mut mask = [0_u8; 1_024];
    // SAFETY: the mask is as long as said.
    done(unsafe { sched_getaffinity(pid, mask.len(), mask.as_mut_ptr()) }).map(drop)
}

/// Asks to trace a process without stopping it (PTRACE_SEIZE); it ends with this process.
pub(crate) fn seize(pid: i32) -> Attempt<()> {
    let null = std::ptr::null_mut::<c_void>();
    // SAFETY: PTRACE_SEIZE takes no memory of ours.
    done(unsafe { ptrace(0x4206, c_long::from(pid), null, null) }).map(drop)
}

/// Reads the memory of a process at an address that is mapped nowhere: EFAULT means that it was allowed to look.
pub(crate) fn look_into(pid: i32) -> Attempt<()> {
    let mut byte = 0_u8;
    let local = Vector {
        base: (&raw mut byte).cast(),
        bytes: 1,
    };
    let remote = Vector {
        base: std::ptr::without_provenance_mut(4_096),
        bytes: 1,
    };
    // SAFETY: one byte of ours is written at most; the other address is looked up in the other process.
    let answer =
        done(unsafe { process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) } as i64);
    match answer {
        Err(Cause::Errno(EFAULT)) => Ok(()),
        other => other.map(drop),
    }
}

/// Opens by a folder's descriptor.
pub(crate) fn open_at(folder: RawFd, path: &Path, flags: c_int) -> Attempt<std::fs::File> {
    let path = text(path)?;
    // SAFETY: the text ends with a zero; the descriptor that comes back is nobody else's.
    unsafe {
        let fd = done(openat(folder, path.as_ptr(), flags | O_CLOEXEC, 0))?;
        Ok(OwnedFd::from_raw_fd(fd as RawFd).into())
    }
}

/// A number that an open descriptor has; EBADF for none.
pub(crate) fn descriptor_is_open(fd: RawFd) -> Attempt<()> {
    // SAFETY: F_GETFD takes no memory.
    done(unsafe { fcntl(fd, 1) }).map(drop)
}

/// A second descriptor for the same open file.
pub(crate) fn duplicate(fd: RawFd) -> Attempt<OwnedFd> {
    // SAFETY: F_DUPFD_CLOEXEC takes a number; the descriptor that comes back is nobody else's.
    unsafe { done(fcntl(fd, 1_030, 0)).map(|fd| OwnedFd::from_raw_fd(fd as RawFd)) }
}

/// Writes to a descriptor that may be anything, without waiting and without the signal of a broken pipe.
pub(crate) fn say(fd: RawFd, words: &[u8]) -> Attempt<()> {
    // MSG_DONTWAIT | MSG_NOSIGNAL
    // SAFETY: as many bytes as said.
    done(unsafe { send(fd, words.as_ptr().cast(), words.len(), 0x4040) } as i64).map(drop)
}

/// Closes every descriptor of this process (close_range(2), or one by one where there is none).
pub(crate) fn close_all() {
    if call(436, [0, c_long::from(u32::MAX >> 1), 0, 0]).is_ok() {
        return;
    }
    for fd in 0..1_024 {
        // SAFETY: whoever owns it in this process goes on without using it.
        unsafe { close(fd) };
    }
}

/// A socket.
pub(crate) fn open_socket(family: c_int, kind: c_int, protocol: c_int) -> Attempt<OwnedFd> {
    // SAFETY: numbers alone; the descriptor that comes back is nobody else's.
    unsafe {
        let fd = done(socket(family, kind | SOCK_CLOEXEC, protocol))?;
        Ok(OwnedFd::from_raw_fd(fd as RawFd))
    }
}

/// An ioctl that reads or writes one buffer of ours.
pub(crate) fn control(fd: RawFd, request: c_ulong, buffer: &mut [u8]) -> Attempt<()> {
    // SAFETY: callers pass a buffer of the size that the request is about.
    done(unsafe { ioctl(fd, request, buffer.as_mut_ptr()) }).map(drop)
}

/// The other side of a terminal whose first side is `fd` (ioctl_tty(2), TIOCGPTPEER).
pub(crate) fn peer_of(fd: RawFd, request: c_int) -> Attempt<std::fs::File> {
    // O_RDWR | O_NOCTTY
    let flags: c_int = 0o402 | O_CLOEXEC;
    // SAFETY: a number alone; the descriptor that comes back is nobody else's.
    unsafe {
        let peer = done(ioctl(fd, request as c_ulong, flags))?;
        Ok(OwnedFd::from_raw_fd(peer as RawFd).into())
    }
}

/// Changes the first byte of a file through a shared mapping.
pub(crate) fn write_by_mapping(file: &std::fs::File, byte: u8) -> Attempt<()> {
    // SAFETY: one page of a file that is not empty, unmapped before the end; nobody else here knows the address.
    unsafe {
        let at = mmap(std::ptr::null_mut(), 4_096, 3, 1, file.as_raw_fd(), 0);
        if at.addr() == usize::MAX {
            return Err(last());
        }
        at.cast::<u8>().write_volatile(byte);
        let synced = done(msync(at, 4_096, 4));
        munmap(at, 4_096);
        synced.map(drop)
    }
}

/// Sets `user.containment` of a file.
pub(crate) fn set_attribute(path: &Path) -> Attempt<()> {
    let path = text(path)?;
    // SAFETY: three texts that end with a zero, one of 1 byte.
    done(unsafe {
        setxattr(
            path.as_ptr(),
            c"user.containment".as_ptr(),
            c"1".as_ptr().cast(),
            1,
            0,
        )
    })
    .map(drop)
}

/// A resource's limit.
pub(crate) fn limit(what: c_int) -> Attempt<Limit> {
    let mut limit = Limit { soft: 0, hard: 0 };
    // SAFETY: it lives through the call.
    done(unsafe { getrlimit(what, &raw mut limit) })?;
    Ok(limit)
}

/// Sets a resource's limit for this process.
pub(crate) fn set_limit(what: c_int, limit: Limit) -> Attempt<()> {
    // SAFETY: it lives through the call.
    done(unsafe { setrlimit(what, &raw const limit) }).map(drop)
}

/// Makes a character device.
pub(crate) fn make_device(path: &Path, device: u64) -> Attempt<()> {
    let path = text(path)?;
    // SAFETY: a text that ends with a zero.
    done(unsafe { mknod(path.as_ptr(), 0o020_600, device) }).map(drop)
}

/// Leaves shared namespaces.
pub(crate) fn leave(flags: c_int) -> Attempt<()> {
    // SAFETY: a number alone.
    done(unsafe { unshare(flags) }).map(drop)
}

/// Mounts a tmpfs over `/`, in a mount namespace that is this process's alone.
pub(crate) fn mount_over_root() -> Attempt<()> {
    let null = std::ptr::null();
    // SAFETY: texts that end with a zero.
    done(unsafe { mount(c"none".as_ptr(), c"/".as_ptr(), c"tmpfs".as_ptr(), 0, null) }).map(drop)
}

/// Asks to swap to a file that is not there.
pub(crate) fn swap_to_nowhere() -> Attempt<()> {
    // SAFETY: a text that ends with a zero.
    done(unsafe { swapon(c"/nonexistent/containment-probe".as_ptr(), 0) }).map(drop)
}

/// Gives up every capability of this thread.
pub(crate) fn drop_capabilities() -> Attempt<()> {
    let header = [0x2008_0522_u32, 0];
    let none = [0_u32; 6];
    // SAFETY: capset(2) reads a header of two words and, in version 3, six words.
    done(unsafe { syscall(CAPSET, header.as_ptr(), none.as_ptr()) }).map(drop)
}

/// Installs a filter that allows everything.
pub(crate) fn allow_all() -> Attempt<()> {
    #[repr(C)]
    struct Program {
        count: u16,
        instructions: *const u64,
    }
    // One instruction: return SECCOMP_RET_ALLOW.
    let instruction: [u16; 4] = [6, 0, 0, 0x7fff];
    let program = Program {
        count: 1,
        instructions: instruction.as_ptr().cast(),
    };
    // SAFETY: one instruction of 8 bytes, alive through the call.
    done(unsafe { syscall(SECCOMP, 1 as c_long, 0 as c_long, &raw const program) }).map(drop)
}

/// Whether the kernel says that nothing here can gain privileges; never a measurement, only a detail.
pub(crate) fn says_no_new_privileges() -> bool {
    let zero: c_ulong = 0;
    // SAFETY: PR_GET_NO_NEW_PRIVS takes no memory.
    unsafe { prctl(39, zero, zero, zero, zero) == 1 }
}

/// Real, effective and saved ids.
pub(crate) fn users_and_groups() -> Attempt<[[u32; 3]; 2]> {
    let mut ids = [[0; 3]; 2];
    let [[a, b, c], [d, e, f]] = &mut ids;
    // SAFETY: six words that live through the calls.
    unsafe {
        done(getresuid(a, b, c))?;
        done(getresgid(d, e, f))?;
    }
    Ok(ids)
}

/// Supplementary groups.
pub(crate) fn supplementary() -> Attempt<Vec<u32>> {
    let mut groups = vec![0; 65_536];
    // SAFETY: as many words as said.
    let count = done(unsafe { getgroups(65_536, groups.as_mut_ptr()) })?;
    groups.truncate(usize::try_from(count).unwrap_or(0));
    Ok(groups)
}

/// Sets all three ids of the user to what they are.
pub(crate) fn stay(user: u32) -> Attempt<()> {
    // SAFETY: numbers alone.
    done(unsafe { setresuid(user, user, user) }).map(drop)
}

/// CPU time of this process with all its threads, in microseconds.
pub(crate) fn cpu_time() -> Attempt<u64> {
    let mut time = [0_i64; 2];
    // SAFETY: two words of 64 bits on these machines, alive through the call.
    done(unsafe { clock_gettime(2, &raw mut time) })?;
    let [seconds, nanoseconds] = time.map(|part| u64::try_from(part).unwrap_or(0));
    Ok(seconds * 1_000_000 + nanoseconds / 1_000)
}

/// A file in memory, without a name.
pub(crate) fn memory_file() -> Attempt<std::fs::File> {
    // SAFETY: a text that ends with a zero; the descriptor that comes back is nobody else's.
    unsafe {
        let fd = done(syscall(
            MEMFD_CREATE,
            c"containment-probe".as_ptr(),
            1 as c_long,
        ))?;
        Ok(OwnedFd::from_raw_fd(fd as RawFd).into())
    }
}

/// Whether a folder's file system is tmpfs (statfs(2)).
pub(crate) fn lies_in_memory(folder: &Path) -> bool {
    // The first word is the kind; the whole structure has 120 bytes.
    let mut facts = [0_i64; 32];
    // SAFETY: a text that ends with a zero, and more room than the structure takes.
    let answer =
        text(folder).and_then(|path| done(unsafe { statfs(path.as_ptr(), facts.as_mut_ptr()) }));
    answer.is_ok() && facts[0] == 0x0102_1994
}

/// A number of the other table of x86 (x32), asked for by the usual door.
#[cfg(target_arch = "x86_64")]
pub(crate) fn by_x32(number: c_long) -> Attempt<i64> {
    call(number | 0x4000_0000, [0; 4])
}

/// `getcpu` of 32-bit x86, by its own door. A kernel without it ends the process by SIGSEGV.
#[cfg(target_arch = "x86_64")]
pub(crate) fn by_interrupt() -> Attempt<i64> {
    let answer: i32;
    // SAFETY: getcpu(NULL, NULL, NULL) touches no memory; rbx, which the compiler keeps for itself, is saved by hand,
    // and the door may clear r8 to r11.
    unsafe {
        std::arch::asm!(
            "xchg {zero:r}, rbx", "int 0x80", "xchg {zero:r}, rbx",
            zero = inout(reg) 0_u64 => _,
            inlateout("eax") 318_i32 => answer,
            in("ecx") 0, in("edx") 0,
            out("r8") _, out("r9") _, out("r10") _, out("r11") _,
        );
    }
    if answer < 0 {
        Err(Cause::Errno(-answer))
    } else {
        Ok(answer.into())
    }
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn by_x32(_number: c_long) -> Attempt<i64> {
    Err(Cause::Errno(crate::cause::ENOSYS))
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn by_interrupt() -> Attempt<i64> {
    Err(Cause::Errno(crate::cause::ENOSYS))
}
