//! Names of accounts, and the range of host ids that workloads get from root.
//!
//! This program is linked without shared libraries, so the C library's own lookup, which loads modules as nsswitch.conf(5)
//! says, is not to be had: /etc/passwd is read here, and getent(1) is asked for accounts that are elsewhere (LDAP, sssd).

use std::path::Path;
use std::process::{Command, Stdio};

/// First host id for workloads of a runner started as root: just past the range that systemd gives to
/// containers (524288 to 1879048191), below 2^31.
pub(crate) const FIRST_HOST_ID: u32 = 0x7000_0000;
/// How many there are.
pub(crate) const HOST_IDS: u32 = 4096;

/// Where getent(1) may be; never the caller's PATH.
const GETENT: [&str; 2] = ["/usr/bin/getent", "/bin/getent"];

/// The name of a user's account; `None` when there is no such account or it cannot be found out.
#[must_use]
pub fn user_name(uid: u32) -> Option<String> {
    let passwd = std::fs::read("/etc/passwd").unwrap_or_default();
    name_in(&passwd, uid).or_else(|| ask(uid))
}

fn ask(uid: u32) -> Option<String> {
    let getent = GETENT.iter().find(|path| Path::new(path).is_file())?;
    let mut command = Command::new(getent);
    command.args(["passwd", &uid.to_string()]).env_clear();
    let said = command
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    name_in(&said.stdout, uid)
}

/// Of lines as passwd(5) has them the first with this user id.
fn name_in(passwd: &[u8], uid: u32) -> Option<String> {
    let passwd = String::from_utf8_lossy(passwd);
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_found_by_its_number() {
        assert_eq!(user_name(0).as_deref(), Some("root"));
        let passwd =
            b"root:x:0:0::/root:/bin/sh\n\nbroken\n:x:7::\nalice:x:7:7:A:/:/bin/sh\nbob:x:8x:8\n";
        assert_eq!(name_in(passwd, 7).as_deref(), Some("alice"));
        assert_eq!(name_in(passwd, 8), None);
        assert_eq!(name_in(b"", 0), None);
    }

    #[test]
    fn getent_says_the_same() {
        if GETENT.iter().any(|path| Path::new(path).is_file()) {
            assert_eq!(ask(0).as_deref(), Some("root"));
            assert_eq!(ask(u32::MAX - 7), None);
        }
    }
}
