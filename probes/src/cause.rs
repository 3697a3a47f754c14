//! How an attack failed: names of errors (errno(3)) and of signals (signal(7)), as both machines number them.

use std::fmt;
use std::io;

/// An error of the kernel, a signal, or neither.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    None,
    Errno(i32),
    Signal(i32),
}

macro_rules! errors {
    ($($name:ident $number:literal)+) => {
        $(#[allow(dead_code, reason = "the list is complete, not every name is used")]
        pub(crate) const $name: i32 = $number;)+

        fn error_name(number: i32) -> Option<&'static str> {
            match number {
                $($number => Some(stringify!($name)),)+
                _ => None,
            }
        }
    };
}

errors! {
    EPERM 1 ENOENT 2 ESRCH 3 EINTR 4 EIO 5 ENXIO 6 E2BIG 7 ENOEXEC 8 EBADF 9 ECHILD 10 EAGAIN 11 ENOMEM 12 EACCES 13
    EFAULT 14 ENOTBLK 15 EBUSY 16 EEXIST 17 EXDEV 18 ENODEV 19 ENOTDIR 20 EISDIR 21 EINVAL 22 ENFILE 23 EMFILE 24
    ENOTTY 25 ETXTBSY 26 EFBIG 27 ENOSPC 28 ESPIPE 29 EROFS 30 EMLINK 31 EPIPE 32 EDOM 33 ERANGE 34 EDEADLK 35
    ENAMETOOLONG 36 ENOLCK 37 ENOSYS 38 ENOTEMPTY 39 ELOOP 40 ENODATA 61 ETIME 62 EPROTO 71 EOVERFLOW 75 EILSEQ 84
    EUSERS 87 ENOTSOCK 88 EMSGSIZE 90 EPROTOTYPE 91 ENOPROTOOPT 92 EPROTONOSUPPORT 93 ESOCKTNOSUPPORT 94
    EOPNOTSUPP 95 EPFNOSUPPORT 96 EAFNOSUPPORT 97 EADDRINUSE 98 EADDRNOTAVAIL 99 ENETDOWN 100 ENETUNREACH 101
    ENETRESET 102 ECONNABORTED 103 ECONNRESET 104 ENOBUFS 105 EISCONN 106 ENOTCONN 107 ETIMEDOUT 110
    ECONNREFUSED 111 EHOSTDOWN 112 EHOSTUNREACH 113 EALREADY 114 EINPROGRESS 115 ESTALE 116 EDQUOT 122
    ECANCELED 125 ENOKEY 126 EKEYREJECTED 129
}

const SIGNALS: [&str; 31] = [
    "SIGHUP",
    "SIGINT",
    "SIGQUIT",
    "SIGILL",
    "SIGTRAP",
    "SIGABRT",
    "SIGBUS",
    "SIGFPE",
    "SIGKILL",
    "SIGUSR1",
    "SIGSEGV",
    "SIGUSR2",
    "SIGPIPE",
    "SIGALRM",
    "SIGTERM",
    "SIGSTKFLT",
    "SIGCHLD",
    "SIGCONT",
    "SIGSTOP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGXCPU",
    "SIGXFSZ",
    "SIGVTALRM",
    "SIGPROF",
    "SIGWINCH",
    "SIGIO",
    "SIGPWR",
    "SIGSYS",
];

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::None => f.write_str("none"),
            Self::Errno(number) => match error_name(number) {
                Some(name) => f.write_str(name),
                None => write!(f, "E{}", number.unsigned_abs()),
            },
            Self::Signal(number) => {
                let index = usize::try_from(number).unwrap_or(0).checked_sub(1);
                match index.and_then(|index| SIGNALS.get(index)) {
                    Some(name) => f.write_str(name),
                    None => write!(f, "SIG{}", number.unsigned_abs()),
                }
            }
        }
    }
}

impl From<&io::Error> for Cause {
    fn from(error: &io::Error) -> Self {
        match (error.raw_os_error(), error.kind()) {
            (Some(number), _) => Self::Errno(number),
            (None, io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock) => Self::Errno(ETIMEDOUT),
            (None, io::ErrorKind::InvalidInput) => Self::Errno(EINVAL),
            (None, _) => Self::Errno(EIO),
        }
    }
}

impl From<io::Error> for Cause {
    fn from(error: io::Error) -> Self {
        Self::from(&error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledger::facts::probe::Errno;

    #[test]
    fn every_number_has_a_name_that_a_line_may_hold() {
        assert_eq!(Cause::Errno(EPERM).to_string(), "EPERM");
        assert_eq!(Cause::Errno(ENETUNREACH).to_string(), "ENETUNREACH");
        assert_eq!(Cause::Signal(9).to_string(), "SIGKILL");
        assert_eq!(Cause::Signal(31).to_string(), "SIGSYS");
        assert_eq!(Cause::Errno(4_000).to_string(), "E4000");
        for number in -3..200 {
            for cause in [Cause::Errno(number), Cause::Signal(number)] {
                assert!(cause.to_string().parse::<Errno>().is_ok(), "{cause}");
            }
        }
    }
}
