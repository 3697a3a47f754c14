//! What the Rust runtime does before `main` and this program needs.
//!
//! The program is started twice for each run, the second time inside the sandbox, and the rest of the runtime's start (reading
//! /proc/self/maps for a guard page, an alternative stack, handlers that name a stack overflow) takes a good part of a
//! millisecond's tenth each time. Arguments and environment come from the C library either way.

/// Standard streams that are closed are opened on /dev/null, so that no file gets their numbers; a reader that went away
/// makes writes fail instead of ending this process; and children are not reaped behind its back.
pub fn start() {
    for number in 0..=2 {
        // SAFETY: F_GETFD takes integers and only looks the number up.
        if unsafe { libc::fcntl(number, libc::F_GETFD) } == -1 {
            // SAFETY: a C string; the lowest free number is this one, as those below are open.
            let opened = unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR) };
            if opened != number {
                std::process::abort();
            }
        }
    }
    // SAFETY: SIG_IGN is no function of ours; no other thread runs yet.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    // And so does a limit on the size of files (setrlimit(2), RLIMIT_FSIZE): EFBIG is an error that can be told.
    // SAFETY: as above.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    // A caller may have had its children reaped by the kernel; who ended how is what this program lives from.
    // SAFETY: as above.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

/// Makes a function the first one of a program, in the place of Rust's own start. (Other C libraries than GNU's do not hand
/// arguments to a program without that.)
#[macro_export]
macro_rules! entry {
    ($run:path) => {
        /// Called by the C library.
        #[allow(
            unsafe_code,
            reason = "the name is the C library's, and there is no other function of this name"
        )]
        #[unsafe(no_mangle)]
        extern "C" fn main() -> std::ffi::c_int {
            $crate::sys::start::start();
            $run()
        }
    };
}
