//! Who the workload is, inside and to the host.

use std::io::Write;
use std::os::unix::net::UnixStream;

use crate::cause::Cause;
use crate::line::{Seen, Twin};
use crate::parameters::Parameters;
use crate::sys;
use crate::tally::Tally;

/// To be who the policy says is no error.
pub(crate) const DENIED: &[&str] = &["none"];

/// What an id shows that is mapped nowhere; an empty map shows it too.
const OVERFLOW: u32 = 65_534;

fn twin(user: u32) -> Twin {
    Twin::of(sys::stay(user).is_ok())
}

pub(crate) fn inside(parameters: &Parameters) -> Seen {
    let mut tally = Tally::new(DENIED);
    let wanted = parameters.first("inside").and_then(|text| {
        let (user, group) = text.split_once(':')?;
        Some((user.parse::<u32>().ok()?, group.parse::<u32>().ok()?))
    });
    let Some((user, group)) = wanted else {
        return Seen::missing("no inside=UID:GID was given");
    };
    let [users, groups] = match sys::users_and_groups() {
        Ok(ids) => ids,
        Err(cause) => return Seen::missing(format!("ids: {cause}")),
    };
    let others = match sys::supplementary() {
        Ok(others) => others,
        Err(cause) => return Seen::missing(format!("groups: {cause}")),
    };
    let said = format!("uid {users:?} gid {groups:?} groups {others:?}");
    if users.contains(&OVERFLOW) || groups.contains(&OVERFLOW) {
        let map = match std::fs::read_to_string("/proc/self/uid_map") {
            Ok(map) => map.split_whitespace().collect::<Vec<_>>().join(" "),
            Err(error) => Cause::from(error).to_string(),
        };
        return Seen::missing(format!(
            "{OVERFLOW} says nothing, uid_map is [{map}]: {said}"
        ));
    }
    let expected = users == [user; 3]
        && groups == [group; 3]
        && others
            .iter()
            .all(|other| *other == group || *other == OVERFLOW);
    if expected {
        tally.refused(said, Cause::None);
    } else {
        tally.escaped(format!("{said}, expected {user}:{group}"));
    }
    tally.finish(twin(users[1]))
}

/// Inside nobody knows: the runner looks from outside, at the process, and at who connects to its socket.
pub(crate) fn host(parameters: &Parameters) -> Seen {
    let mut tally = Tally::new(DENIED);
    let greeting = parameters.greeting("user/host");
    for path in parameters.all("unix") {
        let said = UnixStream::connect(path).and_then(|mut stream| stream.write_all(&greeting));
        tally.note(match said {
            Ok(()) => format!("{path} connected"),
            Err(error) => format!("{path} {}", Cause::from(error)),
        });
    }
    let [users, groups] = match sys::users_and_groups() {
        Ok(ids) => ids,
        Err(cause) => return Seen::missing(format!("ids: {cause}")),
    };
    tally.refused(
        format!("inside uid {} gid {}", users[1], groups[1]),
        Cause::None,
    );
    tally.finish(twin(users[1]))
}
