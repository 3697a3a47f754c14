//! Privileges, by what they can do.

use std::fs;

use super::writing::writable_folders;
use crate::cause::{Cause, EACCES, EBADF, EINVAL, ENOENT, ENOSYS, EOPNOTSUPP, EPERM};
use crate::line::{Seen, Twin};
use crate::parameters::Parameters;
use crate::sys::{self, Ended, Limit};
use crate::tally::Tally;

pub(crate) const DENIED: &[&str] = &["EPERM", "EACCES"];
/// EBADF: the kernel looked at the descriptor, so it was content with the caller. `none`: so it was, and a filter stands.
pub(crate) const DENIED_NEW: &[&str] = &["EBADF", "none"];
pub(crate) const DENIED_USERNS: &[&str] =
    &["EPERM", "EACCES", "ENOSPC", "EUSERS", "ENOSYS", "EINVAL"];

/// Capabilities in the host's own user namespace: sethostname(2) and the like would only reach a namespace.
pub(crate) fn capabilities(_parameters: &Parameters) -> Seen {
    let mut tally = Tally::new(DENIED);
    match sys::swap_to_nowhere() {
        // It may, and there is no such file.
        Err(Cause::Errno(ENOENT)) => tally.escaped("swapon"),
        answer => tally.attempt("swapon", answer),
    }
    let folders = writable_folders();
    match folders.first() {
        Some(folder) => {
            let path = folder.join(format!("containment-probe-null-{}", std::process::id()));
            // 1:3, a second null device: harmless to have.
            let made = sys::make_device(&path, 0x103);
            if made.is_ok()
                && let Err(error) = fs::remove_file(&path)
            {
                tally.note(format!("{} stays: {}", path.display(), Cause::from(error)));
            }
            tally.attempt("mknod", made);
        }
        None => tally.note("mknod: no folder to write in"),
    }
    let mut twin = Twin::Failed;
    match sys::limit(sys::RLIMIT_MSGQUEUE) {
        Ok(limit) => {
            twin = Twin::of(sys::set_limit(sys::RLIMIT_MSGQUEUE, limit).is_ok());
            if limit.hard < u64::MAX / 2 {
                let more = Limit {
                    soft: limit.soft,
                    hard: limit.hard + 1,
                };
                tally.attempt("hard limit", sys::set_limit(sys::RLIMIT_MSGQUEUE, more));
            }
        }
        Err(cause) => tally.note(format!("getrlimit {cause}")),
    }
    tally.finish(twin)
}

/// Whether programs can still gain privileges by execve(2): a sandbox of one's own may be built only by who cannot.
pub(crate) fn no_new_privileges(_parameters: &Parameters) -> Seen {
    let mut tally = Tally::new(DENIED_NEW);
    // A capability answers the same question with yes, whatever is set.
    if let Err(cause) = sys::drop_capabilities() {
        return Seen::missing(format!("capabilities cannot be given up: {cause}"));
    }
    tally.note(match sys::says_no_new_privileges() {
        true => "PR_GET_NO_NEW_PRIVS says 1",
        false => "PR_GET_NO_NEW_PRIVS says 0",
    });
    let version = sys::call(sys::LANDLOCK_CREATE_RULESET, [0, 0, 1, 0]);
    let answer = version.and_then(|_| sys::call(sys::LANDLOCK_RESTRICT_SELF, [-1, 0, 0, 0]));
    match answer {
        Err(Cause::Errno(EBADF)) => {
            tally.refused("landlock", Cause::Errno(EBADF));
            return tally.finish(Twin::Ok);
        }
        // Not there, switched off, not content, or filtered: a filter that allows everything asks the same.
        Err(Cause::Errno(number @ (ENOSYS | EOPNOTSUPP | EPERM))) => {
            tally.note(format!("landlock {}", Cause::Errno(number)));
        }
        Ok(_) => return Seen::missing("landlock took no descriptor for one"),
        Err(cause) => return Seen::missing(format!("landlock {cause}")),
    }
    match (sys::allow_all(), answer) {
        (Ok(()), _) => tally.refused("filter", Cause::None),
        (Err(Cause::Errno(EACCES)), _) => tally.escaped("filter EACCES"),
        // No filters here, so it is no filter that answered.
        (Err(Cause::Errno(ENOSYS | EINVAL)), Err(Cause::Errno(EPERM))) => {
            tally.escaped("landlock EPERM");
        }
        (Err(cause), _) => return Seen::missing(format!("neither landlock nor seccomp: {cause}")),
    }
    tally.finish(Twin::Ok)
}

const NEW_MOUNTS: i32 = 0x0002_0000;
const NEW_USERS: i32 = 0x1000_0000;
const OWN_FILES: i32 = 0x400;

/// A user namespace below this one, and a mount there. Where making one works and gives nothing, nothing was gained.
pub(crate) fn userns(_parameters: &Parameters) -> Seen {
    let mut tally = Tally::new(DENIED_USERNS);
    let mut made = false;
    // Mounts first become this namespace's alone: one of another user's passes nothing on.
    let mut tell = std::io::pipe();
    let ended = sys::in_child(|| {
        let answer = sys::leave(NEW_USERS | NEW_MOUNTS);
        if answer.is_ok()
            && let Ok((_, tell)) = &mut tell
        {
            use std::io::Write;
            let _told = tell.write_all(b"1");
        }
        match answer.and_then(|()| sys::mount_over_root()) {
            Ok(()) => 0,
            Err(Cause::Errno(number)) => number,
            Err(Cause::None | Cause::Signal(_)) => 255,
        }
    });
    if let Ok((heard, tell)) = tell {
        use std::io::Read;
        drop(tell);
        made = heard.take(1).read(&mut [0]).is_ok_and(|count| count == 1);
    }
    let what = if made {
        "mount in a namespace of its own"
    } else {
        "unshare"
    };
    match ended {
        Ok(Ended::Code(0)) => tally.escaped(what),
        Ok(Ended::Code(number)) => tally.refused(what, Cause::Errno(number)),
        Ok(Ended::Signal(number)) => tally.refused(what, Cause::Signal(number)),
        Err(cause) => tally.refused("fork", cause),
    }
    // The same call, for what everybody may leave.
    let twin = Twin::of(sys::leave(OWN_FILES).is_ok());
    tally.finish(twin)
}
