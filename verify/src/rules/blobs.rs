//! Blobs that records refer to: there, regular, and what their name says.

use std::borrow::Cow;
use std::collections::HashMap;

use ledger::bytes::canon::U53;
use ledger::bytes::hash::Hash;
use ledger::facts::execution::{Execution, InOrder, Output, Start, Violation};
use ledger::facts::list::{BlobList, List, Sealable};
use ledger::file::source::{Attachments, BlobState, ReadError};
use ledger::file::walk::{Findings, Shown};
use ledger::finding::{Code, Finding, Place};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::items;

/// Looks blobs up; each is hashed once.
pub(super) struct Blobs {
    attachments: Attachments,
    checked: u64,
    /// Length of each good one; `None` for one that is not.
    known: HashMap<Hash, Option<u64>>,
}

impl Blobs {
    pub(super) fn new(attachments: Attachments) -> Self {
        Self {
            attachments,
            checked: 0,
            known: HashMap::new(),
        }
    }

    pub(super) fn finish(self, counts: &mut super::Counts) {
        counts.blobs = self.checked;
    }

    pub(super) fn of_start(
        &mut self,
        shown: &Shown<'_>,
        start: &Start,
        findings: &mut Findings,
    ) -> Result<(), ReadError> {
        let opened = shown.opening.map(|opening| &opening.open);
        let argv = opened.and_then(|open| open.argv.as_ref());
        let launch = opened.and_then(|open| open.launch.as_ref());
        let clear_argv = clear(Some(&start.workload.argv));
        let clear_launch = clear(start.runtime.launch.as_ref());
        for list in [argv.map(|salted| &salted.1), launch.map(|salted| &salted.1)]
            .into_iter()
            .chain([clear_argv, clear_launch])
            .flatten()
        {
            self.list(shown, list, findings)?;
        }
        Ok(())
    }

    /// Looks at what an end refers to, and gives the denied calls that it lists, as far as they are in order.
    pub(super) fn of_execution<'a>(
        &mut self,
        shown: &Shown<'_>,
        execution: &'a Execution,
        findings: &mut Findings,
    ) -> Result<Option<Cow<'a, [Violation]>>, ReadError> {
        for output in outputs(shown, execution) {
            if let Some(blob) = &output.blob {
                self.check(shown, blob, Some(output.kept.value()), findings)?;
            }
        }
        if let Some(list) = &execution.artifacts {
            self.list(shown, list, findings)?;
        }
        match &execution.violations {
            Some(List::Blob(list)) => self
                .violations(shown, list, execution.result.duration_us, findings)
                .map(|list| list.map(Cow::Owned)),
            Some(List::Inline(list)) => Ok(Some(Cow::Borrowed(list))),
            None => Ok(None),
        }
    }

    /// A list of denied calls that did not fit its record says what it would have to say there.
    fn violations(
        &mut self,
        shown: &Shown<'_>,
        list: &BlobList,
        duration: Option<U53>,
        findings: &mut Findings,
    ) -> Result<Option<Vec<Violation>>, ReadError> {
        let (mut order, mut disorder) = (InOrder::within(duration), None);
        // In order each call stands once, so there are no more than the kernel has.
        let mut calls = Vec::new();
        let whole = self.items(shown, list, findings, &mut |violation: Violation| {
            let wrong = order.take(&violation);
            disorder = disorder.or(wrong);
            if disorder.is_none() {
                calls.push(violation);
            }
        })?;
        if let Some(disorder) = disorder {
            let message = format!(
                "the denied calls in blob {} contradict themselves",
                list.blob
            );
            findings.push(
                shown
                    .finding(Code::BlobMismatch, message)
                    .in_place(place(&list.blob))
                    .versus("violations in order", disorder),
            );
            return Ok(None);
        }
        Ok(whole.then_some(calls))
    }

    /// Checks a blob and gives its content when it is good. One of more than `keep` bytes is not what the
    /// record says that it is.
    pub(super) fn content(
        &mut self,
        shown: &Shown<'_>,
        hash: &Hash,
        keep: u64,
        findings: &mut Findings,
    ) -> Result<Option<Vec<u8>>, ReadError> {
        let (size, content) = match self.look(shown, hash, None, keep, findings)? {
            Some(BlobState::Good { size, content }) => (size, content),
            _ => return Ok(None),
        };
        if content.is_none() {
            findings.push(
                shown
                    .finding(
                        Code::BlobMismatch,
                        "the blob is longer than what it should hold may be",
                    )
                    .in_place(place(hash))
                    .versus(format!("at most {keep} bytes"), format!("{size} bytes")),
            );
        }
        Ok(content)
    }

    fn check(
        &mut self,
        shown: &Shown<'_>,
        hash: &Hash,
        expected: Option<u64>,
        findings: &mut Findings,
    ) -> Result<bool, ReadError> {
        if let Some(known) = self.known.get(hash) {
            self.checked += 1;
            if let (Some(size), Some(expected)) = (known, expected)
                && *size != expected
            {
                let state = BlobState::Size {
                    expected,
                    found: *size,
                };
                findings.extend_with(finding(shown, hash, &state));
                return Ok(false);
            }
            return Ok(known.is_some());
        }
        let state = self.look(shown, hash, expected, 0, findings)?;
        Ok(matches!(state, Some(BlobState::Good { .. })))
    }

    /// Looks at the file itself; `None` where there is no folder.
    fn look(
        &mut self,
        shown: &Shown<'_>,
        hash: &Hash,
        expected: Option<u64>,
        keep: u64,
        findings: &mut Findings,
    ) -> Result<Option<BlobState>, ReadError> {
        let state = self.attachments.blob(hash, expected, keep)?;
        if state == BlobState::NotChecked {
            return Ok(None);
        }
        self.checked += 1;
        match &state {
            BlobState::Good { size, .. } => {
                self.known.insert(*hash, Some(*size));
            }
            // Another record may expect the length that it has.
            BlobState::Size { .. } => {}
            _ => {
                self.known.insert(*hash, None);
            }
        }
        findings.extend_with(finding(shown, hash, &state));
        Ok(Some(state))
    }

    /// Holds a list against its blob: read item by item, it must be written again as the same bytes.
    fn list<T: Serialize + DeserializeOwned>(
        &mut self,
        shown: &Shown<'_>,
        list: &List<T>,
        findings: &mut Findings,
    ) -> Result<(), ReadError> {
        if let List::Blob(list) = list {
            self.items(shown, list, findings, &mut |_: T| {})?;
        }
        Ok(())
    }

    /// As for any list in a blob; each item is handed to `take`. Whether it is all there and what the record says.
    pub(super) fn items<T: Serialize + DeserializeOwned>(
        &mut self,
        shown: &Shown<'_>,
        list: &BlobList,
        findings: &mut Findings,
        take: &mut dyn FnMut(T),
    ) -> Result<bool, ReadError> {
        let BlobList { blob, count } = list;
        if !self.check(shown, blob, None, findings)? {
            return Ok(false);
        }
        let Some(file) = self.attachments.blob_reader(blob)? else {
            return Ok(false);
        };
        let read = items::read::<T>(file, take).map_err(|source| ReadError {
            operation: "read",
            path: place(blob).file.into(),
            source,
        })?;
        let found = match read {
            Ok((items, hash)) if items == count.value() && hash == *blob => return Ok(true),
            Ok((items, _)) if items != count.value() => format!("{items} items"),
            Ok(_) => "the same items, written in another form".to_owned(),
            Err(why) => format!("something that is no such list: {why}"),
        };
        findings.push(
            shown
                .finding(Code::BlobMismatch, format!("blob {blob} is another list"))
                .versus(format!("{count} items"), found),
        );
        Ok(false)
    }
}

/// Pushes what is there, if anything.
trait ExtendWith {
    fn extend_with(&mut self, finding: Option<Finding>);
}

impl ExtendWith for Findings {
    fn extend_with(&mut self, finding: Option<Finding>) {
        finding.into_iter().for_each(|finding| self.push(finding));
    }
}

/// The outputs of an execution as far as they can be seen: clear, or opened.
pub(super) fn outputs<'a>(
    shown: &'a Shown<'_>,
    execution: &'a Execution,
) -> impl Iterator<Item = &'a Output> {
    let opened = shown.opening.map(|opening| &opening.open);
    let result = &execution.result;
    [
        opened.and_then(|open| open.stdout.as_ref()).map(|it| &it.1),
        opened.and_then(|open| open.stderr.as_ref()).map(|it| &it.1),
        clear(result.stdout.as_ref()),
        clear(result.stderr.as_ref()),
    ]
    .into_iter()
    .flatten()
}

fn clear<T>(value: Option<&Sealable<T>>) -> Option<&T> {
    match value {
        Some(Sealable::Clear(value)) => Some(value),
        Some(Sealable::Sealed(_)) | None => None,
    }
}

fn place(hash: &Hash) -> Place {
    let text = hash.to_string();
    let (two, rest) = text.split_at(2);
    Place {
        file: format!("blobs/{two}/{rest}"),
        line: None,
    }
}

fn finding(shown: &Shown<'_>, hash: &Hash, state: &BlobState) -> Option<Finding> {
    let place = place(hash);
    let say = |code, message: &str| shown.finding(code, message).in_place(place.clone());
    Some(match state {
        BlobState::NotChecked | BlobState::Good { .. } => return None,
        BlobState::Missing => say(
            Code::BlobMissing,
            "a blob that the record names is not there",
        ),
        BlobState::Foreign => say(Code::BlobMismatch, "the blob is not a regular file"),
        BlobState::Size { expected, found } => say(
            Code::BlobMismatch,
            "the blob's length is not what the record says",
        )
        .versus(format!("{expected} bytes"), format!("{found} bytes")),
        BlobState::Content(found) => say(
            Code::BlobMismatch,
            "the blob's content is not what its name says",
        )
        .versus(hash, found),
    })
}
