use super::*;

fn asked() -> Address {
    Address::new("10.0.0.9", 1)
}

#[track_caller]
fn check_redirection(message: &str, expected: Option<&str>) {
    let found = redirection(message, &asked()).map(|address| address.to_string());
    assert_eq!(found.as_deref(), expected);
}

#[test]
fn redirections_name_a_node() {
    check_redirection("MOVED 3999 127.0.0.1:6381", Some("127.0.0.1:6381"));
    check_redirection("ASK 3999 node.example:6381", Some("node.example:6381"));
    check_redirection("MOVED 3999 2001:db8::1:6381", Some("[2001:db8::1]:6381"));
    check_redirection("MOVED 3999 :6381", Some("10.0.0.9:6381"));
    check_redirection("MOVED 3999", None);
    check_redirection("MOVED 3999 127.0.0.1:x", None);
}

fn range(first: i64, last: i64, host: &str, port: i64) -> Value {
    let node = Value::Array(vec![Value::BulkString(host.into()), Value::Int(port)]);
    Value::Array(vec![Value::Int(first), Value::Int(last), node])
}

#[test]
fn maps_are_read() {
    let ranges = vec![range(0, 99, "a", 1), range(200, 16_383, "", 2), range(100, 100, "a", 1)];
    let map = read_map(&Value::Array(ranges), &asked()).unwrap();
    let master = |slot| map.master(slot).map(Address::to_string);
    assert_eq!(master(0).as_deref(), Some("a:1"));
    assert_eq!(master(100).as_deref(), Some("a:1"));
    assert_eq!(master(101), None);
    assert_eq!(master(16_383).as_deref(), Some("10.0.0.9:2"));
    assert_eq!(master(16_384), None);
    assert_eq!(map.masters.len(), 2);
}

#[test]
fn odd_maps_are_no_maps() {
    for odd in [
        Value::Nil,
        Value::Array(vec![]),
        Value::Array(vec![Value::Int(1)]),
        Value::Array(vec![range(0, 16_384, "a", 1)]),
        Value::Array(vec![range(-1, 5, "a", 1)]),
        Value::Array(vec![range(9, 5, "a", 1)]),
        Value::Array(vec![range(0, 5, "a", 65_536)]),
    ] {
        assert!(read_map(&odd, &asked()).is_none(), "{odd:?}");
    }
}

#[test]
fn keys_share_a_slot_or_have_none() {
    assert_eq!(common_slot(&["{a}1", "{a}2"]), Some(slot_of(b"a")));
    assert_eq!(common_slot(&["a", "b"]), None);
    assert_eq!(common_slot::<&str>(&[]), None);
}
