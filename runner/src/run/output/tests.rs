use std::sync::{Arc, Mutex};

use proptest::prelude::*;

use super::*;

/// What a store would hold: committed blobs, and how often one was opened.
#[derive(Clone, Default)]
struct Store(Arc<Mutex<Stored>>);

#[derive(Default)]
struct Stored {
    opened: usize,
    committed: Vec<Vec<u8>>,
}

/// Where a blob fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    Open,
    /// Once more than so many bytes would be in it.
    WritePast(usize),
    Commit,
    WrongName,
}

struct MemoryBlob {
    store: Store,
    bytes: Vec<u8>,
    fault: Fault,
}

impl Write for MemoryBlob {
    // Takes at most 1000 bytes at a time, as a disk may.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let bytes = &bytes[..bytes.len().min(1000)];
        if let Fault::WritePast(limit) = self.fault
            && self.bytes.len() + bytes.len() > limit
        {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Blob for MemoryBlob {
    fn commit(self: Box<Self>) -> io::Result<Hash> {
        match self.fault {
            Fault::Commit => return Err(io::ErrorKind::StorageFull.into()),
            Fault::WrongName => return Ok(Hash::of(b"something else")),
            Fault::None | Fault::Open | Fault::WritePast(_) => {}
        }
        let hash = Hash::of(&self.bytes);
        self.store.0.lock().unwrap().committed.push(self.bytes);
        Ok(hash)
    }
}

struct Seen {
    captured: Captured,
    forwarded: Vec<u8>,
    cuts: usize,
    opened: usize,
    committed: Vec<Vec<u8>>,
}

fn capture<'b>(cap: Option<u64>, fault: Fault, chunks: impl IntoIterator<Item = &'b [u8]>) -> Seen {
    let store = Store::default();
    let inner = store.clone();
    let mut capture = Capture::new(Stream::Stdout, cap, move || {
        inner.0.lock().unwrap().opened += 1;
        if fault == Fault::Open {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok(Box::new(MemoryBlob {
            store: inner.clone(),
            bytes: Vec::new(),
            fault,
        }))
    });
    let (mut forwarded, mut cuts) = (Vec::new(), 0);
    for chunk in chunks {
        let taken = capture.take(chunk);
        forwarded.extend_from_slice(&chunk[..taken.forward]);
        cuts += usize::from(taken.cut);
    }
    let captured = capture.finish();
    let stored = std::mem::take(&mut *store.0.lock().unwrap());
    Seen {
        captured,
        forwarded,
        cuts,
        opened: stored.opened,
        committed: stored.committed,
    }
}

/// The output value as DESIGN.md §4.1 words it, from all bytes at once.
fn model(bytes: &[u8], cap: Option<u64>) -> Output {
    let kept = cap.map_or(bytes.len(), |cap| bytes.len().min(cap as usize));
    let first = &bytes[..kept];
    let text = std::str::from_utf8(first)
        .ok()
        .filter(|text| {
            text.chars()
                .all(|c| c == '\t' || c == '\n' || !c.is_control())
        })
        .map(str::to_owned);
    let inline = kept <= 4096;
    Output {
        base64: (inline && text.is_none()).then(|| STANDARD.encode(first)),
        blob: (!inline).then(|| Hash::of(first)),
        bytes: U53::saturating(bytes.len() as u64),
        kept: U53::saturating(kept as u64),
        sha256: Hash::of(bytes),
        text: text.filter(|_| inline),
    }
}

#[test]
fn nothing_is_an_empty_text() {
    let seen = capture(None, Fault::None, []);
    assert_eq!(seen.captured.output, model(b"", None));
    assert_eq!(seen.captured.output.text.as_deref(), Some(""));
}

#[test]
fn exactly_4096_bytes_are_inline_and_one_more_is_a_blob() {
    let bytes = vec![b'x'; 4097];
    let inline = capture(None, Fault::None, [&bytes[..4096]]);
    assert_eq!(inline.captured.output, model(&bytes[..4096], None));
    assert!(inline.captured.output.text.is_some());
    assert_eq!(inline.opened, 0);

    for chunks in [
        vec![&bytes[..]],
        vec![&bytes[..4096], &bytes[4096..]],
        vec![&bytes[..4095], &bytes[4095..]],
    ] {
        let blob = capture(None, Fault::None, chunks);
        assert_eq!(blob.captured.output, model(&bytes, None));
        assert_eq!(blob.committed, [&bytes[..]]);
        assert!(blob.captured.output.text.is_none());
        assert!(blob.captured.unmeasured.is_none());
    }

    let capped = capture(Some(4096), Fault::None, [&bytes[..]]);
    assert_eq!(capped.captured.output, model(&bytes, Some(4096)));
    assert_eq!((capped.opened, capped.cuts), (0, 1));
}

#[test]
fn the_cap_cuts_what_is_forwarded_and_kept_but_not_what_is_counted() {
    let seen = capture(Some(5), Fault::None, [&b"abc"[..], b"defg", b"h", b"ij"]);
    assert_eq!(seen.forwarded, b"abcde");
    assert_eq!(seen.cuts, 1);
    assert_eq!(seen.captured.output, model(b"abcdefghij", Some(5)));

    let exact = capture(Some(5), Fault::None, [&b"abc"[..], b"de", b""]);
    assert_eq!(exact.cuts, 0);
    assert_eq!(exact.captured.output, model(b"abcde", Some(5)));
}

#[test]
fn a_cap_of_zero_keeps_nothing_and_hashes_all() {
    let seen = capture(Some(0), Fault::None, [&b"ab"[..], b"c"]);
    assert!(seen.forwarded.is_empty());
    assert_eq!(seen.cuts, 1);
    assert_eq!(seen.captured.output, model(b"abc", Some(0)));
    assert_eq!(seen.captured.output.kept, U53::ZERO);
    assert_eq!(seen.captured.output.sha256, Hash::of(b"abc"));
}

#[test]
fn text_is_utf8_without_control_characters() {
    for (bytes, is_text) in [
        (&b"plain\tand\nlines"[..], true),
        ("día €".as_bytes(), true),
        (b"carriage\rreturn", false),
        (b"\x1b[31mred", false),
        (b"nul\0", false),
        (b"del\x7f", false),
        ("c1 \u{9b}31m".as_bytes(), false),
        (b"\xff\xfe", false),
        (b"cut \xe2\x82", false),
    ] {
        let output = capture(None, Fault::None, [bytes]).captured.output;
        assert_eq!(output.text.is_some(), is_text, "{bytes:?}");
        assert_eq!(output.base64.is_some(), !is_text, "{bytes:?}");
        assert_eq!(output, model(bytes, None));
    }
}

#[test]
fn a_character_split_between_chunks_stays_text_and_one_split_by_the_cap_does_not() {
    let euro = "€".as_bytes();
    let seen = capture(None, Fault::None, euro.chunks(1));
    assert_eq!(seen.captured.output.text.as_deref(), Some("€"));
    let cut = capture(Some(2), Fault::None, euro.chunks(1));
    assert_eq!(cut.captured.output, model(euro, Some(2)));
    assert!(cut.captured.output.base64.is_some());
}

#[test]
fn a_lost_blob_costs_the_blob_alone_and_is_said() {
    let bytes: Vec<u8> = (0..20_000u32).map(|i| b'a' + (i % 26) as u8).collect();
    for fault in [
        Fault::Open,
        Fault::WritePast(0),
        Fault::WritePast(4096),
        Fault::WritePast(10_000),
        Fault::Commit,
        Fault::WrongName,
    ] {
        let seen = capture(Some(15_000), fault, bytes.chunks(777));
        let Captured {
            output,
            unmeasured,
            loss,
            remembered,
        } = seen.captured;
        assert!(remembered.is_empty());
        let whole = model(&bytes, Some(15_000));
        assert_eq!((output.bytes, output.sha256), (whole.bytes, whole.sha256));
        assert_eq!(output.kept, U53::from(4096), "{fault:?}");
        assert_eq!(output.text.unwrap().as_bytes(), &bytes[..4096]);
        assert_eq!((output.blob, output.base64), (None, None));
        assert_eq!(seen.forwarded, &bytes[..15_000]);
        assert_eq!(seen.opened, 1);
        assert_eq!(
            unmeasured,
            Some(Unmeasured {
                field: "stdout".into(),
                reason: BLOB_NOT_KEPT.into(),
            })
        );
        match (fault, loss.unwrap()) {
            (Fault::Open, SpoolError::Open { .. })
            | (Fault::Commit, SpoolError::Commit { .. })
            | (Fault::WrongName, SpoolError::Differs { .. }) => {}
            (Fault::WritePast(limit), SpoolError::Write { after, .. }) => {
                assert!(after <= limit as u64, "{after} of {limit}");
            }
            (fault, loss) => panic!("{fault:?} gave {loss}"),
        }
    }
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..9000),
        "[a-zé€\u{10348}\t\n ]{0,3000}".prop_map(String::into_bytes),
        "[a-z]{4090,4102}".prop_map(String::into_bytes),
    ]
}

proptest! {
    #[test]
    fn any_chunking_gives_the_output_of_the_whole(
        bytes in bytes(),
        cap in proptest::option::of(prop_oneof![0u64..9000, 4090u64..4102]),
        sizes in proptest::collection::vec(0usize..2000, 1..40),
    ) {
        let mut rest = bytes.as_slice();
        let mut chunks = Vec::new();
        for size in sizes {
            let (chunk, left) = rest.split_at(size.min(rest.len()));
            chunks.push(chunk);
            rest = left;
        }
        chunks.push(rest);

        let expected = model(&bytes, cap);
        let kept = expected.kept.value() as usize;
        let seen = capture(cap, Fault::None, chunks);
        prop_assert_eq!(&seen.captured.output, &expected);
        prop_assert!(seen.captured.unmeasured.is_none());
        prop_assert_eq!(&seen.forwarded, &bytes[..kept]);
        prop_assert_eq!(seen.cuts, usize::from(kept < bytes.len()));
        prop_assert_eq!(seen.opened, usize::from(kept > INLINE_BYTES));
        prop_assert_eq!(
            seen.committed,
            if kept > INLINE_BYTES { vec![bytes[..kept].to_vec()] } else { vec![] }
        );
    }
}
