use notify::event::{CreateKind, DataChange, Flag, ModifyKind, RenameMode};

use super::*;

#[track_caller]
fn check(kind: EventKind, path: &str, expected: bool) {
    let event = Event::new(kind).add_path(PathBuf::from(path));
    assert_eq!(concerns(&event, Some(Path::new("rules.conf"))), expected, "{kind:?} {path}");
}

#[test]
fn only_what_may_concern_the_rules_wakes() {
    let modified = EventKind::Modify(ModifyKind::Data(DataChange::Any));
    let renamed = EventKind::Modify(ModifyKind::Name(RenameMode::To));
    let created = EventKind::Create(CreateKind::File);
    let removed = EventKind::Remove(RemoveKind::File);
    for kind in [modified, renamed, created, removed] {
        check(kind, "/etc/tidegate/rules.conf", true);
        check(kind, "/etc/tidegate/more.yaml", true);
        check(kind, "/etc/tidegate/..data", true);
        check(kind, "/etc/tidegate/tidegate.db", false);
        check(kind, "/etc/tidegate/tidegate.db-wal", false);
        check(kind, "/etc/tidegate/.rules.conf.swp", false);
    }
}

#[test]
fn reading_the_file_does_not_wake() {
    for access in [AccessKind::Open(AccessMode::Any), AccessKind::Read, AccessKind::Close(AccessMode::Read)] {
        check(EventKind::Access(access), "/etc/tidegate/rules.conf", false);
    }
    check(EventKind::Access(AccessKind::Close(AccessMode::Write)), "/etc/tidegate/rules.conf", true);
}

#[test]
fn a_directory_that_goes_away_wakes_and_loses_its_watch() {
    for kind in [RemoveKind::Folder, RemoveKind::Any, RemoveKind::Other] {
        check(EventKind::Remove(kind), "/etc/tidegate", true);
        assert!(removes_directory(&Event::new(EventKind::Remove(kind))));
    }
    assert!(!removes_directory(&Event::new(EventKind::Remove(RemoveKind::File))));
}

#[test]
fn an_overflow_of_events_wakes() {
    let event = Event::new(EventKind::Other).set_flag(Flag::Rescan);
    assert!(concerns(&event, None));
    assert!(removes_directory(&event), "watches are set again, in case one was lost");
}
