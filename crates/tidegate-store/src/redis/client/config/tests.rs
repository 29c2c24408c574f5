use super::*;

#[track_caller]
fn check(url: &str, shown: &str) {
    let config = RedisConfig::from_url(url).unwrap();
    assert_eq!(config.to_string(), shown);
}

#[track_caller]
fn check_fault(url: &str, expected: &RedisConfigError) {
    assert_eq!(RedisConfig::from_url(url).unwrap_err(), *expected, "{url}");
}

#[test]
fn each_form_is_read() {
    check("redis://localhost", "redis://localhost:6379");
    check("redis://10.0.0.1:7000/3", "redis://10.0.0.1:7000/3");
    check("rediss://ana:pw@[::1]:7000/", "rediss://ana@[::1]:7000");
    check("redis://:pw@[::1]", "redis://[::1]:6379");
    check("redis+sentinel://a,b:7000/tide", "redis+sentinel://a:26379,b:7000/tide");
    check("rediss+sentinel://ana:pw@a/tide/2", "rediss+sentinel://ana@a:26379/tide/2");
    check("redis+cluster://a:1,b:2,c", "redis+cluster://a:1,b:2,c:6379");
    check(" rediss+cluster://a \n", "rediss+cluster://a:6379");
}

#[test]
fn users_and_passwords_are_decoded() {
    for (url, user, password) in [
        ("redis://a", None, None),
        ("redis://:p%40ss%2Fword@a", None, Some("p@ss/word")),
        ("redis://ana@a", Some("ana"), None),
        ("redis://a%3Ana:p:w@a", Some("a:na"), Some("p:w")),
        ("redis://ana:p@w@a", Some("ana"), Some("p@w")),
        ("redis://ana:@a", Some("ana"), Some("")),
    ] {
        let login = RedisConfig::from_url(url).unwrap().login;
        assert_eq!((login.user.as_deref(), login.password.as_deref()), (user, password), "{url}");
    }
    let config = RedisConfig::from_url("redis://:old@a").unwrap().with_password("new").with_user("ana");
    assert_eq!(config.login.password.as_deref(), Some("new"));
    assert_eq!(config.to_string(), "redis://ana@a:6379");
}

#[test]
fn faults_say_how_to_mend_them_and_show_no_password() {
    for (url, fault) in [
        ("localhost:6379", RedisConfigError::Scheme),
        ("http://:hidden@a", RedisConfigError::Scheme),
        ("redis+unix://:hidden@a", RedisConfigError::Scheme),
        ("redis://", RedisConfigError::Host),
        ("redis://:hidden@", RedisConfigError::Host),
        ("redis+cluster://:hidden@a,,b", RedisConfigError::Host),
        ("redis://:hidden@a,b", RedisConfigError::TooManyHosts),
        ("redis://:hid/den@a", RedisConfigError::Host),
        ("redis://ana:hid/den@a", RedisConfigError::Port),
        ("redis://:hidden@a:0", RedisConfigError::Port),
        ("redis://:hidden@a:65536", RedisConfigError::Port),
        ("redis://:hidden@[::1]x", RedisConfigError::Port),
        ("redis://:hidden%ff@a", RedisConfigError::Login),
        ("redis://:hidden@a/x", RedisConfigError::Path),
        ("redis://:hidden@a?db=1", RedisConfigError::Path),
        ("redis+cluster://:hidden@a/1", RedisConfigError::Path),
        ("redis+sentinel://:hidden@a", RedisConfigError::MasterName),
    ] {
        check_fault(url, &fault);
        assert!(!fault.to_string().contains("hid"), "{fault}");
    }
}

#[test]
fn nothing_prints_a_password() {
    let config = RedisConfig::from_url("redis+sentinel://ana:hidden@a/tide")
        .unwrap()
        .with_sentinel_login(None, "hidden")
        .with_certificate(b"hidden".as_slice(), b"hidden".as_slice());
    assert!(!format!("{config} {config:?} {config:#?}").contains("hidden"));
    assert_eq!(config.login.redact("hidden in a message"), "<password> in a message");
}

#[test]
fn timeouts_are_bounded() {
    let config = || RedisConfig::from_url("redis://a").unwrap();
    assert_eq!(config().timeout(), Duration::from_millis(50));
    for wrong in [Duration::ZERO, Duration::from_secs(61)] {
        assert_eq!(config().with_timeout(wrong).unwrap_err(), RedisConfigError::Timeout);
        assert_eq!(config().with_connect_timeout(wrong).unwrap_err(), RedisConfigError::Timeout);
    }
}
