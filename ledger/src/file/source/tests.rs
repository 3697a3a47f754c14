use std::fs;
use std::os::unix::fs::symlink;

use super::*;
use crate::bytes::hash::Hash;
use crate::facts::execution::RunId;

/// A ledger folder with these segments.
fn folder(segments: &[(&str, &[u8])]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let records = folder.path().join("records");
    fs::create_dir(&records).unwrap();
    for (name, bytes) in segments {
        fs::write(records.join(name), bytes).unwrap();
    }
    folder
}

/// Every line's text, and the findings about files.
fn read(path: &Path) -> (Vec<String>, Vec<Finding>) {
    let mut source = Source::open(path).unwrap();
    let mut findings = std::mem::take(&mut source.findings);
    let mut lines = Vec::new();
    while let Some(line) = source.lines.next(&mut |it| findings.push(it)).unwrap() {
        let torn = if line.torn { " torn" } else { "" };
        let text = String::from_utf8(line.bytes.clone()).unwrap();
        let place = line.place();
        lines.push(format!(
            "{}:{} {text}{torn}",
            place.file,
            place.line.unwrap()
        ));
    }
    (lines, findings)
}

fn full(line: &str) -> Vec<u8> {
    format!("{line}\n").repeat(8_192).into_bytes()
}

#[test]
fn segments_are_read_in_order_to_the_last_byte() {
    let folder = folder(&[
        ("00000001.jsonl", b"next\nrest"),
        ("00000000.jsonl", &full("a")),
    ]);
    let (lines, findings) = read(folder.path());
    assert_eq!(findings, []);
    assert_eq!(lines.len(), 8_194);
    assert_eq!(lines[8_191], "records/00000000.jsonl:8192 a");
    assert_eq!(lines[8_192], "records/00000001.jsonl:1 next");
    assert_eq!(lines[8_193], "records/00000001.jsonl:2 rest torn");
}

#[test]
fn an_empty_segment_after_a_full_one_is_what_a_crash_leaves() {
    let folder = folder(&[("00000000.jsonl", &full("a")), ("00000001.jsonl", b"")]);
    assert_eq!(read(folder.path()).1, []);
}

#[test]
fn openings_do_not_count_as_records_of_a_segment() {
    let mut bytes = full("a");
    bytes.splice(0..0, b"{\"open\":{}}\n".iter().copied());
    let folder = folder(&[("00000000.jsonl", &bytes), ("00000001.jsonl", b"b\n")]);
    let (lines, findings) = read(folder.path());
    assert_eq!((lines.len(), findings), (8_194, vec![]));
}

#[test]
fn missing_short_surplus_and_foreign_files_are_unexpected() {
    let surplus = [full("a"), b"a\n".to_vec()].concat();
    let cases: [&[(&str, &[u8])]; 8] = [
        &[("00000001.jsonl", b"a\n")],
        &[("00000000.jsonl", &full("a")), ("00000002.jsonl", b"b\n")],
        &[("00000000.jsonl", b"a\n"), ("00000001.jsonl", b"b\n")],
        &[("00000000.jsonl", b"a\n"), ("00000001.jsonl", b"")],
        &[("00000000.jsonl", &surplus)],
        &[("00000000.jsonl", b"a\n"), ("0.jsonl", b"b\n")],
        &[("00000000.jsonl", b"a\n"), ("00000000.jsonl.bak", b"a\n")],
        &[("00000000.jsonl", b"a\n"), (".hidden", b"")],
    ];
    for case in cases {
        let names: Vec<_> = case.iter().map(|(name, _)| name).collect();
        let folder = folder(case);
        let (_, findings) = read(folder.path());
        assert!(!findings.is_empty(), "{names:?}");
        for finding in findings {
            assert_eq!(finding.code, Code::SegmentUnexpected, "{names:?}");
        }
    }
}

#[test]
fn an_unfinished_line_inside_the_ledger_is_no_torn_tail() {
    let cut = full("a");
    let cut = &cut[..cut.len() - 1];
    let folder = folder(&[("00000000.jsonl", cut), ("00000001.jsonl", b"b\n")]);
    let (lines, findings) = read(folder.path());
    assert_eq!(findings.len(), 1);
    assert!(lines.iter().all(|line| !line.ends_with("torn")));
}

#[test]
fn what_is_no_regular_file_is_foreign_and_never_opened() {
    let real = folder(&[("00000000.jsonl", b"a\n")]);
    let links = folder(&[]);
    let records = links.path().join("records");
    symlink(
        real.path().join("records/00000000.jsonl"),
        records.join("00000000.jsonl"),
    )
    .unwrap();
    let fifo = records.join("00000001.jsonl");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        FileType::Fifo,
        Mode::RUSR | Mode::WUSR,
        0,
    )
    .unwrap();
    fs::create_dir(records.join("00000002.jsonl")).unwrap();
    // Opening the FIFO would wait for a writer for ever.
    let (lines, findings) = read(links.path());
    assert_eq!((lines.len(), findings.len()), (0, 3));

    let moved = tempfile::tempdir().unwrap();
    symlink(real.path().join("records"), moved.path().join("records")).unwrap();
    let (lines, findings) = read(moved.path());
    assert_eq!((lines.len(), findings.len()), (0, 1));
}

#[test]
fn a_stored_checkpoint_behind_a_link_is_not_read() {
    let folder = folder(&[]);
    fs::write(folder.path().join("elsewhere"), "x").unwrap();
    symlink("elsewhere", folder.path().join("checkpoint")).unwrap();
    let source = Source::open(folder.path()).unwrap();
    assert_eq!(source.checkpoint, None);
    assert_eq!(source.findings[0].code, Code::CheckpointInvalid);
}

#[test]
fn what_is_appended_after_opening_is_not_read() {
    let folder = folder(&[("00000000.jsonl", b"a\n")]);
    let segment = folder.path().join("records/00000000.jsonl");
    let mut source = Source::open(folder.path()).unwrap();
    fs::write(segment, "a\nb\nc").unwrap();
    let mut lines = 0;
    while let Some(line) = source.lines.next(&mut |_| panic!("a finding")).unwrap() {
        assert!(!line.torn);
        lines += 1;
    }
    assert_eq!(lines, 1);
}

#[test]
fn a_writer_is_waited_for_and_then_read_without_lock() {
    let folder = folder(&[("00000000.jsonl", b"a\n")]);
    let lock = File::create(folder.path().join("lock")).unwrap();
    lock.lock().unwrap();
    let holder = std::thread::spawn({
        let segment = folder.path().join("records/00000000.jsonl");
        move || {
            fs::write(segment, "a\nb\n").unwrap();
            drop(lock);
        }
    });
    let (lines, findings) = read(folder.path());
    holder.join().unwrap();
    // Either the writer was done, or its lock was waited for: never half of it.
    assert_eq!((lines.len(), findings.len()), (2, 0));

    // A lock that is never given back does not keep a reader out.
    let lock = File::open(folder.path().join("lock")).unwrap();
    lock.lock().unwrap();
    assert_eq!(read(folder.path()).0.len(), 2);
}

#[test]
fn a_path_is_a_ledger_an_emptied_one_or_none() {
    let empty = tempfile::tempdir().unwrap();
    assert!(read(empty.path()).0.is_empty());
    fs::write(empty.path().join("tip"), "").unwrap();
    assert!(read(empty.path()).0.is_empty());
    fs::write(empty.path().join("letter.txt"), "").unwrap();
    assert!(matches!(
        Source::open(empty.path()),
        Err(OpenSourceError::NotALedger { found, .. }) if found == "letter.txt"
    ));
    assert!(matches!(
        Source::open(&empty.path().join("missing")),
        Err(OpenSourceError::NotFound(_))
    ));
}

#[test]
fn blobs_are_looked_at_only_where_there_is_a_folder() {
    let hash = Hash::of(b"x");
    let stream = Source::from_reader("-", Box::new(io::empty())).attachments;
    assert_eq!(stream.blob(&hash, None, 0).unwrap(), BlobState::NotChecked);
    assert_eq!(
        stream.run(&RunId::from_bytes([0; 16])).unwrap(),
        RunState::NotChecked
    );
    let folder = folder(&[]);
    let here = Source::open(folder.path()).unwrap().attachments;
    assert_eq!(here.blob(&hash, None, 0).unwrap(), BlobState::Missing);
    // A linked folder on the way is foreign too.
    let elsewhere = tempfile::tempdir().unwrap();
    symlink(elsewhere.path(), folder.path().join("blobs")).unwrap();
    assert_eq!(here.blob(&hash, None, 0).unwrap(), BlobState::Foreign);
}
