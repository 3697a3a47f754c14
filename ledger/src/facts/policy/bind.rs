//! The small texts of a policy: `SRC[:DST]` and `HOST:PORT`.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use serde::de::{self, Deserialize, Deserializer};
use serde::ser::{Serialize, Serializer};

use super::json::shorten;

/// A file or folder of the host and where the workload sees it. Text form `SRC[:DST]`, both absolute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bind {
    /// Absolute path on the host.
    pub source: String,
    /// Absolute path inside; the same as outside when not given.
    pub target: Option<String>,
}

/// Why a text is no `SRC[:DST]`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BindError {
    /// More than one colon.
    #[error("{0:?} has more than one colon, expected SRC or SRC:DST")]
    Colons(String),
    /// A part is not an absolute path.
    #[error("{0:?} is not absolute, expected a path that begins with /")]
    Relative(String),
    /// A part has a component that leads back up.
    #[error("{0:?} has a .. in it, expected a path without")]
    Upward(String),
    /// A part holds a NUL, which no path can.
    #[error("{0:?} holds a NUL character, expected a path without")]
    Nul(String),
}

impl Bind {
    /// Where the workload sees it.
    #[must_use]
    pub fn inside(&self) -> &str {
        self.target.as_deref().unwrap_or(&self.source)
    }
}

/// An absolute path without `.`, empty parts or a final slash.
pub(super) fn absolute(path: &str) -> Result<String, BindError> {
    if !path.starts_with('/') {
        return Err(BindError::Relative(shorten(path)));
    }
    if path.contains('\0') {
        return Err(BindError::Nul(shorten(path)));
    }
    let mut normal = String::with_capacity(path.len());
    for part in path.split('/').filter(|part| !matches!(*part, "" | ".")) {
        if part == ".." {
            return Err(BindError::Upward(shorten(path)));
        }
        normal.push('/');
        normal.push_str(part);
    }
    if normal.is_empty() {
        normal.push('/');
    }
    Ok(normal)
}

impl FromStr for Bind {
    type Err = BindError;

    fn from_str(text: &str) -> Result<Self, BindError> {
        let (source, target) = match text.split_once(':') {
            Some((_, target)) if target.contains(':') => {
                return Err(BindError::Colons(shorten(text)));
            }
            Some((source, target)) => (absolute(source)?, Some(absolute(target)?)),
            None => (absolute(text)?, None),
        };
        let target = target.filter(|target| *target != source);
        Ok(Self { source, target })
    }
}

impl fmt::Display for Bind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.source)?;
        match &self.target {
            Some(target) => write!(f, ":{target}"),
            None => Ok(()),
        }
    }
}

/// A host and a TCP port. Text form `HOST:PORT`, an IPv6 address in brackets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort {
    /// A name (RFC 1123, lower case) or an IP address, without brackets.
    pub host: String,
    /// The port, 1 to 65535.
    pub port: u16,
}

/// A text that is no `HOST:PORT`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no host and port, expected such as example.org:443 or [2001:db8::1]:443")]
pub struct HostPortError(String);

impl FromStr for HostPort {
    type Err = HostPortError;

    fn from_str(text: &str) -> Result<Self, HostPortError> {
        let error = || HostPortError(shorten(text));
        let (host, digits) = text.rsplit_once(':').ok_or_else(error)?;
        // `parse` alone would take "+443" and "0443".
        let port = digits.parse::<u16>().ok().filter(|port| *port > 0);
        let port = port
            .filter(|port| port.to_string() == digits)
            .ok_or_else(error)?;
        let host = match host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
        {
            Some(address) => address
                .parse::<Ipv6Addr>()
                .map_err(|_| error())?
                .to_string(),
            None => name_or_v4(host).ok_or_else(error)?,
        };
        Ok(Self { host, port })
    }
}

/// RFC 1123 §2.1: labels of letters, digits and inner hyphens; all digits and dots must be an address.
fn name_or_v4(host: &str) -> Option<String> {
    if let Ok(address) = host.parse::<Ipv4Addr>() {
        return Some(address.to_string());
    }
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label
                .bytes()
                .all(|c| c.is_ascii_alphanumeric() || c == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let numeric = host.bytes().all(|c| c.is_ascii_digit() || c == b'.');
    (host.len() <= 253 && !numeric && host.split('.').all(label)).then(|| host.to_ascii_lowercase())
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

macro_rules! as_text {
    ($kind:ident) => {
        impl Serialize for $kind {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $kind {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
                text.parse().map_err(de::Error::custom)
            }
        }
    };
}

as_text!(Bind);
as_text!(HostPort);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binds_are_absolute_and_normal() {
        let bind = |text: &str| text.parse::<Bind>().map(|bind| bind.to_string());
        assert_eq!(bind("/a/./b//c/"), Ok("/a/b/c".into()));
        assert_eq!(bind("/a:/b/"), Ok("/a:/b".into()));
        assert_eq!(bind("/a/:/a"), Ok("/a".into()));
        assert_eq!(bind("//"), Ok("/".into()));
        assert_eq!(bind("a"), Err(BindError::Relative("a".into())));
        assert_eq!(bind("/a:b"), Err(BindError::Relative("b".into())));
        assert_eq!(bind("/a:"), Err(BindError::Relative(String::new())));
        assert_eq!(bind("/a/../b"), Err(BindError::Upward("/a/../b".into())));
        assert!(matches!(bind("/a:/b:/c"), Err(BindError::Colons(_))));
        assert!(matches!(bind("/a\0"), Err(BindError::Nul(_))));
    }

    #[test]
    fn hosts_have_one_text_form() {
        let host = |text: &str| text.parse::<HostPort>().map(|host| host.to_string()).ok();
        assert_eq!(host("Example.ORG:443").as_deref(), Some("example.org:443"));
        assert_eq!(host("127.0.0.1:1").as_deref(), Some("127.0.0.1:1"));
        assert_eq!(
            host("[2001:DB8:0::1]:65535").as_deref(),
            Some("[2001:db8::1]:65535")
        );
        for bad in [
            "example.org",
            "example.org:",
            "example.org:0",
            "example.org:65536",
            "example.org:+1",
            "a:01",
            ":1",
            "a..b:1",
            "-a:1",
            "a b:1",
            "::1:80",
            "1.2.3:80",
            "*.example.org:443",
            "[1.2.3.4]:1",
        ] {
            assert_eq!(host(bad), None, "{bad}");
        }
    }
}
