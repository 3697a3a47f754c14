//! What each control's row is given.

mod files;

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use ledger::bytes::hash::to_hex;
use ledger::bytes::key::random_bytes;
use ledger::facts::control::Control;
use ledger::facts::probe::Nonce;
use ledger::facts::suite::Probe;

use super::canary::Process;
use super::listen::Open;
use super::plant::mark::Mark;
use super::plant::{self, Leaked, Terminal};
use super::{
    ABSENT_VARIABLE, Bounds, DEADLINE_SLACK_MILLIS, Instrument, OUTLIVED_MILLIS, PRESENT_VARIABLE,
    Places, PlantError, Planted, Planting, Watched,
};

/// What lies in the working folder of the process.
const WORKING_FILE: &str = "secret";

struct Seeds<'a> {
    places: &'a Places,
    /// The run's own folder in each place that can be used.
    folders: Vec<PathBuf>,
    open: Open,
    instruments: Vec<Instrument>,
    secrets: Vec<Planting>,
    allowed: Option<String>,
    parameters: Vec<(&'static str, String)>,
    environment: Vec<(OsString, OsString)>,
    terminal: Option<Terminal>,
    skipped: Vec<String>,
}

/// Plants, and serves the listeners; nothing is called yet.
pub(super) fn plant(
    probe: &Probe,
    secret: &Nonce,
    places: &Places,
    bounds: &Bounds,
) -> Result<Planted, PlantError> {
    let (usable, skipped) = plant::usable(&places.six);
    let mut marked = usable;
    let roots = marked.len();
    // The run's own mark stands in these, too: what is allowed, and the decoys.
    marked.push(places.workload.0.clone());
    marked.extend(places.evidence.iter().filter(|path| path.is_dir()).cloned());
    let own = roots..marked.len();
    // And where a bare probe tries what it can make, beside the six places: a killed one leaves that.
    marked.extend(["/", "/workspace"].map(PathBuf::from));
    marked.extend(std::env::current_dir());
    let mark = Mark::new(&places.state, &fresh()?, &marked)?;
    let mut seeds = Seeds {
        places,
        folders: Vec::new(),
        open: Open::new(),
        instruments: Vec::new(),
        secrets: Vec::new(),
        allowed: None,
        parameters: Vec::new(),
        environment: Vec::new(),
        terminal: None,
        skipped: Vec::new(),
    };
    if matches!(
        probe.control,
        Control::Filesystem
            | Control::Ipc
            | Control::Process
            | Control::User
            | Control::Descriptors
    ) {
        seeds.skipped = skipped;
        for folder in mark.paths().iter().take(roots) {
            let made = plant::folder(folder, 0o777);
            if seeds.did("plant in", folder, made).is_some() {
                seeds.folders.push(folder.clone());
            }
        }
    }
    seeds.parameters.push(("mark", mark.name().to_owned()));
    // What is allowed stands first among them.
    let Some([allowed, decoys @ ..]) = mark.paths().get(own) else {
        return Err(PlantError::Unmarked);
    };
    seeds.row(probe, mark.name(), (allowed, decoys), bounds)?;
    let listeners = seeds.open.serve(&secret.to_string(), fresh()?);
    Ok(Planted {
        probe: probe.clone(),
        secret: secret.clone(),
        bounds: bounds.clone(),
        listeners: listeners.map_err(PlantError::Serve)?,
        instruments: seeds
            .instruments
            .into_iter()
            .map(|instrument| Watched {
                instrument,
                before: Err("it was not called".to_owned()),
            })
            .collect(),
        secrets: seeds.secrets,
        allowed: seeds.allowed,
        parameters: seeds.parameters,
        environment: seeds.environment,
        terminal: seeds.terminal,
        skipped: seeds.skipped,
        _mark: mark,
    })
}

/// A new secret: 8 random bytes as 16 hexadecimal digits.
fn fresh() -> Result<String, PlantError> {
    Ok(to_hex(&random_bytes::<8>()?))
}

impl Seeds<'_> {
    fn row(
        &mut self,
        probe: &Probe,
        mark: &str,
        (allowed, decoys): (&Path, &[PathBuf]),
        bounds: &Bounds,
    ) -> Result<(), PlantError> {
        match probe.control {
            Control::Network => self.network()?,
            Control::Filesystem => {
                self.files()?;
                self.evidence(decoys)?;
                self.allow(allowed)?;
            }
            Control::Process => {
                self.sockets("unix", "s");
                self.abstract_socket(mark);
                for ip in self.places.addresses.clone() {
                    self.ip(ip, &["tcp4"]);
                }
                self.process()?;
            }
            Control::Environment => self.variables()?,
            Control::Ipc => {
                self.sockets("unix", "s");
                self.sockets("decoy", "docker.sock");
                self.abstract_socket(mark);
            }
            Control::Descriptors => self.leak()?,
            Control::Terminal => self.terminal(),
            Control::User => {
                self.sockets("unix", "s");
                if let Some((user, group)) = bounds.inside {
                    self.parameters.push(("inside", format!("{user}:{group}")));
                }
            }
            Control::Timeout => {
                let by = if probe.is_own() {
                    OUTLIVED_MILLIS
                } else {
                    2 * DEADLINE_SLACK_MILLIS
                };
                let longer = |millis: u64| millis.saturating_add(by);
                self.number("millis", bounds.deadline_millis.map(longer));
            }
            Control::Output => {
                let more = |bytes: u64| bytes.saturating_mul(2);
                self.number("bytes", bounds.output_bytes.map(more));
            }
            Control::Memory => self.number("bytes", bounds.memory_bytes),
            Control::Disk => self.number("bytes", bounds.disk_bytes),
            Control::Processes => self.number("limit", bounds.processes),
            Control::Files => self.number("limit", bounds.open_files),
            Control::Cpu => self.number("millis", bounds.cpu_millis),
            Control::Privilege | Control::Syscalls | Control::Devices => {}
        }
        Ok(())
    }

    fn number(&mut self, key: &'static str, value: Option<u64>) {
        self.parameters
            .extend(value.map(|value| (key, value.to_string())));
    }

    /// What could be done; what could not is named.
    fn did<T, E: Into<io::Error>>(
        &mut self,
        what: &str,
        path: &Path,
        done: Result<T, E>,
    ) -> Option<T> {
        match done {
            Ok(done) => Some(done),
            Err(error) => {
                let errno = crate::sys::errno_name(&error.into());
                self.skipped
                    .push(format!("cannot {what} {}: {errno}", path.display()));
                None
            }
        }
    }

    fn secret(&mut self, of: &'static str, place: &Path, text: &str) {
        self.secrets.push(Planting {
            of,
            // A program may print what it read as it is, or in hexadecimal digits.
            needles: vec![text.to_owned(), to_hex(text.as_bytes())],
            place: place.display().to_string(),
        });
    }

    fn path(&mut self, key: &'static str, path: &Path) -> Option<()> {
        let text = path
            .to_str()
            .filter(|text| !text.contains(char::is_control));
        let Some(text) = text else {
            let error = io::Error::from_raw_os_error(libc::EILSEQ);
            return self.did("write in a line", path, Err(error));
        };
        self.parameters.push((key, text.to_owned()));
        Some(())
    }

    fn listen(
        &mut self,
        opened: Result<(), super::listen::ListenError>,
        key: &'static str,
    ) -> bool {
        match opened {
            Ok(()) => {
                let at = self.open.endpoints().len() - 1;
                self.instruments.push(Instrument::Endpoint(at, key));
                true
            }
            Err(error) => {
                let errno = crate::sys::errno_name(&error.source);
                self.skipped.push(format!("{error}: {errno}"));
                false
            }
        }
    }

    /// Every way to reach an address.
    fn network(&mut self) -> Result<(), PlantError> {
        for ip in self.places.addresses.clone() {
            self.ip(ip, &["tcp4", "tcp6", "udp4", "udp6"]);
            let name = format!("{}.localhost", fresh()?);
            let opened = self.open.dns(ip, &name);
            if self.listen(opened, "dns") {
                self.parameters.extend(self.open.last_parameter());
            }
        }
        let outer = self.places.addresses.clone().into_iter();
        let outer: Vec<_> = outer.filter(|ip| !ip.is_loopback()).collect();
        if outer.is_empty() {
            let text = "no peer: this host has no address but loopback";
            self.skipped.push(text.to_owned());
        }
        for ip in outer {
            let opened = self.open.tcp(ip);
            if self.listen(opened, "peer")
                && let Some((_, value)) = self.open.last_parameter()
            {
                self.parameters.push(("peer", value));
            }
        }
        Ok(())
    }

    fn ip(&mut self, ip: std::net::IpAddr, keys: &[&str]) {
        let (tcp, udp) = if ip.is_ipv4() {
            ("tcp4", "udp4")
        } else {
            ("tcp6", "udp6")
        };
        if keys.contains(&tcp) {
            let opened = self.open.tcp(ip);
            if self.listen(opened, tcp) {
                self.parameters.extend(self.open.last_parameter());
            }
        }
        if keys.contains(&udp) {
            let opened = self.open.udp(ip);
            if self.listen(opened, udp) {
                self.parameters.extend(self.open.last_parameter());
            }
        }
    }

    /// A unix socket in each place.
    fn sockets(&mut self, key: &'static str, name: &str) {
        for folder in self.folders.clone() {
            let path = folder.join(name);
            let opened = self.open.unix(&path);
            if self.listen(opened, key) {
                self.path(key, &path);
            }
        }
    }

    /// A process, which works in a folder where a secret lies.
    fn process(&mut self) -> Result<(), PlantError> {
        let (comm, content) = (format!("cp-{}", fresh()?), fresh()?);
        let mut working = PathBuf::from("/");
        if let Some(folder) = self.folders.first().map(|folder| folder.join("working")) {
            let file = folder.join(WORKING_FILE);
            let made =
                plant::folder(&folder, 0o755).and_then(|()| plant::file(&file, &content, 0o644));
            if self.did("plant", &file, made).is_some() {
                self.parameters.push(("file", WORKING_FILE.to_owned()));
                self.secret("pid1", &file, &content);
                working = folder;
            }
        }
        let process = Process::new(comm.get(..15).unwrap_or(&comm), &working);
        if let Some(process) = self.did("make a process", Path::new(&comm), process) {
            self.parameters.push(("pid", process.pid().to_string()));
            self.parameters.push(("comm", process.comm().to_owned()));
            self.instruments.push(Instrument::Process(process));
        }
        Ok(())
    }

    fn abstract_socket(&mut self, name: &str) {
        let opened = self.open.abstract_name(name);
        if self.listen(opened, "abstract") {
            self.parameters.extend(self.open.last_parameter());
        }
    }

    fn variables(&mut self) -> Result<(), PlantError> {
        let (absent, present) = (fresh()?, fresh()?);
        self.secret("inherited", Path::new(ABSENT_VARIABLE), &absent);
        self.parameters.push(("absent", ABSENT_VARIABLE.to_owned()));
        self.parameters
            .push(("present", format!("{PRESENT_VARIABLE}={present}")));
        self.environment = vec![
            (ABSENT_VARIABLE.into(), absent.into()),
            (PRESENT_VARIABLE.into(), present.into()),
        ];
        self.instruments.push(Instrument::Variable);
        Ok(())
    }

    fn leak(&mut self) -> Result<(), PlantError> {
        let secrets = [fresh()?, fresh()?, fresh()?];
        let Some(folder) = self.folders.first().cloned() else {
            return Ok(());
        };
        let leaked = Leaked::plant(&folder, secrets.each_ref().map(String::as_str));
        let Some((leaked, ours)) = self.did("leak descriptors of", &folder, leaked) else {
            return Ok(());
        };
        for number in leaked.numbers() {
            self.parameters.push(("fd", number.to_string()));
        }
        for (text, what) in secrets.iter().zip(["a file", "a socket", "a folder"]) {
            self.secret("inherited", Path::new(what), text);
        }
        self.instruments.push(Instrument::Leaked(leaked));
        let opened = self.open.held("socket", ours.into(), None);
        self.listen(opened, "socket");
        Ok(())
    }

    fn terminal(&mut self) {
        let path = Path::new("/dev/ptmx");
        let opened = Terminal::open().and_then(|terminal| {
            // Opened once more: that it does not block is the flag of this opening alone.
            let inner = crate::sys::terminal::peer(terminal.master.as_fd())?;
            let master = terminal.master.try_clone()?;
            Ok((terminal, inner, master))
        });
        let Some((terminal, inner, master)) = self.did("open", path, opened) else {
            return;
        };
        let held = self.open.held("terminal", inner, Some(master));
        self.listen(held, "terminal");
        self.terminal = Some(terminal);
    }
}
