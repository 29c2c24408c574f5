use super::*;

#[test]
fn query_parameters() {
    for (text, name, expected) in [
        ("a=1&b=2", "b", Some("2")),
        ("a=1&b=2", "c", None),
        ("", "a", None),
        ("", "", None),
        ("&&", "", None),
        ("=x", "", Some("x")),
        // The first of several counts.
        ("a=1&a=2", "a", Some("1")),
        ("a&a=2", "a", Some("")),
        ("a=", "a", Some("")),
        ("a=b=c", "a", Some("b=c")),
        // Names are decoded like values, else a rule could be walked around.
        ("%61=1", "a", Some("1")),
        ("a%5B%5D=1", "a[]", Some("1")),
        ("a+b=c+d%2Be", "a b", Some("c d+e")),
        ("A=1", "a", None),
        ("a=caf%C3%A9", "a", Some("café")),
        ("a=100%", "a", Some("100%")),
        ("a=%FF", "a", Some("%FF")),
        ("a=%26&b=%3D", "a", Some("&")),
        ("a;b=1", "b", None),
    ] {
        assert_eq!(query(text, name).as_deref(), expected, "{name} in {text}");
    }
    assert!(matches!(query("a=plain", "a"), Some(Cow::Borrowed("plain"))));
}

#[test]
fn cookies() {
    let check = |fields: &[&'static str], name: &str, expected: Option<&str>| {
        assert_eq!(cookie(fields.iter().copied(), name), expected, "{name} in {fields:?}");
    };
    check(&["a=1; b=2"], "b", Some("2"));
    check(&["a=1;b=2"], "b", Some("2"));
    check(&["a=1", "b=2"], "b", Some("2"));
    check(&["a=1; a=2"], "a", Some("1"));
    check(&["a=1", "a=2"], "a", Some("1"));
    check(&["a=x=y"], "a", Some("x=y"));
    check(&["a=\"q\""], "a", Some("\"q\""));
    check(&["a=%41"], "a", Some("%41"));
    check(&["a="], "a", Some(""));
    check(&["a"], "a", None);
    check(&["A=1"], "a", None);
    check(&["ba=1"], "a", None);
    check(&[" \ta = 1 \t;"], "a", Some("1"));
    check(&[""], "", None);
    check(&[], "a", None);
}

#[test]
fn json_pointers() {
    let body: serde_json::Value = serde_json::from_str(
        r#"{"sku":"x","n":1.10,"big":123456789012345678901234567890,"e":1E2,"t":true,"z":null,
            "o":{"a/b":["p",{"m~n":"q"}],"":"empty"},"d":1,"d":2}"#,
    )
    .unwrap();
    for (text, expected) in [
        ("/sku", Some(Value::Text("x"))),
        ("/n", Some(Value::Number("1.10"))),
        ("/big", Some(Value::Number("123456789012345678901234567890"))),
        ("/e", Some(Value::Number("1e+2"))),
        ("/t", Some(Value::Bool(true))),
        ("/z", None),
        ("/missing", None),
        ("/o", Some(Value::Compound)),
        ("", Some(Value::Compound)),
        ("/o/a~1b", Some(Value::Compound)),
        ("/o/a~1b/0", Some(Value::Text("p"))),
        ("/o/a~1b/00", None),
        ("/o/a~1b/-", None),
        ("/o/a~1b/+0", None),
        ("/o/a~1b/9", None),
        ("/o/a~1b/1/m~0n", Some(Value::Text("q"))),
        ("/o/", Some(Value::Text("empty"))),
        ("/sku/x", None),
        ("sku", None),
        // Of two members with one name, the last counts, as in most parsers.
        ("/d", Some(Value::Number("2"))),
    ] {
        assert_eq!(pointer(&body, text), expected, "{text}");
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn l25_one_ipv6_network_and_a_mapped_address_are_one_key_each() {
    let check = |address: &str, prefix, expected: &str| {
        assert_eq!(client_key(ip(address), prefix).to_string(), expected, "{address}/{prefix}");
    };
    check("2001:db8:1:2:aaaa::1", 64, "2001:db8:1:2::");
    check("2001:db8:1:2:bbbb::2", 64, "2001:db8:1:2::");
    check("2001:db8:1:3::1", 64, "2001:db8:1:3::");
    check("::ffff:192.0.2.1", 64, "192.0.2.1");
    check("192.0.2.1", 64, "192.0.2.1");
    // Other prefixes, the ends included.
    check("2001:db8:1:2:aaaa::1", 56, "2001:db8:1::");
    check("2001:db8:1:2:aaaa::1", 48, "2001:db8:1::");
    check("2001:db8:1:2:aaaa::1", 128, "2001:db8:1:2:aaaa::1");
    check("2001:db8:1:2:aaaa::1", 255, "2001:db8:1:2:aaaa::1");
    check("2001:db8:1:2:aaaa::1", 127, "2001:db8:1:2:aaaa::");
    check("ffff::1", 1, "8000::");
    check("2001:db8::1", 0, "::");
    check("192.0.2.1", 0, "192.0.2.1");
}

#[test]
fn l26_the_entry_that_a_trusted_hop_added_is_the_client() {
    let check = |fields: &[&str], hops, expected: &str| {
        let client = client_ip(ip("203.0.113.9"), fields.iter().map(|field| field.as_bytes()), hops);
        assert_eq!(client, ip(expected), "{fields:?} with {hops} hops");
    };
    // What the client wrote itself stands first, and counts for nothing.
    check(&["1.2.3.4, 198.51.100.7"], 1, "198.51.100.7");
    check(&["1.2.3.4,198.51.100.7"], 1, "198.51.100.7");
    check(&["1.2.3.4", "198.51.100.7"], 1, "198.51.100.7");
    check(&["1.2.3.4, 198.51.100.7, 192.0.2.1"], 2, "198.51.100.7");
    check(&["1.2.3.4", "198.51.100.7, 192.0.2.1"], 2, "198.51.100.7");
    // Nobody is trusted: the field counts for nothing.
    check(&["1.2.3.4"], 0, "203.0.113.9");
    check(&[], 0, "203.0.113.9");
    // Fewer entries than hops.
    check(&[], 1, "203.0.113.9");
    check(&[""], 1, "203.0.113.9");
    check(&["198.51.100.7"], 3, "198.51.100.7");
    check(&["198.51.100.7"], usize::MAX, "198.51.100.7");
    // Ports, brackets, mapped addresses, empty entries.
    check(&["1.2.3.4, 198.51.100.7:4711"], 1, "198.51.100.7");
    check(&["1.2.3.4, [2001:db8::7]:4711"], 1, "2001:db8::7");
    check(&["1.2.3.4, [2001:db8::7]"], 1, "2001:db8::7");
    check(&["1.2.3.4, 2001:db8::7"], 1, "2001:db8::7");
    check(&["1.2.3.4, ::ffff:198.51.100.7"], 1, "198.51.100.7");
    check(&["1.2.3.4, 198.51.100.7 ,\t, "], 1, "198.51.100.7");
    // What is no address ends the search at the last one known.
    check(&["1.2.3.4, unknown"], 1, "203.0.113.9");
    check(&["1.2.3.4, unknown, 192.0.2.1"], 2, "192.0.2.1");
    check(&["1.2.3.4, unknown, 192.0.2.1"], 3, "192.0.2.1");
    check(&["1.2.3.4, _hidden, 198.51.100.7"], 1, "198.51.100.7");
    check(&["1.2.3.4, 198.51.100.700"], 1, "203.0.113.9");
    check(&["1.2.3.4, [198.51.100.7]"], 1, "203.0.113.9");
    let long = format!("1.2.3.4, {}", "9".repeat(10_000));
    check(&[&long], 1, "203.0.113.9");
    // Bytes that are no text.
    let fields: [&[u8]; 1] = [b"1.2.3.4, \xff\xfe"];
    assert_eq!(client_ip(ip("::ffff:203.0.113.9"), fields, 1), ip("203.0.113.9"));
}
