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

#[test]
fn users_may_do_what_their_rules_say() {
    let options = RedisOptions::new().password("pa-ss").user("ana on >se-cret ~own:* +get +set");
    let redis = Redis::with(options);
    let mut session = Session::open(redis.address());
    check(&mut session, &["GET", "own:a"], "NOAUTH");
    check(&mut session, &["AUTH", "wrong"], "WRONGPASS");
    assert!(session.command(&["AUTH", "pa-ss"]).is_ok());
    assert!(session.command(&["AUTH", "ana", "se-cret"]).is_ok());
    assert!(session.command(&["SET", "own:a", "1"]).is_ok());
    check(&mut session, &["SET", "other", "1"], "NOPERM");
    check(&mut session, &["DEL", "own:a"], "NOPERM");
}

#[track_caller]
fn check(session: &mut Session, words: &[&str], code: &str) {
    let reply = session.command(words);
    assert!(matches!(&reply, Reply::Error(said) if said.starts_with(code)), "{words:?}: {reply:?}");
}

#[test]
fn a_server_with_tls_shows_a_certificate_for_its_address() {
    let redis = Redis::with(RedisOptions::new().tls());
    assert!(redis.url().starts_with("rediss://127.0.0.1:"));
    let mut client = Command::new("openssl");
    let address = redis.address().to_string();
    client.args(["s_client", "-connect", &address, "-CAfile"]).arg(redis.folder().join(tls::CA));
    client.args(["-verify_return_error", "-verify_ip", "127.0.0.1"]).stdin(std::process::Stdio::null());
    let output = client.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // What is not TLS is not answered.
    let mut plain = Session::open(redis.address());
    assert!(plain.try_command(&["PING"]).is_err());
}

#[test]
fn sentinels_fail_over_when_asked_and_when_the_master_dies() {
    let mut group = Sentinel::start();
    let (first, second) = (group.master().address(), group.replica().address());
    assert!(group.master().command(&["SET", "a", "1"]).is_ok());
    group.failover();
    assert_eq!((group.master().address(), group.replica().address()), (second, first));
    assert_eq!(group.replica().command(&["GET", "a"]).text(), "1");
    group.master().kill();
    group.wait_master(first);
}

#[test]
fn a_slot_moves_while_the_cluster_runs() {
    let mut cluster = Cluster::start();
    let slot = cluster.slot("{key}");
    let from = cluster.owner(slot);
    let to = (from + 1) % 3;
    assert!(cluster.node(from).command(&["SET", "{key}", "1"]).is_ok());
    check(&mut cluster.node(to).session(), &["GET", "{key}"], "MOVED");
    cluster.begin_move(slot, to);
    check(&mut cluster.node(from).session(), &["GET", "{key}:none"], "ASK");
    assert_eq!(cluster.node(from).command(&["GET", "{key}"]).text(), "1");
    cluster.move_keys(slot, to);
    check(&mut cluster.node(from).session(), &["GET", "{key}"], "ASK");
    cluster.finish_move(slot, to);
    assert_eq!(cluster.owner(slot), to);
    assert_eq!(cluster.node(to).command(&["GET", "{key}"]).text(), "1");
    check(&mut cluster.node(from).session(), &["GET", "{key}"], "MOVED");
    cluster.move_slot(slot, from);
    assert_eq!(cluster.node(from).command(&["GET", "{key}"]).text(), "1");
}
