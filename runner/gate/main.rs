//! The gate: what a runtime that is somebody else's program executes inside its sandbox in place of the workload. It waits
//! until the runner has looked at the sandbox from outside and recorded what it saw, and becomes the workload.
//!
//! ```text
//! gate SOCKET IMAGE LOCK         numbers of descriptors
//! gate ── `r` ──► launcher       everything that the runtime applies is applied
//! gate ◄─ three numbers of 8 bytes: length, count of pointers, index of the first variable; then so many bytes: the
//!         pointers, as offsets or all ones for null (path, arguments, null, variables, null), and what they point at
//!      the signals that a terminal's keys send act again (the launcher blocked them for the runtime's program)
//! gate ── `x` ──► launcher       the next call is execve
//! gate ── errno, 4 bytes ──►     it failed
//! ```
//! A lock on the file LOCK is let go when execve closes that descriptor, or when this process ends, whoever else may hold the
//! others open (fcntl(2): record locks are the process's). Let go before `x` it means that the workload was never started,
//! after `x` and without an errno that it was. The policy's filter
//! holds here already, so this program has no runtime of its own and makes six system calls: fcntl, write, read,
//! rt_sigprocmask, execve and exit_group. Whoever adds one adds it to the answers of the runtimes that use the gate.

#![no_std]
#![no_main]

use core::arch::{asm, global_asm};

/// Longest message, in bytes: the most that execve(2) takes of arguments and variables is far below.
const ROOM: usize = 8 << 20;
const NULL: u64 = u64::MAX;
const FAILED: usize = 97;
const F_SETFD: usize = 2;
const FD_CLOEXEC: usize = 1;
const F_SETLK: usize = 6;
const F_WRLCK: i16 = 1;
const SIG_SETMASK: usize = 2;
/// Length of the kernel's set of signals, in bytes.
const SET: usize = 8;

#[cfg(target_arch = "x86_64")]
mod call {
    pub const READ: usize = 0;
    pub const WRITE: usize = 1;
    pub const RT_SIGPROCMASK: usize = 14;
    pub const EXECVE: usize = 59;
    pub const FCNTL: usize = 72;
    pub const EXIT_GROUP: usize = 231;
}

#[cfg(target_arch = "aarch64")]
mod call {
    pub const READ: usize = 63;
    pub const WRITE: usize = 64;
    pub const EXECVE: usize = 221;
    pub const FCNTL: usize = 25;
    pub const EXIT_GROUP: usize = 94;
    pub const RT_SIGPROCMASK: usize = 135;
}

#[cfg(target_arch = "x86_64")]
global_asm!(
    ".globl _start",
    "_start:",
    "xor ebp, ebp",
    "mov rdi, rsp",
    "and rsp, -16",
    "call {main}",
    "ud2",
    main = sym main,
);

#[cfg(target_arch = "aarch64")]
global_asm!(
    ".globl _start",
    "_start:",
    "mov x29, #0",
    "mov x0, sp",
    "bl {main}",
    "brk #1",
    main = sym main,
);

#[cfg(target_arch = "x86_64")]
fn system(number: usize, a: usize, b: usize, c: usize, d: usize) -> isize {
    let result: isize;
    // SAFETY: the caller's arguments are numbers, or addresses of memory that this program owns.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    result
}

#[cfg(target_arch = "aarch64")]
fn system(number: usize, a: usize, b: usize, c: usize, d: usize) -> isize {
    let result: isize;
    // SAFETY: the caller's arguments are numbers, or addresses of memory that this program owns.
    unsafe {
        asm!(
            "svc #0",
            in("x8") number,
            inlateout("x0") a => result, in("x1") b, in("x2") c, in("x3") d,
            options(nostack),
        );
    }
    result
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    exit()
}

fn exit() -> ! {
    loop {
        system(call::EXIT_GROUP, FAILED, 0, 0, 0);
    }
}

/// A small decimal number; stops at the first byte that is no digit.
///
/// # Safety
/// `text` must point to a string that ends with a zero byte.
unsafe fn number(text: *const u8) -> usize {
    let mut value: usize = 0;
    let mut at = text;
    loop {
        // SAFETY: not past the zero byte, which is no digit.
        let byte = unsafe { at.read() };
        if !byte.is_ascii_digit() {
            return value;
        }
        value = value.wrapping_mul(10).wrapping_add((byte - b'0') as usize);
        // SAFETY: the byte before was no end.
        at = unsafe { at.add(1) };
    }
}

/// Reads exactly so many bytes, or ends: the launcher is gone, and nothing is to be run.
fn read(from: usize, into: usize, count: usize) {
    let mut done = 0;
    while done < count {
        let got = system(call::READ, from, into + done, count - done, 0);
        match got {
            -4 => {}
            1.. => done += got as usize,
            _ => exit(),
        }
    }
}

fn write(to: usize, from: usize, count: usize) {
    while system(call::WRITE, to, from, count, 0) == -4 {}
}

/// struct flock, of a whole file.
#[repr(C)]
struct Lock {
    kind: i16,
    whence: i16,
    start: i64,
    length: i64,
    pid: i32,
}

/// The message, eight bytes each.
static mut MESSAGE: [u64; ROOM / 8] = [0; ROOM / 8];

/// # Safety
/// `stack` must be what the kernel passes to a new program: the count of arguments, then pointers to them.
unsafe extern "C" fn main(stack: *const usize) -> ! {
    // SAFETY: the count stands first.
    if unsafe { stack.read() } != 4 {
        exit();
    }
    // SAFETY: the name and three arguments follow, each a string.
    let [socket, image, lock] = unsafe {
        [
            number(stack.add(2).read() as *const u8),
            number(stack.add(3).read() as *const u8),
            number(stack.add(4).read() as *const u8),
        ]
    };
    for descriptor in [socket, image, lock] {
        if system(call::FCNTL, descriptor, F_SETFD, FD_CLOEXEC, 0) < 0 {
            exit();
        }
    }
    let whole = Lock {
        kind: F_WRLCK,
        whence: 0,
        start: 0,
        length: 0,
        pid: 0,
    };
    if system(call::FCNTL, lock, F_SETLK, &raw const whole as usize, 0) < 0 {
        exit();
    }
    let ready = b'r';
    write(socket, &raw const ready as usize, 1);
    let mut head = [0u64; 3];
    read(socket, &raw mut head as usize, 24);
    let [length, pointers, first_variable] = head.map(|number| number as usize);
    let fits = length <= ROOM && pointers <= length / 8;
    if !fits || pointers < 4 || first_variable < 3 || first_variable >= pointers {
        exit();
    }
    let message = &raw mut MESSAGE as *mut u64;
    let base = message as usize;
    read(socket, base, length);
    let mut at = 0;
    while at < pointers {
        // SAFETY: within the message, whose length was checked.
        unsafe {
            let offset = message.add(at).read();
            let address = if offset == NULL {
                0
            } else {
                base.wrapping_add(offset as usize) as u64
            };
            message.add(at).write(address);
        }
        at += 1;
    }
    // Before `x`: who dies of one that came meanwhile was never the workload.
    let none: u64 = 0;
    let set = &raw const none as usize;
    if system(call::RT_SIGPROCMASK, SIG_SETMASK, set, 0, SET) < 0 {
        exit();
    }
    let starts = b'x';
    write(socket, &raw const starts as usize, 1);
    // SAFETY: the first pointer, and the addresses of two of them.
    let (path, argv, variables) = unsafe {
        (
            message.read() as usize,
            message.add(1) as usize,
            message.add(first_variable) as usize,
        )
    };
    let errno = (-system(call::EXECVE, path, argv, variables, 0)) as u32;
    write(socket, &raw const errno as usize, 4);
    exit()
}
