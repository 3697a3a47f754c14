//! Blobs, and lists in blobs.

use super::*;

#[test]
fn blobs_are_what_records_say() {
    let with_output = |size: u32| {
        let mut maker = Maker::new();
        let blob = maker.blob(b"12345678");
        let start = maker.start(maker.plain_start());
        let mut end = execution(start, Verdict::AsRequested);
        end.result.stdout = output(size, Some(blob));
        maker.end(end);
        (maker, blob)
    };
    assert_eq!(with_output(8).0.told(), (vec![], 0));
    let mismatch = (vec![Code::BlobMismatch], 10);
    assert_eq!(with_output(9).0.told(), mismatch);
    let (maker, blob) = with_output(8);
    fs::write(maker.blob_path(&blob), "1234567x").unwrap();
    assert_eq!(maker.told(), mismatch);
    fs::remove_file(maker.blob_path(&blob)).unwrap();
    assert_eq!(maker.told(), (vec![Code::BlobMissing], 11));
    // The right bytes behind a link are not looked at.
    let elsewhere = maker.folder.path().join("elsewhere");
    fs::write(&elsewhere, "12345678").unwrap();
    std::os::unix::fs::symlink(&elsewhere, maker.blob_path(&blob)).unwrap();
    assert_eq!(maker.told(), mismatch);
}

#[test]
fn a_list_in_a_blob_has_as_many_items_as_the_record_says() {
    for (bytes, count, good) in [
        (&br#"["a","b"]"#[..], 2, true),
        (br#"["a","b"]"#, 3, false),
        (br#"{"a":1}"#, 1, false),
        (br#"["a"] x"#, 1, false),
        (br#"["a", "b"]"#, 2, false),
        (
            br#"["a","b"]
"#,
            2,
            false,
        ),
        (br#"["\u0061","b"]"#, 2, false),
        (br#"[["a"],"b"]"#, 2, false),
        (br#"[1,"b"]"#, 2, false),
        (br#"["a","b""#, 2, false),
        (b"[]", 0, true),
        (b"[ ]", 0, false),
        (
            format!(r#"["{}"]"#, "a".repeat(1 << 19)).as_bytes(),
            1,
            true,
        ),
        (
            format!(r#"["{}"]"#, "a".repeat(1 << 21)).as_bytes(),
            1,
            false,
        ),
    ] {
        let mut maker = Maker::new();
        let blob = maker.blob(bytes);
        let mut begun = maker.plain_start();
        begun.workload.argv = Sealable::Clear(List::Blob(BlobList {
            blob,
            count: U53::from(count),
        }));
        let start = maker.start(begun);
        maker.end(execution(start, Verdict::AsRequested));
        let expected = if good {
            (vec![], 0)
        } else {
            (vec![Code::BlobMismatch], 10)
        };
        let start = String::from_utf8_lossy(&bytes[..bytes.len().min(80)]);
        assert_eq!(maker.told(), expected, "{start}");
    }
}
