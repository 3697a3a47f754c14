//! One leaf group: made, limited, entered, looked at, removed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{Limits, Resource};
use crate::mechanism::Failure;
use crate::sys::{fault, pseudo};

/// How long a group may take to become empty after its last process was waited for: far more than the kernel needs.
const PATIENCE: Duration = Duration::from_secs(1);
/// The wait between two attempts to remove a group grows up to this.
const LONGEST_PAUSE: Duration = Duration::from_millis(16);
/// A period of CPU time in microseconds, and the one for quotas that would be below the kernel's least, 1 ms.
const PERIODS: [u64; 2] = [100_000, 1_000_000];
const LEAST_QUOTA: u64 = 1_000;

/// A leaf group of one hierarchy.
#[derive(Debug)]
pub(super) struct Leaf {
    pub(super) version: u8,
    pub(super) folder: PathBuf,
    /// As /proc/PID/cgroup says it.
    pub(super) name: String,
    /// Its hierarchy's controllers, of version 1, as /proc/PID/cgroup says them.
    pub(super) controllers: String,
}

/// A limit as it was read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// What limits (`cgroup-v2 memory.max`).
    pub mechanism: &'static str,
    /// The limit with its unit.
    pub value: String,
    /// The same as a number: bytes, tasks of the workload, thousandths of one CPU.
    pub number: u64,
}

impl Leaf {
    /// Makes the group.
    pub(super) fn make(
        version: u8,
        parent: &Path,
        parents_name: &str,
        mark: &str,
        controllers: String,
    ) -> Result<Self, Failure> {
        let folder = parent.join(mark);
        fs::create_dir(&folder).map_err(|error| {
            Failure::call(format!("make the group {}", folder.display()), &error)
        })?;
        Ok(Self {
            version,
            folder,
            name: format!("{}/{mark}", parents_name.trim_end_matches('/')),
            controllers,
        })
    }

    /// Sets one limit, and reads it back.
    pub(super) fn limit(
        &self,
        resource: Resource,
        limits: &Limits,
    ) -> Result<Option<Kept>, Failure> {
        let kept = match (resource, self.version) {
            (Resource::Memory, _) => limits.memory_bytes.map(|bytes| self.limit_memory(bytes)),
            (Resource::Tasks, _) => limits
                .tasks
                .map(|tasks| self.limit_tasks(tasks, limits.beside)),
            (Resource::Cpu, _) => limits.cpu_millis.map(|millis| self.limit_cpu(millis)),
        };
        kept.transpose()
    }

    fn limit_memory(&self, bytes: u64) -> Result<Kept, Failure> {
        let (file, mechanism) = match self.version {
            1 => ("memory.limit_in_bytes", "cgroup-v1 memory.limit_in_bytes"),
            _ => ("memory.max", "cgroup-v2 memory.max"),
        };
        self.set(Resource::Memory, file, &bytes.to_string())?;
        let number = self.number(file)?;
        // The kernel rounds to pages, and takes no unit from the limit but part of one page.
        if number > bytes || bytes - number >= page_size() {
            return Err(self.differs(file, bytes, number));
        }
        let mut value = match (number >> 20, number % (1 << 20)) {
            (mebibytes, 0) => format!("{mebibytes} MiB"),
            _ => format!("{number} bytes"),
        };
        if !self.limit_swap(number)? {
            value.push_str(", swap not limited");
        }
        Ok(Kept {
            mechanism,
            value,
            number,
        })
    }

    /// Whether swap counts, or is not to be had: version 1 limits memory and swap together, version 2 swap alone.
    fn limit_swap(&self, bytes: u64) -> Result<bool, Failure> {
        let (file, most) = match self.version {
            1 => ("memory.memsw.limit_in_bytes", bytes),
            _ => ("memory.swap.max", 0),
        };
        if !self.has(file) {
            // A kernel that does not account for swap; it matters where there is some.
            return Ok(has_no_swap());
        }
        self.set(Resource::Memory, file, &most.to_string())?;
        let number = self.number(file)?;
        if number > most {
            return Err(self.differs(file, most, number));
        }
        Ok(true)
    }

    fn limit_tasks(&self, tasks: u64, beside: u64) -> Result<Kept, Failure> {
        let (file, most) = ("pids.max", tasks.saturating_add(beside));
        self.set(Resource::Tasks, file, &most.to_string())?;
        let number = self.number(file)?;
        if number != most {
            return Err(self.differs(file, most, number));
        }
        Ok(Kept {
            mechanism: match self.version {
                1 => "cgroup-v1 pids.max",
                _ => "cgroup-v2 pids.max",
            },
            value: format!("{tasks} tasks"),
            number: tasks,
        })
    }

    fn limit_cpu(&self, millis: u64) -> Result<Kept, Failure> {
        let (quota, period) = quota(millis);
        let (file, found) = if self.version == 1 {
            let file = "cpu.cfs_quota_us";
            self.set(Resource::Cpu, "cpu.cfs_period_us", &period.to_string())?;
            self.set(Resource::Cpu, file, &quota.to_string())?;
            let found = (self.text(file)?, self.text("cpu.cfs_period_us")?);
            (file, format!("{} {}", found.0.trim(), found.1.trim()))
        } else {
            let file = "cpu.max";
            self.set(Resource::Cpu, file, &format!("{quota} {period}"))?;
            (file, self.text(file)?.trim().to_owned())
        };
        let asked = format!("{quota} {period}");
        if found != asked {
            return Err(self.differs(file, asked, found));
        }
        Ok(Kept {
            mechanism: match self.version {
                1 => "cgroup-v1 cpu.cfs_quota_us",
                _ => "cgroup-v2 cpu.max",
            },
            value: cpu_value(millis),
            number: millis,
        })
    }

    fn set(&self, resource: Resource, file: &str, text: &str) -> Result<(), Failure> {
        let path = self.folder.join(file);
        let write = || write_to(&path, text);
        fault::guard(resource.mechanism(), write)
            .map_err(|error| Failure::call(format!("write {text} to {}", path.display()), &error))
    }

    fn differs(
        &self,
        file: &str,
        asked: impl std::fmt::Display,
        found: impl std::fmt::Display,
    ) -> Failure {
        let path = self.folder.join(file);
        Failure::no_effect(format!("{} is {found}, asked was {asked}", path.display()))
    }

    fn has(&self, file: &str) -> bool {
        self.folder.join(file).exists()
    }

    fn text(&self, file: &str) -> Result<String, Failure> {
        let path = self.folder.join(file);
        pseudo::read_text(&path)
            .map_err(|error| Failure::call(format!("read {}", path.display()), &error))
    }

    /// A file of one number; `max`, and what is as good, is the largest.
    fn number(&self, file: &str) -> Result<u64, Failure> {
        let text = self.text(file)?;
        let text = text.trim();
        if text == "max" {
            return Ok(u64::MAX);
        }
        text.parse().map_err(|_| {
            let path = self.folder.join(file);
            Failure::call(
                format!("read a number from {}", path.display()),
                &io::ErrorKind::InvalidData.into(),
            )
        })
    }

    /// What a thread writes `0` to, to come in by itself. Version 1 alone.
    pub(super) fn door(&self) -> io::Result<File> {
        OpenOptions::new()
            .write(true)
            .custom_flags(libc::O_CLOEXEC)
            .open(self.folder.join("tasks"))
    }

    /// The group as a descriptor, to make processes in (clone(2), CLONE_INTO_CGROUP). Version 2 alone.
    pub(super) fn descriptor(&self) -> io::Result<File> {
        OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_DIRECTORY | libc::O_CLOEXEC)
            .open(&self.folder)
    }

    /// Whether a process's /proc/PID/cgroup says that it is in this group.
    pub(super) fn holds(&self, membership: &str) -> bool {
        membership.lines().any(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            parts.next() == Some(&self.controllers) && parts.next() == Some(&self.name)
        })
    }

    /// Removes the group, waiting while it still has processes that are on their way out.
    pub(super) fn remove(&self) -> Result<(), Failure> {
        remove(&self.folder)
            .map_err(|error| Failure::call(format!("remove {}", self.folder.display()), &error))
    }
}

/// Writes to a file that is there.
pub(super) fn write_to(path: &Path, text: &str) -> io::Result<()> {
    OpenOptions::new()
        .write(true)
        .open(path)?
        .write_all(text.as_bytes())
}

/// Removes an empty group; one that is gone already is as good.
fn remove(folder: &Path) -> io::Result<()> {
    let until = Instant::now() + PATIENCE;
    let mut pause = Duration::from_micros(250);
    loop {
        match fs::remove_dir(folder) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && Instant::now() < until => {
                std::thread::sleep(pause);
                pause = LONGEST_PAUSE.min(pause * 2);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            done => return done,
        }
    }
}

/// Quota and period in microseconds, the least quota that the kernel takes kept.
fn quota(millis: u64) -> (u64, u64) {
    let of = |period: u64| (millis.saturating_mul(period) / 1_000, period);
    let [usual, long] = PERIODS.map(of);
    if usual.0 >= LEAST_QUOTA { usual } else { long }
}

/// A quota in words, for thousandths of one CPU: `0.5 of a CPU, 50 ms in 100 ms`.
#[must_use]
pub fn cpu_value(millis: u64) -> String {
    let (quota, period) = quota(millis);
    format!(
        "{} of a CPU, {} ms in {} ms",
        cpus(millis),
        in_ms(quota),
        in_ms(period)
    )
}

/// Thousandths as `0.5`, `2`, `0.025`.
fn cpus(millis: u64) -> String {
    let text = format!("{}.{:03}", millis / 1_000, millis % 1_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn in_ms(micros: u64) -> String {
    cpus(micros)
}

fn page_size() -> u64 {
    let size = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE);
    size.ok()
        .flatten()
        .and_then(|size| u64::try_from(size).ok())
        .unwrap_or(4096)
}

/// Whether the host says that it has no swap at all (proc_swaps(5): a line of heads, then a line each).
fn has_no_swap() -> bool {
    pseudo::read_text("/proc/swaps").is_ok_and(|text| text.lines().count() <= 1)
}

#[cfg(test)]
mod tests;
