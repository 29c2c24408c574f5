use super::*;

#[test]
fn a_flood_of_requests_writes_a_bounded_number_of_lines_and_hides_no_warning() {
    let bound = Bound { level: LevelFilter::INFO, lines: Arc::default() };
    let written = (0..LINES + 7).filter(|_| bound.admits(Level::INFO, REQUESTS)).count();
    assert_eq!(written, LINES as usize);
    assert!(bound.admits(Level::WARN, REQUESTS));
    assert!(bound.admits(Level::INFO, "tidegate::rules"));
    assert_eq!(bound.lines.next_period(), Some(7));
    assert!(bound.admits(Level::INFO, REQUESTS));
    assert_eq!(bound.lines.next_period(), None);
}

#[test]
fn only_what_decides_about_requests_is_bounded() {
    // The module's path is the target of its lines.
    let source = include_str!("../../../../tidegate/src/event.rs");
    assert!(source.contains("tracing::info!"), "the lines moved: REQUESTS must follow them");
}
