//! Files of proc(5) and sysfs: the kernel makes their content while it is read and tells no length.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// Room for all but a few of them; the kernel makes what fits at once.
const USUAL: usize = 16 << 10;

/// The whole content, with as few calls as it takes.
///
/// # Errors
/// As of open(2) and read(2).
pub fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(USUAL);
    // Without `take` the length would be asked for first.
    File::open(path)?.take(u64::MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The whole content as text.
///
/// # Errors
/// As [`read`], and for what is not UTF-8.
pub fn read_text(path: impl AsRef<Path>) -> io::Result<String> {
    String::from_utf8(read(path)?)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_content_is_whole_whatever_its_length() {
        let maps = read_text("/proc/self/limits").unwrap();
        assert!(maps.starts_with("Limit") && maps.ends_with('\n'));
        let file = tempfile::NamedTempFile::new().unwrap();
        let long: Vec<u8> = (0..5 * USUAL).map(|at| (at % 251) as u8).collect();
        std::fs::write(file.path(), &long).unwrap();
        assert_eq!(read(file.path()).unwrap(), long);
        assert_eq!(
            read_text(file.path()).unwrap_err().kind(),
            io::ErrorKind::InvalidData
        );
        assert!(read("/proc/no-such").is_err());
    }
}
