use super::*;

#[test]
fn a_server_starts_and_answers() {
    let redis = Redis::start();
    assert_eq!(redis.command(&["SET", "a", "1"]), Reply::Status("OK".to_owned()));
    let mut session = Session::open(redis.address());
    assert_eq!(session.command(&["INCR", "a"]).number(), 2);
    assert_eq!(session.command(&["GET", "none"]), Reply::Nothing);
    assert_eq!(session.command(&["MGET", "a", "none"]).list().len(), 2);
}

#[test]
fn a_restarted_server_is_empty_unless_it_is_persistent() {
    for (options, kept) in [(RedisOptions::new(), false), (RedisOptions::new().persistent(), true)] {
        let mut redis = Redis::with(options);
        let address = redis.address();
        redis.command(&["SET", "a", "1"]);
        redis.kill();
        redis.restart();
        assert_eq!(redis.address(), address);
        assert_eq!(redis.command(&["EXISTS", "a"]).number(), i64::from(kept));
        redis.restart_empty();
        assert_eq!(redis.command(&["EXISTS", "a"]).number(), 0);
    }
}

#[test]
fn a_paused_server_answers_after_it_goes_on() {
    let redis = Redis::start();
    let mut session = Session::open(redis.address());
    redis.pause();
    let (sent, answered) = std::sync::mpsc::channel();
    let waiting = std::thread::spawn(move || sent.send(session.command(&["PING"])));
    let silence = std::time::Duration::from_millis(50);
    assert!(answered.recv_timeout(silence).is_err(), "a paused server answered");
    redis.resume();
    assert_eq!(answered.recv_timeout(crate::DEADLINE).unwrap(), Reply::Status("PONG".to_owned()));
    waiting.join().unwrap().unwrap();
}
