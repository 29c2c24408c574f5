use super::*;

#[test]
fn a_long_detail_is_cut_between_characters() {
    assert_eq!(bounded("short", 100), "short");
    let cut = bounded(&"é".repeat(100), 101);
    assert!(cut.len() <= 101, "{}", cut.len());
    assert_eq!(cut, format!("{}\n(148 more bytes are left out)", "é".repeat(26)));
}

#[test]
fn the_name_of_a_kind_reads_back() {
    for kind in AuditKind::ALL {
        assert_eq!(AuditKind::parse(kind.as_str()), Some(kind));
    }
    assert_eq!(AuditKind::parse("other"), None);
}

#[test]
fn a_note_is_news_once() {
    let mut state = FileState::default();
    assert!(state.take(FileNote::Refused([1; 32])));
    assert!(!state.take(FileNote::Refused([1; 32])));
    assert!(state.take(FileNote::Accepted([2; 32])));
    assert_eq!(state, FileState { accepted: Some([2; 32]), refused: None, drift: None });
    assert!(state.take(FileNote::Refused([1; 32])), "bad again after good is news");
}
