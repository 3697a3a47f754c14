use super::*;
use crate::parameters::of;

#[test]
fn what_would_pass_the_cap_is_not_tried() {
    let more = (MOST_BYTES / 2 + 1).to_string();
    for attack in [touch, children, tmpfs, disk] {
        let seen = attack(&of(&[("bytes", &more)]));
        assert_eq!(seen.claim, Claim::Error, "{seen:?}");
        assert!(seen.detail.starts_with("instrument-missing: "), "{seen:?}");
    }
    for attack in [forks, threads] {
        let seen = attack(&of(&[("limit", "121")]));
        assert!(seen.detail.contains("the cap is 128"), "{seen:?}");
    }
    assert_eq!(cpu(&of(&[("millis", "8000")])).claim, Claim::Error);
}

#[test]
fn what_fills_memory_cannot_be_had_for_less() {
    let mut file = tempfile::tempfile().unwrap();
    write_until(&mut file, (1 << 20) + 17).unwrap();
    assert_eq!(file.metadata().unwrap().len(), (1 << 20) + 17);
    assert_eq!(fill(1 << 16, 7, || {}), 0);
}
