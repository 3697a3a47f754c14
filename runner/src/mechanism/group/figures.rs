//! What a run used, by its own groups' files, before they go.

use std::io;
use std::path::Path;

use super::leaf::Leaf;
use crate::sys::{errno_name, pseudo};

/// What was seen of a run. What the kernel does not count is absent, and named with the reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Where they come from (`cgroup-v2`).
    pub sources: Vec<&'static str>,
    /// Highest memory use in bytes.
    pub memory_peak_bytes: Option<u64>,
    /// Highest number of tasks of the workload.
    pub pids_peak: Option<u64>,
    /// CPU time in microseconds.
    pub cpu_us: Option<u64>,
    /// Processes that were killed for lack of memory.
    pub oom_kills: Option<u64>,
    /// What could not be read, and why.
    pub unmeasured: Vec<(&'static str, String)>,
}

impl Figures {
    /// Reads those of the groups of one run, in which `beside` tasks are not the workload's.
    pub(super) fn of(leaves: &[Leaf], beside: u64) -> Self {
        let mut figures = Self::default();
        for leaf in leaves {
            figures.take(leaf, beside);
        }
        figures
    }

    fn take(&mut self, leaf: &Leaf, beside: u64) {
        let source = match leaf.version {
            1 => "cgroup-v1",
            _ => "cgroup-v2",
        };
        let mut seen = false;
        let has = |controller: &str| {
            if leaf.version == 1 {
                leaf.controllers.split(',').any(|name| name == controller)
            } else {
                // A group of version 2 has a controller's files where that is switched on.
                leaf.folder.join(format!("{controller}.current")).exists()
            }
        };
        let file = |name: &str| pseudo::read_text(leaf.folder.join(name));
        if has("memory") {
            let [peak, events] = match leaf.version {
                1 => ["memory.max_usage_in_bytes", "memory.oom_control"],
                _ => ["memory.peak", "memory.events"],
            };
            let read = number(file(peak));
            seen |= self.note("observed.memoryPeakBytes", peak, read, |all| {
                &mut all.memory_peak_bytes
            });
            let read = field(file(events), "oom_kill");
            seen |= self.note("observed.oomKills", events, read, |all| &mut all.oom_kills);
        }
        if has("pids") {
            // Fewer than the sandbox's own say nothing about the workload's.
            let others = |peak: u64| {
                let fewer = || io::Error::other("fewer tasks than the sandbox's own");
                peak.checked_sub(beside).ok_or_else(fewer)
            };
            let read = number(file("pids.peak")).and_then(others);
            seen |= self.note("observed.pidsPeak", "pids.peak", read, |all| {
                &mut all.pids_peak
            });
        }
        if leaf.version == 1 && has("cpuacct") {
            let read = number(file("cpuacct.usage")).map(|nanoseconds| nanoseconds / 1_000);
            seen |= self.note("observed.cpuUs", "cpuacct.usage", read, |all| {
                &mut all.cpu_us
            });
        }
        if leaf.version == 2 {
            // Whether or not the controller is switched on.
            let read = field(file("cpu.stat"), "usage_usec");
            seen |= self.note("observed.cpuUs", "cpu.stat", read, |all| &mut all.cpu_us);
        }
        if seen && !self.sources.contains(&source) {
            self.sources.push(source);
        }
    }

    fn note(
        &mut self,
        field: &'static str,
        file: &str,
        read: io::Result<u64>,
        place: impl FnOnce(&mut Self) -> &mut Option<u64>,
    ) -> bool {
        match read {
            Ok(number) => {
                *place(self) = Some(number);
                true
            }
            Err(error) => {
                let why = if error.kind() == io::ErrorKind::NotFound {
                    format!("this kernel has no {file}")
                } else {
                    format!("unreadable: {file} ({})", errno_name(&error))
                };
                self.unmeasured.push((field, why));
                false
            }
        }
    }
}

fn number(text: io::Result<String>) -> io::Result<u64> {
    text?.trim().parse().map_err(io::Error::other)
}

/// The number behind a name: `oom_kill 3`, each on a line of its own.
fn field(text: io::Result<String>, name: &str) -> io::Result<u64> {
    let text = text?;
    let value = text.lines().find_map(|line| {
        let (key, value) = line.split_once(' ')?;
        (key == name).then_some(value)
    });
    let missing = || io::Error::other(format!("no {name}"));
    value
        .ok_or_else(missing)?
        .trim()
        .parse()
        .map_err(io::Error::other)
}

/// How many processes of a group the kernel has killed for lack of memory so far, where it tells.
pub(super) fn oom_kills(folder: &Path, version: u8) -> Option<u64> {
    let file = match version {
        1 => "memory.oom_control",
        _ => "memory.events",
    };
    field(pseudo::read_text(folder.join(file)), "oom_kill").ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made_up(
        version: u8,
        controllers: &str,
        files: &[(&str, &str)],
    ) -> (tempfile::TempDir, Leaf) {
        let parent = tempfile::tempdir().unwrap();
        let controllers = controllers.to_owned();
        let leaf = Leaf::make(version, parent.path(), "/", "leaf", controllers).unwrap();
        for (name, text) in files {
            std::fs::write(leaf.folder.join(name), text).unwrap();
        }
        (parent, leaf)
    }

    #[test]
    fn version_2_on_a_new_kernel_has_all() {
        let (_parent, leaf) = made_up(
            2,
            "",
            &[
                ("memory.current", "1\n"),
                ("memory.peak", "41943040\n"),
                (
                    "memory.events",
                    "low 0\nhigh 0\nmax 7\noom 2\noom_kill 1\noom_group_kill 0\n",
                ),
                ("pids.current", "1\n"),
                ("pids.peak", "9\n"),
                ("cpu.stat", "usage_usec 12345\nuser_usec 1\n"),
            ],
        );
        let figures = Figures::of(&[leaf], 1);
        assert_eq!(
            figures,
            Figures {
                sources: vec!["cgroup-v2"],
                memory_peak_bytes: Some(41_943_040),
                pids_peak: Some(8),
                cpu_us: Some(12_345),
                oom_kills: Some(1),
                unmeasured: Vec::new(),
            }
        );
    }

    #[test]
    fn what_an_old_kernel_does_not_count_is_absent_and_named() {
        let (_parent, leaf) = made_up(
            2,
            "",
            &[
                ("memory.current", "1\n"),
                ("memory.events", "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\n"),
                ("pids.current", "1\n"),
                ("cpu.stat", "usage_usec 5\n"),
            ],
        );
        let figures = Figures::of(&[leaf], 1);
        assert_eq!((figures.memory_peak_bytes, figures.pids_peak), (None, None));
        assert_eq!(figures.oom_kills, Some(0));
        let named: Vec<_> = figures.unmeasured.iter().map(|(field, _)| *field).collect();
        assert_eq!(named, ["observed.memoryPeakBytes", "observed.pidsPeak"]);
        assert_eq!(figures.unmeasured[0].1, "this kernel has no memory.peak");
    }

    #[test]
    fn a_controller_that_is_not_there_is_nothing_that_is_missed() {
        let (_parent, leaf) = made_up(2, "", &[("cpu.stat", "usage_usec 5\n")]);
        let figures = Figures::of(&[leaf], 1);
        assert_eq!((figures.oom_kills, figures.cpu_us), (None, Some(5)));
        assert!(figures.unmeasured.is_empty(), "{figures:?}");
    }

    #[test]
    fn version_1_has_each_in_its_hierarchy() {
        let (_a, memory) = made_up(
            1,
            "memory",
            &[
                ("memory.max_usage_in_bytes", "4096\n"),
                (
                    "memory.oom_control",
                    "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",
                ),
            ],
        );
        let (_b, cpu) = made_up(1, "cpu,cpuacct", &[("cpuacct.usage", "2500999\n")]);
        let (_c, pids) = made_up(1, "pids", &[]);
        let figures = Figures::of(&[memory, cpu, pids], 1);
        assert_eq!(figures.sources, ["cgroup-v1"]);
        assert_eq!(figures.memory_peak_bytes, Some(4096));
        assert_eq!((figures.oom_kills, figures.cpu_us), (Some(3), Some(2_500)));
        assert_eq!(figures.unmeasured.len(), 1, "{figures:?}");
        assert_eq!(figures.pids_peak, None);
    }

    #[test]
    fn what_is_no_number_is_no_figure() {
        let (_parent, leaf) = made_up(
            1,
            "memory",
            &[
                ("memory.max_usage_in_bytes", "many\n"),
                ("memory.oom_control", "x\n"),
            ],
        );
        let figures = Figures::of(std::slice::from_ref(&leaf), 0);
        assert_eq!((figures.memory_peak_bytes, figures.oom_kills), (None, None));
        assert_eq!(figures.unmeasured.len(), 2);
        assert!(figures.sources.is_empty());
        assert_eq!(oom_kills(&leaf.folder, 1), None);
    }
}
