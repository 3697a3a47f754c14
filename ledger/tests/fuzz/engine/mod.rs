//! The fuzzing loop: a corpus, mutations of it, a check for each input, on stable Rust.
//!
//! A target is a function that is handed bytes and says what became of them, or which promise they broke. There
//! is no coverage of branches on stable; what a check says (accepted, or which refusal) takes its place: an
//! input with a new outcome joins the inputs that are mutated.
//!
//! | variable | meaning |
//! |---|---|
//! | `FUZZ_SECONDS` | how long each target runs after its corpus; 1 by default |
//! | `FUZZ_SEED` | the seed that a run printed, to have its inputs again, in the same order |
//!
//! An input that breaks a promise is made smaller, written to `tests/corpus/<target>/` (where that is not writable, to
//! the folder for temporary files) and stays in the corpus until it is mended and named by its idea.

pub(crate) mod json;
pub(crate) mod mutate;
pub(crate) mod random;

use std::collections::BTreeSet;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use random::Random;

/// Longest input that is tried: above the caps of lines and notes, so that these are met.
const MAX_INPUT_BYTES: usize = 70_000;
/// Inputs with new outcomes that are kept beside the corpus.
const MAX_POOL: usize = 1_024;
/// The stack of a target: half of what a test thread has, so that recursion without a cap shows.
const STACK_BYTES: usize = 1 << 20;
/// After so long without an end, a target counts as hanging. Nothing finer about time is asserted.
const PATIENCE: Duration = Duration::from_secs(120);
/// Longest text of a refusal, in bytes, however long the input is.
const MAX_REFUSAL_BYTES: usize = 4_000;

/// What became of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It was read.
    Accepted,
    /// It was refused, in good order.
    Refused,
}

/// A fate, and what tells it from others of its kind.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    fate: Fate,
    class: String,
}

/// What a check returns: what became of the input, or the promise that it broke.
pub(crate) type Checked = Result<Outcome, String>;

impl Outcome {
    /// It was read, as something of this class.
    pub(crate) fn accepted(class: &str) -> Self {
        Self {
            fate: Fate::Accepted,
            class: class.to_owned(),
        }
    }

    /// It was refused with this text, which must be something to read, short, and harmless on a terminal.
    pub(crate) fn refused(text: &str) -> Checked {
        if text.trim().is_empty() {
            return Err("a refusal without text".to_owned());
        }
        if text.len() > MAX_REFUSAL_BYTES {
            let (length, start) = (text.len(), text.chars().take(200).collect::<String>());
            return Err(format!("a refusal of {length} bytes: {start:?}…"));
        }
        if let Some(c) = text.chars().find(|c| moves_the_cursor(*c)) {
            return Err(format!("a refusal that holds {c:?}: {text:?}"));
        }
        Ok(Self {
            fate: Fate::Refused,
            class: class_of(text),
        })
    }
}

fn moves_the_cursor(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The text without numbers and without what it quotes: what kind of refusal it is.
fn class_of(text: &str) -> String {
    let mut class = String::new();
    let mut quote = None;
    let mut escaped = false;
    for c in text.chars() {
        match quote {
            Some(_) if escaped => escaped = false,
            Some('"') if c == '\\' => escaped = true,
            Some(end) if c == end => quote = None,
            Some(_) => {}
            None if c == '"' || c == '`' => quote = Some(c),
            None if c.is_ascii_digit() => {}
            None => class.push(c),
        }
    }
    class.chars().take(80).collect()
}

/// `hold!(condition, "promise", …)`: returns from a check when a promise is broken.
macro_rules! hold {
    ($condition:expr, $($promise:tt)+) => {
        if !$condition {
            return Err(format!($($promise)+));
        }
    };
}
pub(crate) use hold;

/// What is attacked.
pub(crate) struct Target {
    /// Its name: the test's, and the corpus folder's.
    pub(crate) name: &'static str,
    /// Inputs besides those in the corpus folder; each must be accepted.
    pub(crate) valid: Vec<Vec<u8>>,
    /// Words of the format.
    pub(crate) words: &'static [&'static str],
    /// Changes an input by its structure; `None` where it has none.
    pub(crate) shape: fn(&mut Random, &[u8]) -> Option<Vec<u8>>,
    /// Judges an input.
    pub(crate) check: fn(&[u8]) -> Checked,
}

/// Runs a target: its corpus, then mutations until the time is over.
pub(crate) fn run(target: Target) {
    let seed = number("FUZZ_SEED").unwrap_or_else(|| RandomState::new().build_hasher().finish());
    let seconds = number("FUZZ_SECONDS").unwrap_or(1);
    let name = target.name;
    // Past the capture of output: a run that is aborted has said its seed.
    let _ = writeln!(
        std::io::stderr(),
        "fuzz {name}: {seconds} s, FUZZ_SEED={seed}"
    );
    let (done, result) = mpsc::channel();
    let worker = std::thread::Builder::new().stack_size(STACK_BYTES);
    let worker = worker
        .spawn(move || {
            let _ = done.send(work(&target, seed, Duration::from_secs(seconds)));
        })
        .expect("a thread");
    match result.recv_timeout(Duration::from_secs(seconds) + PATIENCE) {
        Ok(Ok(said)) => println!("{said}"),
        Ok(Err(broken)) => panic!("{broken}"),
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("{name} hangs; FUZZ_SEED={seed} repeats it"),
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            let cause = worker.join();
            panic!("{name} ended without a result: {cause:?}");
        }
    }
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{variable}={text}: expected a number")),
    )
}

fn work(target: &Target, seed: u64, time: Duration) -> Result<String, String> {
    let broken = |input: &[u8], why: &str| report(target, seed, input, why);
    let mut seen = BTreeSet::new();
    let mut pool = Vec::new();
    let mut tally = Tally::default();
    for input in &target.valid {
        match judge(target, input).map_err(|why| broken(input, &why))? {
            Outcome {
                fate: Fate::Accepted,
                class,
            } => seen.insert(class),
            refused => return Err(broken(input, &format!("a valid input: {refused:?}"))),
        };
        pool.push(input.clone());
    }
    for (file, input) in corpus(target.name) {
        let outcome = judge(target, &input).map_err(|why| broken(&input, &why))?;
        let expected = match file.split_once('-') {
            Some(("accepted", _)) => Some(Fate::Accepted),
            Some(("refused", _)) => Some(Fate::Refused),
            _ => None,
        };
        if expected.is_some_and(|expected| expected != outcome.fate) {
            return Err(format!("corpus/{}/{file}: {outcome:?}", target.name));
        }
        seen.insert(outcome.class);
        pool.push(input);
    }
    let started = Instant::now();
    let mut random = Random::new(seed);
    while started.elapsed() < time {
        let input = next(target, &pool, &mut random);
        let began = Instant::now();
        let outcome = judge(target, &input).map_err(|why| broken(&input, &why))?;
        tally.add(&outcome, began.elapsed());
        let is_new = !seen.contains(&outcome.class);
        if is_new && pool.len() < MAX_POOL {
            seen.insert(outcome.class);
            pool.push(input);
        }
    }
    if time > Duration::ZERO && tally.inputs == 0 {
        return Err(format!("{}: not one input in {time:?}", target.name));
    }
    Ok(tally.said(target.name, seed, started.elapsed(), seen.len()))
}

#[derive(Default)]
struct Tally {
    inputs: u64,
    accepted: u64,
    slowest: Duration,
}

impl Tally {
    fn add(&mut self, outcome: &Outcome, took: Duration) {
        self.inputs += 1;
        self.accepted += u64::from(outcome.fate == Fate::Accepted);
        self.slowest = self.slowest.max(took);
    }

    fn said(&self, name: &str, seed: u64, took: Duration, classes: usize) -> String {
        let Self {
            inputs,
            accepted,
            slowest,
        } = self;
        let rate = *inputs as f64 / took.as_secs_f64();
        format!(
            "fuzz {name}: {inputs} inputs in {:.1} s, {rate:.0} a second; {accepted} accepted, {classes} kinds of outcome, \
             slowest {:.1} ms, FUZZ_SEED={seed}",
            took.as_secs_f64(),
            slowest.as_secs_f64() * 1e3,
        )
    }
}

fn next(target: &Target, pool: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut input = match random.below(16) {
        0 => mutate::noise(random, target.words),
        1..=7 => {
            let base = random.pick(pool).cloned().unwrap_or_default();
            (target.shape)(random, &base).unwrap_or(base)
        }
        _ => random.pick(pool).cloned().unwrap_or_default(),
    };
    // What the structure gave is often left as it is: one change more would break the frame around it.
    if random.below(2) == 0 {
        for _ in 0..1 + random.below(4) {
            mutate::bytes(random, &mut input, pool, target.words);
        }
    }
    input.truncate(MAX_INPUT_BYTES);
    input
}

/// A panic of the code under test is a broken promise like any other.
fn judge(target: &Target, input: &[u8]) -> Checked {
    catch_unwind(AssertUnwindSafe(|| (target.check)(input))).unwrap_or_else(|cause| {
        let text = cause
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| cause.downcast_ref::<&str>().copied());
        Err(format!("a panic: {}", text.unwrap_or("without text")))
    })
}

/// Keeps an input that breaks a promise, as small as it gets, and says how to see it again.
fn report(target: &Target, seed: u64, input: &[u8], why: &str) -> String {
    let small = smaller(target, input.to_vec());
    let why = judge(target, &small)
        .err()
        .unwrap_or_else(|| why.to_owned());
    let name = format!("found-{:016x}", fingerprint(&small));
    let folders = [folder(target.name), std::env::temp_dir()];
    let kept = folders.iter().find_map(|folder| {
        std::fs::create_dir_all(folder).ok()?;
        let path = folder.join(&name);
        std::fs::write(&path, &small).ok().map(|()| path)
    });
    let kept = kept.map_or("nowhere".to_owned(), |path| path.display().to_string());
    format!(
        "{}: {why}\n  input ({} bytes): {}\n  kept: {kept}\n  again: FUZZ_SEED={seed} cargo test -p ledger {}",
        target.name,
        small.len(),
        small
            .escape_ascii()
            .to_string()
            .chars()
            .take(600)
            .collect::<String>(),
        target.name,
    )
}

/// Takes parts away as long as the input still breaks a promise.
fn smaller(target: &Target, mut input: Vec<u8>) -> Vec<u8> {
    let mut tries = 2_000;
    let mut part = input.len() / 2;
    while part > 0 && tries > 0 {
        let mut at = 0;
        while at < input.len() && tries > 0 {
            let end = (at + part).min(input.len());
            let less = [&input[..at], &input[end..]].concat();
            tries -= 1;
            if judge(target, &less).is_err() {
                input = less;
            } else {
                at = end;
            }
        }
        part /= 2;
    }
    input
}

fn fingerprint(bytes: &[u8]) -> u64 {
    // FNV-1a: a name, nothing more.
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn folder(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/corpus")
        .join(target)
}

/// The files of the target's corpus by name; there must be some.
fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let folder = folder(target);
    let entries =
        std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut files: Vec<_> = entries
        .map(|entry| {
            let path = entry.expect("an entry of the corpus").path();
            let name = path
                .file_name()
                .expect("a name")
                .to_string_lossy()
                .into_owned();
            (name, std::fs::read(&path).expect("a file of the corpus"))
        })
        .collect();
    assert!(!files.is_empty(), "{} is empty", folder.display());
    files.sort();
    files
}
