use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use super::*;

fn sources(path: &Path) -> Vec<(String, String)> {
    match read(path) {
        Seen::Texts(snapshot) => snapshot.sources,
        other => panic!("{other:?}"),
    }
}

fn unreadable(path: &Path) -> String {
    match read(path) {
        Seen::Unreadable(why) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_file_is_one_text_under_its_path() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("anything.txt");
    fs::write(&path, "a: 1\n").unwrap();
    assert_eq!(sources(&path), [(path.display().to_string(), "a: 1\n".to_owned())]);
}

#[test]
fn a_directory_is_its_visible_rule_files_sorted() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    for name in ["b.yaml", "a.yml", "c.json", ".hidden.yaml", "notes.txt", "b.yaml~", "tidegate.db", "noext"]
    {
        fs::write(at(name), name).unwrap();
    }
    fs::create_dir(at("sub.yaml")).unwrap();
    let names: Vec<String> = sources(dir.path()).into_iter().map(|(_, text)| text).collect();
    assert_eq!(names, ["a.yml", "b.yaml", "c.json"]);
}

#[test]
fn what_is_not_there_is_missing_and_not_a_fault() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(read(&dir.path().join("rules.yaml")), Seen::Missing);
    assert_eq!(read(dir.path()), Seen::Missing, "an empty directory");
    symlink("nowhere", dir.path().join("dangling")).unwrap();
    assert_eq!(read(&dir.path().join("dangling")), Seen::Missing);
}

#[test]
fn a_file_of_a_directory_that_cannot_be_read_is_never_left_out() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.yaml"), "a").unwrap();
    symlink("nowhere", dir.path().join("b.yaml")).unwrap();
    assert!(unreadable(dir.path()).contains("b.yaml: cannot be read: "));
}

#[test]
fn what_cannot_be_read_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    symlink(at("loop"), at("loop")).unwrap();
    assert!(unreadable(&at("loop")).contains("loop: cannot be read: "));

    fs::write(at("latin1.yaml"), b"a: caf\xe9\n").unwrap();
    assert!(unreadable(&at("latin1.yaml")).ends_with("byte 6 is not UTF-8: save the file as UTF-8"));

    assert!(unreadable(Path::new("/dev/null")).contains("is not a file"));

    fs::write(at("closed.yaml"), "a").unwrap();
    fs::set_permissions(at("closed.yaml"), fs::Permissions::from_mode(0o0)).unwrap();
    // Who may read everything reads this as well.
    match (File::open(at("closed.yaml")), read(&at("closed.yaml"))) {
        (Ok(_), Seen::Texts(_)) => {}
        (Err(error), Seen::Unreadable(why)) => assert!(why.ends_with(&format!("cannot be read: {error}"))),
        (opened, seen) => panic!("{opened:?} {seen:?}"),
    }
}

#[test]
fn the_bound_is_on_all_files_together() {
    let dir = tempfile::tempdir().unwrap();
    let half = " ".repeat(MAX_BYTES / 2);
    fs::write(dir.path().join("a.yaml"), &half).unwrap();
    fs::write(dir.path().join("b.yaml"), &half).unwrap();
    assert_eq!(sources(dir.path()).len(), 2, "exactly the bound");
    fs::write(dir.path().join("c.yaml"), " ").unwrap();
    assert!(unreadable(dir.path()).contains("c.yaml: more than 4194304 bytes of rules"));
}

#[test]
fn too_many_files_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    for at in 0..=MAX_FILES {
        fs::write(dir.path().join(format!("{at}.yaml")), "").unwrap();
    }
    assert!(unreadable(dir.path()).contains("holds more than 256 rule files"));
}

#[test]
fn the_content_changes_with_any_name_or_text() {
    let all: [&[(&str, &str)]; 6] = [
        &[("a", "x"), ("b", "y")],
        &[("a", "xb"), ("", "y")],
        &[("ax", ""), ("b", "y")],
        &[("a", "x")],
        &[("b", "y"), ("a", "x")],
        &[("a", "x"), ("b", "z")],
    ];
    for (at, one) in all.iter().enumerate() {
        for (other_at, other) in all.iter().enumerate() {
            assert_eq!(hash(b"", one) == hash(b"", other), at == other_at, "{one:?} {other:?}");
        }
    }
    let missing = Seen::Missing.id();
    assert_ne!(missing, Seen::Unreadable(String::new()).id());
    assert_ne!(Seen::Unreadable("a".to_owned()).id(), Seen::Unreadable("b".to_owned()).id());
}
