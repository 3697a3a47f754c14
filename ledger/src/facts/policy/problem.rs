//! What is wrong with a policy document, and where.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use miette::{Diagnostic, LabeledSpan, NamedSource, SourceCode};

macro_rules! codes {
    ($($variant:ident $name:literal $meaning:literal,)+) => {
        /// What kind of mistake a [`Problem`] is.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ProblemCode {
            $(#[doc = $meaning] $variant,)+
        }

        impl ProblemCode {
            /// The code in diagnostics.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => concat!("ledger::policy::", $name),)+ }
            }
        }
    };
}

codes! {
    NotText "not_text" "The document is not UTF-8.",
    TooLong "too_long" "The document is longer than a policy may be.",
    Syntax "syntax" "The document is not JSON.",
    WrongType "wrong_type" "A field has a value of another type.",
    UnknownField "unknown_field" "A field that no policy has.",
    DuplicateField "duplicate_field" "A field that stands twice in one object.",
    MissingField "missing_field" "A field that every policy has is absent.",
    UnknownWord "unknown_word" "A word that the field does not take.",
    UnknownControl "unknown_control" "A name of no control.",
    UnknownSyscall "unknown_syscall" "A name of no system call.",
    UnknownCapability "unknown_capability" "A name of no capability.",
    BadValue "bad_value" "A value that the field cannot have.",
    Contradiction "contradiction" "Two parts of the policy exclude each other.",
}

impl fmt::Display for ProblemCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The document that problems point into.
pub(super) type Source = Arc<NamedSource<String>>;

/// One mistake in a policy document.
///
/// Its text says what was found and what was expected, [`Problem::place`] where; rendered by miette it shows
/// the line itself.
#[derive(Clone, Debug)]
pub struct Problem {
    pub(super) code: ProblemCode,
    pub(super) message: String,
    pub(super) label: String,
    pub(super) help: Option<String>,
    pub(super) span: Range<usize>,
    pub(super) line: usize,
    pub(super) column: usize,
    pub(super) source: Source,
}

impl Problem {
    /// What kind of mistake it is.
    #[must_use]
    pub const fn code(&self) -> ProblemCode {
        self.code
    }

    /// The line of the document, from 1.
    #[must_use]
    pub const fn line(&self) -> usize {
        self.line
    }

    /// The column in that line in characters, from 1.
    #[must_use]
    pub const fn column(&self) -> usize {
        self.column
    }

    /// The bytes of the document that are wrong.
    #[must_use]
    pub fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// What to do, where there is something to say.
    #[must_use]
    pub fn help_text(&self) -> Option<&str> {
        self.help.as_deref()
    }

    /// `FILE:LINE:COLUMN`.
    #[must_use]
    pub fn place(&self) -> String {
        format!("{}:{}:{}", self.source.name(), self.line, self.column)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Problem {}

impl Diagnostic for Problem {
    fn code<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        Some(Box::new(self.code))
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.help
            .as_ref()
            .map(|help| -> Box<dyn fmt::Display + 'a> { Box::new(help) })
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        Some(&self.source)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let label = LabeledSpan::new_with_span(Some(self.label.clone()), self.span.clone());
        Some(Box::new(std::iter::once(label)))
    }
}

/// Line and column, both from 1, of a byte of `text`.
pub(super) fn line_and_column(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (
        line,
        before.get(start..).unwrap_or_default().chars().count() + 1,
    )
}

/// Why a document is no policy: every mistake in it, in the order of the text.
///
/// For people, print each of [`ReadPolicyError::problems`] as a diagnostic; the text of the error itself is
/// one line for each.
#[derive(Clone, Debug)]
pub struct ReadPolicyError {
    pub(super) name: String,
    pub(super) problems: Vec<Problem>,
}

impl ReadPolicyError {
    /// The document's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The mistakes, at least one.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// The mistakes, to be printed one by one.
    #[must_use]
    pub fn into_problems(self) -> Vec<Problem> {
        self.problems
    }
}

impl fmt::Display for ReadPolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, problem) in self.problems.iter().enumerate() {
            if at > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{}: {problem}", problem.place())?;
        }
        Ok(())
    }
}

impl std::error::Error for ReadPolicyError {}

impl Diagnostic for ReadPolicyError {
    fn related<'a>(&'a self) -> Option<Box<dyn Iterator<Item = &'a dyn Diagnostic> + 'a>> {
        Some(Box::new(
            self.problems
                .iter()
                .map(|problem| -> &dyn Diagnostic { problem }),
        ))
    }
}
