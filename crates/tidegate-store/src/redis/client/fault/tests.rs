use ::redis::{Value, parse_redis_value};

use super::*;

/// The fault of an error that a server sent, without the dash and line end.
fn fault(sent: &str) -> RedisFault {
    let Ok(Value::ServerError(error)) = parse_redis_value(format!("-{sent}\r\n").as_bytes()) else {
        panic!("not an error: {sent}")
    };
    RedisFault::of_server(&error)
}

#[track_caller]
fn check(sent: &str, expected: Option<RefusalCode>) {
    let fault = fault(sent);
    assert_eq!(fault.refusal(), expected, "{fault}");
    assert_eq!(fault.may_have_run(), expected.is_none(), "{fault}");
}

#[test]
fn what_the_server_did_not_carry_out_is_refused() {
    for (sent, code) in [
        ("READONLY You can't write against a read only replica.", RefusalCode::ReadOnly),
        ("OOM command not allowed when used memory > 'maxmemory'.", RefusalCode::OutOfMemory),
        ("NOPERM this user has no permissions to run the 'evalsha' command", RefusalCode::NoPermission),
        ("NOAUTH Authentication required.", RefusalCode::NotSignedIn),
        ("LOADING Redis is loading the dataset in memory", RefusalCode::Loading),
        ("CLUSTERDOWN Hash slot not served", RefusalCode::ClusterDown),
        ("MOVED 1 127.0.0.1:6379", RefusalCode::Moved),
        ("ASK 1 127.0.0.1:6379", RefusalCode::Ask),
        ("TRYAGAIN Multiple keys request during rehashing of slot", RefusalCode::TryAgain),
        ("NOSCRIPT No matching script. Please use EVAL.", RefusalCode::NoScript),
        ("BUSY Redis is busy running a script.", RefusalCode::Busy),
        ("ERR wrong number of arguments for 'evalsha' command", RefusalCode::Other),
        ("NEWCODE something of a later version", RefusalCode::Other),
    ] {
        check(sent, Some(code));
    }
}

#[test]
fn what_fails_inside_a_script_may_be_half_done_but_for_what_is_tested_at_its_first_write() {
    let at = "script: 8f1f, on @user_script:1.";
    check(
        &format!("OOM command not allowed when used memory > 'maxmemory'. {at}"),
        Some(RefusalCode::OutOfMemory),
    );
    check(
        &format!("READONLY You can't write against a read only replica. {at}"),
        Some(RefusalCode::ReadOnly),
    );
    check(&format!("NOPERM this user has no permissions to run the 'del' command {at}"), None);
    check(&format!("WRONGTYPE Operation against a key holding the wrong kind of value {at}"), None);
    check(&format!("ERR user_script:1: attempt to index a nil value {at}"), None);
    let six = "ERR Error running script (call to f_8f1f): @user_script:1: @user_script: 1:";
    check(
        &format!("{six} -OOM command not allowed when used memory > 'maxmemory'."),
        Some(RefusalCode::OutOfMemory),
    );
    check(
        &format!("{six} -READONLY You can't write against a read only replica."),
        Some(RefusalCode::ReadOnly),
    );
    check(&format!("{six} -NOPERM this user has no permissions to run the 'del' command"), None);
    check(&format!("{six} attempt to index a nil value"), None);
}

#[test]
fn messages_are_cut() {
    let long = format!("ERR {}", "ä".repeat(MAX_MESSAGE));
    assert!(fault(&long).to_string().len() < MAX_MESSAGE + 20);
}
