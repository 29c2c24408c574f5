use super::*;

/// How many interim responses are counted in a stream, whatever its pieces are.
fn counted(stream: &str) -> u32 {
    let in_pieces = |length| {
        let awaited = Awaited::default();
        let mut counter = Counter::new(awaited.clone(), 64 * 1024);
        awaited.set();
        for piece in stream.as_bytes().chunks(length) {
            counter.read(piece).unwrap();
        }
        counter.count
    };
    let counts: Vec<u32> = [1, 2, 3, 7, 11, 12, 13, 1000].into_iter().map(in_pieces).collect();
    assert!(counts.iter().all(|count| *count == counts[0]), "{stream:?}: {counts:?}");
    counts[0]
}

#[test]
fn interim_responses_are_counted_and_nothing_else() {
    const HINTS: &str = "HTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\n\r\n";
    const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    for (stream, expected) in [
        (String::new(), 0),
        (OK.to_owned(), 0),
        (format!("{HINTS}{OK}"), 1),
        (format!("\r\n\r\n{HINTS}HTTP/1.1 100 Continue\n\n\r\n{OK}"), 2),
        (HINTS.repeat(100) + OK, 100),
        // The answer's own body may look like anything.
        (format!("{HINTS}HTTP/1.1 200 OK\r\n\r\n{}", HINTS.repeat(200)), 1),
        ("HTTP/1.1 101 Switching Protocols\r\n\r\n".to_owned() + &HINTS.repeat(200), 0),
        ("HTTP/1.1 110 x\r\n\r\nHTTP/1.1 111 x\r\n\r\nHTTP/1.0 121 x\r\n\r\n".to_owned(), 3),
        ("I am no HTTP server\r\n\r\n".to_owned(), 0),
    ] {
        assert_eq!(counted(&stream), expected, "{stream:?}");
    }
}

#[test]
fn one_too_many_fails_and_the_next_answer_is_counted_anew() {
    let awaited = Awaited::default();
    let mut counter = Counter::new(awaited.clone(), 64 * 1024);
    let interim = "HTTP/1.1 100 Continue\r\n\r\n";
    for _ in 0..3 {
        awaited.set();
        counter.read(interim.repeat(100).as_bytes()).unwrap();
        counter.read(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
    }
    awaited.set();
    let error = counter.read(interim.repeat(101).as_bytes()).unwrap_err();
    assert_eq!(error.to_string(), "more than 100 interim responses (1xx) before the answer");
}

#[test]
fn interim_responses_are_together_no_longer_than_one_head() {
    let interim = |length: usize| format!("HTTP/1.1 103 x\r\nX: {}\r\n\r\n", "x".repeat(length - 23));
    let answer = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(5000));
    assert_eq!(interim(500).len(), 500);
    let error = "more than 1000 bytes of interim responses (1xx) before the answer";
    // (what comes in, whether it is read)
    for (stream, fits) in [
        (interim(1000) + &answer, true),
        (interim(500).repeat(2) + &answer, true),
        (interim(500) + &interim(501) + &answer, false),
        (interim(2000), false),
        ("\r\n".repeat(2000), false),
        (answer.clone(), true),
    ] {
        for length in [1, 7, 999, 10_000] {
            let awaited = Awaited::default();
            let mut counter = Counter::new(awaited.clone(), 1000);
            // Each request anew.
            for _ in 0..2 {
                awaited.set();
                let read = stream.as_bytes().chunks(length).try_for_each(|piece| counter.read(piece));
                assert_eq!(
                    read.map_err(|error| error.to_string()).err().as_deref(),
                    (!fits).then_some(error)
                );
            }
        }
    }
}
