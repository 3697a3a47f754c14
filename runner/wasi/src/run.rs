//! The module: read, compiled, given what it may have, and run.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use wasmtime::{Config, Engine, InstancePre, Linker, Module, Store, Trap};
use wasmtime_wasi::p1::{self, WasiP1Ctx};
use wasmtime_wasi::{FsPerms, I32Exit, WasiCtxBuilder};

use crate::TRAPPED;
use crate::limits::Limits;
use crate::talk::{self, Order, Ready, Report, Runner, TalkError, Unusable};

/// Longest module, in bytes: compiling one takes many times its length in memory.
const MAX_MODULE: u64 = 64 << 20;
/// Where preview 1 is.
const PREVIEW_1: &str = "wasi_snapshot_preview1";
/// Greatest status that a module may end with.
const GREATEST_STATUS: i32 = 125;
/// Longest text about what is wrong, in bytes: names of a module's own stand in it, which have any length.
const LONGEST_WORDS: usize = 1_000;
/// Where a module begins (a WASI command).
const START: &str = "_start";
/// Where a folder is that the runner has opened.
const OPEN: &str = "/proc/self/fd";
/// Address space behind a memory for its growth, in bytes: without any, each step would copy all of it.
const GROWTH: u64 = 16 << 20;
/// How long a module that was stopped at its deadline waits for the runner, which ends this process at the same moment, so that
/// the run ends as what it is. Only where there is no runner any more it ends by itself.
const AWAIT_END: Duration = Duration::from_secs(10);

/// What the engine keeps for the module.
struct Held {
    wasi: WasiP1Ctx,
    limits: Limits,
}

/// A module that can begin.
struct Prepared {
    engine: Engine,
    store: Store<Held>,
    module: InstancePre<Held>,
    deadline: Option<Duration>,
}

/// Does what `runner` says; the status that the module ended with.
pub(crate) fn serve() -> Result<u8, TalkError> {
    let order = talk::order()?;
    let mut runner = Runner::open()?;
    let (report, prepared) = match prepare(&order) {
        Ok((ready, prepared)) => (Report::Ready(Box::new(ready)), Some(prepared)),
        Err(report) => (report, None),
    };
    runner.say(&report)?;
    match prepared {
        Some(prepared) if runner.await_go() => {
            runner.begins()?;
            Ok(prepared.run())
        }
        _ => Ok(0),
    }
}

fn unusable(what: String) -> Report {
    Report::Unusable(Unusable {
        is_missing: false,
        errno: None,
        what: cut(what),
    })
}

/// A text of which a part may be the module's, and so of any length.
fn cut(mut text: String) -> String {
    if text.len() > LONGEST_WORDS {
        text.truncate(text.floor_char_boundary(LONGEST_WORDS));
        text.push('…');
    }
    text
}

fn no_file(error: &io::Error) -> Report {
    Report::Unusable(Unusable {
        is_missing: matches!(
            error.kind(),
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
        ),
        errno: error.raw_os_error(),
        what: error.to_string(),
    })
}

fn path(bytes: &[u8]) -> PathBuf {
    std::ffi::OsString::from_vec(bytes.to_vec()).into()
}

/// Reads a regular file that is no longer than a module may be.
fn read(path: &Path) -> Result<Vec<u8>, Report> {
    // A pipe is not waited for.
    let facts = std::fs::metadata(path).map_err(|error| no_file(&error))?;
    if !facts.is_file() {
        return Err(unusable("it is not a file".to_owned()));
    }
    let file = File::open(path).map_err(|error| no_file(&error))?;
    let mut bytes = Vec::new();
    file.take(MAX_MODULE + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| no_file(&error))?;
    if bytes.len() as u64 > MAX_MODULE {
        return Err(unusable(format!(
            "it has more than {MAX_MODULE} bytes, which no module that is run here has"
        )));
    }
    if !bytes.starts_with(b"\0asm") {
        return Err(unusable(
            "it is no WebAssembly module in binary form (`wat2wasm` makes one of text)".to_owned(),
        ));
    }
    Ok(bytes)
}

fn engine(order: &Order) -> wasmtime::Result<Engine> {
    let mut config = Config::new();
    config
        // Address space is taken as the module grows, not 4 GiB of it at once, so that limits on it do not end this process.
        .memory_reservation(0)
        .memory_reservation_for_growth(GROWTH)
        .memory_guard_size(0)
        .memory_init_cow(false)
        .epoch_interruption(order.deadline_ms.is_some());
    Engine::new(&config)
}

/// Everything but the first instruction.
fn prepare(order: &Order) -> Result<(Ready, Prepared), Report> {
    let failed =
        |what: &str, error: wasmtime::Error| Report::Failed(cut(format!("{what}: {error:#}")));
    let bytes = read(&path(&order.module))?;
    let sha256 = Sha256::digest(&bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    // What costs nothing first.
    let (wasi, folders, environment) = context(order)?;
    let engine = engine(order).map_err(|error| failed("make the engine", error))?;
    let module = Module::from_binary(&engine, &bytes)
        .map_err(|error| unusable(format!("it is no module that can be run: {error:#}")))?;
    drop(bytes);
    let mut linker: Linker<Held> = Linker::new(&engine);
    p1::add_to_linker_sync(&mut linker, |held| &mut held.wasi)
        .map_err(|error| failed("link WASI preview 1", error))?;
    linker.allow_shadowing(true);
    let exit = linker.func_wrap(
        PREVIEW_1,
        "proc_exit",
        |status: i32| -> wasmtime::Result<()> { Err(I32Exit(status).into()) },
    );
    // The library's own does not tell which status it is that it does not know.
    exit.map_err(|error| failed("link the end of a module", error))?;
    let imports = module.imports().len();
    let instance = linker.instantiate_pre(&module).map_err(|error| {
        unusable(format!(
            "it imports what WASI preview 1 does not have: {error:#}"
        ))
    })?;
    let is_start = module.get_export(START).is_some_and(|export| {
        export
            .func()
            .is_some_and(|kind| kind.params().len() == 0 && kind.results().len() == 0)
    });
    if !is_start {
        return Err(unusable(format!(
            "it exports no function {START} without parameters and results"
        )));
    }
    let mut store = Store::new(
        &engine,
        Held {
            wasi,
            limits: Limits::new(order.memory_bytes),
        },
    );
    store.limiter(|held| &mut held.limits);
    if order.deadline_ms.is_some() {
        store.set_epoch_deadline(1);
        store.epoch_deadline_trap();
    }
    let ready = Ready {
        sha256,
        engine: "wasmtime 48".to_owned(),
        imports,
        environment,
        folders,
        memory_bytes: order.memory_bytes,
        deadline_ms: order.deadline_ms,
    };
    let prepared = Prepared {
        engine,
        store,
        module: instance,
        deadline: order.deadline_ms.map(Duration::from_millis),
    };
    Ok((ready, prepared))
}

/// What a module has of the host, with the folders and the names of the variables.
type Context = (WasiP1Ctx, Vec<(String, bool)>, Vec<String>);

fn context(order: &Order) -> Result<Context, Report> {
    // Values are nobody's to print.
    let text = |what: &dyn Fn() -> String, bytes: &[u8]| {
        let text = String::from_utf8(bytes.to_vec());
        text.map_err(|_| Report::Failed(format!("{} is not UTF-8, which WASI asks for", what())))
    };
    let mut builder = WasiCtxBuilder::new();
    builder.inherit_stdio().allow_blocking_current_thread(true);
    for (number, argument) in order.arguments.iter().enumerate() {
        let what = || match number {
            0 => "the module's own name".to_owned(),
            _ => format!("argument {number}"),
        };
        builder.arg(text(&what, argument)?);
    }
    let mut names = Vec::new();
    for variable in &order.environment {
        let mut parts = variable.splitn(2, |byte| *byte == b'=');
        let (name, value) = (parts.next().unwrap_or_default(), parts.next());
        let named = || format!("the name {:?}", String::from_utf8_lossy(name));
        let name = text(&named, name)?;
        let what = || format!("the value of the variable {name}");
        builder.env(&name, text(&what, value.unwrap_or_default())?);
        names.push(name);
    }
    let mut folders = Vec::new();
    for folder in &order.folders {
        let named = || format!("the folder {:?}", String::from_utf8_lossy(&folder.target));
        let target = text(&named, &folder.target)?;
        let perms = if folder.writable {
            FsPerms::ReadWrite
        } else {
            FsPerms::ReadOnly
        };
        builder
            .preopened_dir(format!("{OPEN}/{}", folder.descriptor), &target, perms)
            .map_err(|error| Report::Failed(format!("open the folder {target}: {error:#}")))?;
        folders.push((target, folder.writable));
    }
    Ok((builder.build_p1(), folders, names))
}

impl Prepared {
    fn run(mut self) -> u8 {
        if let Some(deadline) = self.deadline {
            let engine = self.engine.clone();
            let watch = move || {
                std::thread::sleep(deadline);
                engine.increment_epoch();
            };
            // Without a thread nothing stops the module from here; the runner does.
            if let Err(error) = std::thread::Builder::new().spawn(watch) {
                eprintln!("runner-wasi: cannot watch the deadline: {error}");
                return crate::FAILED;
            }
        }
        let ran = self
            .module
            .instantiate(&mut self.store)
            .and_then(|instance| {
                instance
                    .get_typed_func::<(), ()>(&mut self.store, START)?
                    .call(&mut self.store, ())
            });
        let Err(error) = ran else {
            return 0;
        };
        if let Some(exit) = error.downcast_ref::<I32Exit>() {
            if let (0..=GREATEST_STATUS, Ok(status)) = (exit.0, u8::try_from(exit.0)) {
                return status;
            }
            let said = exit.0.cast_unsigned();
            eprintln!(
                "runner-wasi: the module says the status {said}, and WASI preview 1 has none above {GREATEST_STATUS}"
            );
            return TRAPPED;
        }
        if error.downcast_ref::<Trap>() == Some(&Trap::Interrupt) {
            std::thread::sleep(AWAIT_END);
        }
        eprintln!("runner-wasi: the module trapped: {}", why(&error));
        TRAPPED
    }
}

/// The cause, without the frames that led to it.
fn why(error: &wasmtime::Error) -> String {
    match error.downcast_ref::<Trap>() {
        Some(trap) => trap.to_string(),
        None => cut(error.root_cause().to_string()),
    }
}
