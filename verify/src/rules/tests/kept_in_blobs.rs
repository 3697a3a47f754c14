//! Lines, cells and suites that stand in blobs.

use ledger::bytes::canon::to_canonical;
use ledger::facts::matrix::Cell;
use ledger::facts::suite::Arm;

use super::matrices::{MISMATCH, only, shot, told, with_cells};
use super::measured::{Met, Scene, suite};
use super::*;

#[test]
fn lines_and_cells_in_blobs_count_as_well() {
    let mut scene = Scene::new();
    let cells = scene.measure("embedded", true, Met::Refusal);
    let list = |scene: &Scene, cells: &[Cell]| {
        let blob = scene.maker.blob(&to_canonical(cells).unwrap());
        let count = U53::saturating(cells.len() as u64);
        List::Blob(BlobList { blob, count })
    };
    let mut matrix = scene.matrix(vec![]);
    matrix.cells = list(&scene, &cells);
    scene.write_matrix(matrix);
    assert_eq!(told(&scene), (vec![], 0));
    let mut scene = Scene::new();
    let mut cells = scene.measure("embedded", true, Met::Refusal);
    cells[0].declared = false;
    let mut matrix = scene.matrix(vec![]);
    matrix.cells = list(&scene, &cells);
    scene.write_matrix(matrix);
    only(&scene, MISMATCH);
    // The lines of a run.
    for (text, expected) in [("", vec![]), ("x", vec![Code::MatrixMismatch])] {
        let scene = with_cells(|scene, cells| {
            let shot = shot(Arm::Run, true, Met::Refusal);
            let start = scene.start("embedded", &[shot.control]);
            let start = scene.maker.start(start);
            let mut run = scene.probe(start, &shot);
            let List::Inline(lines) = &run.lines else {
                panic!("inline")
            };
            let lines = [format!("{text}{}", lines[0]), "noise".to_owned()];
            let blob = scene.maker.blob(&to_canonical(&lines[..]).unwrap());
            let count = U53::from(2_u32);
            run.lines = List::Blob(BlobList { blob, count });
            cells[0].run = Some(U53::from(scene.record(run)));
        });
        let (mut codes, _) = told(&scene);
        codes.retain(|it| it.class() == ledger::finding::Class::Invalid);
        assert_eq!(codes, expected);
    }
}

#[test]
fn a_suite_that_is_none_or_not_here_judges_nothing() {
    let good = to_canonical(&suite()).unwrap();
    let text = String::from_utf8(good).unwrap();
    let no_denial = text.replacen(r#""denied":["EPERM"]"#, r#""denied":[]"#, 1);
    for bytes in ["{}".to_owned(), format!("{text} "), no_denial] {
        let mut scene = Scene::new();
        scene.suite = scene.maker.blob(bytes.as_bytes());
        scene.measured("embedded", true, Met::Refusal);
        only(&scene, (Code::BlobMismatch, 10));
    }
    let mut scene = Scene::new();
    scene.suite = Hash::of(b"nowhere");
    scene.measured("embedded", true, Met::Refusal);
    only(&scene, (Code::BlobMissing, 11));
    // From a stream there are no blobs: what is stored is not judged, and a bad word is believed.
    for (met, expected) in [
        (Met::Refusal, (vec![], 0)),
        (Met::WayOut, (vec![Code::FalseGuarantee], 12)),
    ] {
        let mut scene = Scene::new();
        scene.measured("embedded", true, met);
        let lines = std::io::Cursor::new(scene.maker.lines.clone());
        let mut stream = Source::from_reader("-", Box::new(lines));
        let result = verify(&mut stream, Demands::default()).unwrap();
        let status = result.checks.iter().find(|it| it.id == "matrices").unwrap();
        assert_eq!(status.status, CheckStatus::NotChecked);
        let codes = result.findings.iter().map(|it| it.code);
        let mut codes: Vec<_> = codes
            .filter(|code| code.class() != ledger::finding::Class::Observation)
            .collect();
        codes.dedup();
        assert_eq!((codes, result.exit_code), expected);
    }
}
