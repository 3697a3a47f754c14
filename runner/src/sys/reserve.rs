//! Memory that is held to be given back.
//!
//! Where a control group's memory runs out and its workload is killed, what the workload wrote to a file system in memory
//! stays until the mount namespace ends: the next page that pid 1 asks for would then cost pid 1 its life, and nobody
//! would say how the workload ended. What was held before is there for those pages.

use std::ptr::NonNull;

use super::check;

/// How much is held: more than pid 1 needs to reap, to count and to report, and what the kernel charges at once (64 pages).
const BYTES: usize = 256 << 10;

/// That memory, present in it. Dropped, it is the kernel's again.
#[derive(Debug)]
pub struct Reserve(Option<NonNull<libc::c_void>>);

impl Reserve {
    /// Holds it from now on. Where there is none to be had nothing is held: then pid 1 may be killed, which is told.
    #[must_use]
    pub fn hold() -> Self {
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping wherever the kernel likes, of no file (mmap(2)).
        let at = unsafe { libc::mmap(std::ptr::null_mut(), BYTES, access, kind, -1, 0) };
        Self(if at == libc::MAP_FAILED {
            None
        } else {
            NonNull::new(at)
        })
    }
}

impl Drop for Reserve {
    fn drop(&mut self) {
        if let Some(at) = self.0.take() {
            // SAFETY: the mapping made above, whole, which nothing refers to.
            let unmapped = check(unsafe { libc::munmap(at.as_ptr(), BYTES) }.into());
            debug_assert!(unmapped.is_ok());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes present in memory of the mapping that begins there (proc_pid_smaps(5)).
    fn resident(at: usize) -> Option<usize> {
        let text = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut lines = text.lines().skip_while(|line| {
            let range = line.split(' ').next().unwrap();
            let ends = range.split_once('-').map(|(from, to)| {
                (
                    usize::from_str_radix(from, 16),
                    usize::from_str_radix(to, 16),
                )
            });
            !matches!(ends, Some((Ok(from), Ok(to))) if (from..to).contains(&at))
        });
        let rss = lines.find(|line| line.starts_with("Rss:"))?;
        let kib = rss.split_whitespace().nth(1)?;
        Some(kib.parse::<usize>().unwrap() << 10)
    }

    #[test]
    fn it_is_there_before_anything_is_written_to_it() {
        let reserve = Reserve::hold();
        let at = reserve.0.unwrap().as_ptr() as usize;
        assert!(resident(at).unwrap() >= BYTES);
    }
}
