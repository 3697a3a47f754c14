use super::*;

#[test]
fn nothing_is_made_where_nothing_is_limited() {
    assert!(
        Limits {
            beside: 1,
            ..Limits::default()
        }
        .is_empty()
    );
    let (group, outcomes) = Group::make(&Ways::find().unwrap(), &Limits::default());
    assert!(group.is_none() && !outcomes.any_failed());
}

#[test]
fn a_place_that_is_gone_loses_its_limits_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let ways = Ways {
        places: vec![Place {
            version: 2,
            parent: folder.path().join("gone"),
            name: "/gone".to_owned(),
            root: folder.path().to_owned(),
            controllers: String::new(),
            resources: Resource::ALL.to_vec(),
        }],
        ..Ways::default()
    };
    let limits = Limits {
        tasks: Some(4),
        ..Limits::default()
    };
    let (group, outcomes) = Group::make(&ways, &limits);
    assert!(group.is_none());
    let lost = |resource: Resource| matches!(outcomes.of(resource.mechanism()), super::super::Outcome::Failed(failure) if failure.error == "ENOENT");
    assert!(lost(Resource::Tasks) && !lost(Resource::Memory));
}

#[test]
fn who_is_not_in_the_group_is_under_no_limit_of_it() {
    let mut ways = Ways::find().unwrap();
    // The manager would move the test itself.
    ways.manager = None;
    let limits = Limits {
        tasks: Some(4),
        ..Limits::default()
    };
    let (group, _) = Group::make(&ways, &limits);
    let Some(group) = group else {
        return eprintln!("SKIPPED: this host allows no groups");
    };
    assert_eq!(group.kept(Resource::Tasks).unwrap().value, "4 tasks");
    let mut outcomes = Outcomes::default();
    let own = std::process::id().cast_signed();
    group.confirm(own, &mut outcomes);
    assert!(
        matches!(outcomes.of("group-pids"), super::super::Outcome::Failed(failure) if failure.error == "no-effect"),
        "{outcomes:?}"
    );
    let folders: Vec<_> = group
        .leaves
        .iter()
        .map(|leaf| leaf.folder.clone())
        .collect();
    assert!(folders.iter().all(|folder| folder.is_dir()));
    group.remove().unwrap();
    assert!(!folders.iter().any(|folder| folder.exists()));
}

#[test]
fn files_are_named_as_a_limit_names_them() {
    assert_eq!(Resource::Cpu.file(2), "cgroup-v2 cpu.max");
    assert_eq!(Resource::Memory.file(1), "cgroup-v1 memory.limit_in_bytes");
}
