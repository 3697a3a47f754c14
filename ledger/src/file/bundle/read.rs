//! Reading a bundle up to its first record: header, checkpoint, files.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use super::files::{Entry, Files};
use super::{
    CHECKPOINT_PREFIX, CheckpointLine, FORMAT, Header, MAX_FILES, PIECE_PREFIX, Piece, parse,
};
use crate::bytes::hash::{Hash, Hasher};
use crate::file::chain::form_finding;
use crate::file::source::{Attachments, BundleHead, Line, Lines, Source};
use crate::finding::{Code, Finding};
use crate::record::LineProblem;

/// Reads what stands before the first record; the lines that are left begin with its proof. `file` is the bundle once more
/// where it can be read at any place: without it nothing is said about blobs.
pub(in crate::file) fn begin(mut lines: Lines, file: Option<(File, PathBuf)>) -> Source {
    lines.bundled = true;
    let mut findings = Vec::new();
    let header = take(&mut lines, super::PREFIX);
    if let Some(newer) = header.as_ref().and_then(newer) {
        // What its lines mean is not known.
        findings.push(newer);
        lines.end();
        return Source {
            lines,
            checkpoint: None,
            attachments: Attachments::none(),
            findings,
            bundle: Some(BundleHead(None)),
        };
    }
    let header = header.and_then(|line| {
        let header: Result<Header, _> = read(&line);
        header.map_err(|finding| findings.push(*finding)).ok()
    });
    let checkpoint = checkpoint(&mut lines, &mut findings);
    let entries = files(&mut lines, header.as_ref(), &mut findings);
    let attachments = match file {
        Some((file, path)) => Attachments::bundled(Arc::new(Files::new(file, path, entries))),
        None => Attachments::none(),
    };
    Source {
        lines,
        checkpoint,
        attachments,
        findings,
        bundle: Some(BundleHead(header)),
    }
}

/// Takes the next line when it begins so.
fn take(lines: &mut Lines, prefix: &[u8]) -> Option<Line> {
    let fits = lines
        .peek()
        .is_some_and(|line| !line.torn && line.bytes.starts_with(prefix));
    // It was read already, so that nothing can go wrong here.
    fits.then(|| lines.next(&mut |_| {}).ok().flatten())?
}

fn read<T: serde::Serialize + serde::de::DeserializeOwned>(line: &Line) -> Result<T, Box<Finding>> {
    let read = match line.long {
        Some(long) => Err(LineProblem::TooLarge(long.length)),
        None => parse(&line.bytes),
    };
    read.map_err(|problem| Box::new(form_finding(&problem).in_place(line.place())))
}

/// What there is to say of a bundle in a version of the format that is not this one.
fn newer(line: &Line) -> Option<Finding> {
    let text = std::str::from_utf8(&line.bytes).ok()?;
    let (name, _) = text.strip_prefix(r#"{"bundle":""#)?.split_once('"')?;
    let version = name.strip_prefix("containment-ledger/bundle/v")?;
    let digits = (1..=9).contains(&version.len()) && version.bytes().all(|b| b.is_ascii_digit());
    (digits && name != FORMAT).then(|| {
        let message = format!("bundle format v{version} needs a newer verify; nothing was read");
        Finding::new(Code::RecordVersionUnknown, message)
            .in_place(line.place())
            .help("install a newer verify and check again")
    })
}

fn checkpoint(lines: &mut Lines, findings: &mut Vec<Finding>) -> Option<Vec<u8>> {
    let Some(line) = take(lines, CHECKPOINT_PREFIX) else {
        findings.push(Finding::new(
            Code::CheckpointInvalid,
            "the bundle has no checkpoint in its second line: nothing shows where its records stand",
        ));
        return None;
    };
    match read::<CheckpointLine>(&line) {
        Ok(read) => Some(read.checkpoint.into_bytes()),
        Err(finding) => {
            findings.push(*finding);
            None
        }
    }
}

/// A file of which some pieces were read.
struct Begun {
    entry: Entry,
    at: u64,
    hasher: Hasher,
    last: Line,
}

fn files(lines: &mut Lines, header: Option<&Header>, findings: &mut Vec<Finding>) -> Vec<Entry> {
    let mut entries = Vec::new();
    let mut begun: Option<Begun> = None;
    let mut before: Option<Hash> = None;
    let mut problems = Problems { findings, said: 0 };
    while let Some(line) = take(lines, PIECE_PREFIX) {
        let piece: Piece = match read(&line) {
            Ok(piece) => piece,
            Err(finding) => {
                problems.say(*finding);
                continue;
            }
        };
        let Some(bytes) = piece.content() else {
            problems.lie(
                &line,
                "the piece is not as many bytes in base64 as stand there",
            );
            continue;
        };
        let (hash, at) = (piece.blob, piece.at.value());
        match &mut begun {
            Some(begun) if begun.entry.hash == hash && begun.at == at && at < begun.entry.size => {
                if begun.entry.size != piece.size.value() {
                    problems.lie(&line, "the piece gives its file another size");
                    continue;
                }
                begun.hasher.update(&bytes);
                begun.at += bytes.len() as u64;
                begun.last = line;
                continue;
            }
            _ => {}
        }
        if let Some(begun) = begun.take() {
            begun.finish(&mut entries, &mut problems);
        }
        if at != 0 {
            problems.lie(
                &line,
                "the piece does not go on where the one before it ended",
            );
            continue;
        }
        if before.is_some_and(|before| before >= hash) {
            problems.lie(&line, "the file stands there twice, or out of order");
            continue;
        }
        before = Some(hash);
        let mut hasher = Hasher::plain();
        hasher.update(&bytes);
        begun = Some(Begun {
            entry: Entry {
                hash,
                offset: line.offset,
                size: piece.size.value(),
            },
            at: bytes.len() as u64,
            hasher,
            last: line,
        });
    }
    if let Some(begun) = begun {
        begun.finish(&mut entries, &mut problems);
    }
    if let Some(header) = header
        && header.files.value() != entries.len() as u64
    {
        problems.say(
            Finding::new(
                Code::BlobMismatch,
                "not all files of the bundle are there and whole",
            )
            .versus(
                format!("{} files", header.files),
                format!("{} files", entries.len()),
            ),
        );
    }
    entries
}

impl Begun {
    fn finish(self, entries: &mut Vec<Entry>, problems: &mut Problems<'_>) {
        let found = self.hasher.finish();
        if self.at != self.entry.size {
            problems.lie(&self.last, "pieces of the file are missing");
        } else if found != self.entry.hash {
            problems.say(
                Finding::new(
                    Code::BlobMismatch,
                    "the file's content is not what its name says",
                )
                .in_place(self.last.place())
                .versus(self.entry.hash, found),
            );
        } else if entries.len() == MAX_FILES {
            problems.lie(
                &self.last,
                "the bundle has more files than a bundle may have",
            );
        } else {
            entries.push(self.entry);
        }
    }
}

/// The first of many.
struct Problems<'a> {
    findings: &'a mut Vec<Finding>,
    said: u64,
}

impl Problems<'_> {
    fn say(&mut self, finding: Finding) {
        self.said += 1;
        if self.said <= crate::file::walk::KEPT_PER_CODE {
            self.findings.push(finding);
        }
    }

    fn lie(&mut self, line: &Line, message: &str) {
        self.say(Finding::new(Code::BlobMismatch, message).in_place(line.place()));
    }
}
