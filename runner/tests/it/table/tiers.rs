//! The weaker tiers of embedded: every cell, as root and as an ordinary user, and the tier in what was recorded.

use std::path::Path;

use ledger::record::Body;

use super::expected::{self, LIMITED};
use super::{Table, compare, whole};
use crate::verifier::verifier;
use crate::world::{World, is_root, no_groups, skip};

/// Worlds of every caller in which a tier is all that there is to be had.
fn worlds(test: &str, tier: &str) -> Vec<World> {
    let mut worlds = vec![World::new()];
    if is_root() {
        worlds.extend(World::of_user(test, &[]));
    }
    let less = |mut world: World| match tier {
        "landlock" => Some(world.without_namespaces()),
        _ => match world.with_masks() {
            Ok(()) => Some(world),
            Err(reason) => {
                skip(test, reason);
                None
            }
        },
    };
    worlds.into_iter().filter_map(less).collect()
}

fn every_cell_is_as_expected(test: &str, tier: &str) {
    for world in worlds(test, tier) {
        let found = world.run("--json doctor").json()["tier"].clone();
        if found != tier {
            skip(test, format!("the tier here is {found}, not {tier}"));
            continue;
        }
        let run = |policy: &Path, suite: &Path| {
            let (policy, suite) = (policy.display(), suite.display());
            world.run(&format!(
                "matrix --json --runtime embedded -P {policy} --suite {suite}"
            ))
        };
        let table = Table::calm(|| whole(&world, |_| {}, run));
        let cells = expected::cells(tier, &table.host, None);
        let mut limited = cells.iter().filter(|(id, _)| expected::is_of(LIMITED, id));
        let expects_limits = limited.all(|(_, cell)| cell.is_declared);
        // No field of the host record says why.
        let left_out = if expects_limits == no_groups(&world).is_none() {
            ""
        } else {
            LIMITED
        };
        compare(tier, &table, None, left_out);
        let declared = table.cells.iter().filter(|(_, cell)| cell.declared);
        let wrong: Vec<_> = declared
            .filter(|(_, cell)| cell.verdict == "false-guarantee")
            .map(|(id, _)| id)
            .collect();
        assert_eq!(wrong, [""; 0], "{tier}");
        // Whatever isolates was in this tier.
        for (record, _) in &world.evidence().records {
            if let Body::Start(start) = &record.body
                && start.runtime.id == "embedded"
                && !start.controls.declared.is_empty()
            {
                assert_eq!(start.runtime.tier.as_deref(), Some(tier));
            }
        }
        if let Some(verifier) = verifier() {
            let ledger = world.ledger();
            let mut command = std::process::Command::new(verifier);
            let output = command.arg("--json").arg(ledger).output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(!text.contains("\"matrix-mismatch\""), "{text}");
            assert!(!text.contains("\"false-guarantee\""), "{text}");
        }
    }
}

#[test]
fn without_a_fresh_proc_every_cell_is_as_expected() {
    every_cell_is_as_expected("without_a_fresh_proc_every_cell_is_as_expected", "no-proc");
}

#[test]
fn without_namespaces_every_cell_is_as_expected() {
    every_cell_is_as_expected("without_namespaces_every_cell_is_as_expected", "landlock");
}
