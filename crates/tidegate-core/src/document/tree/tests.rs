use std::fmt::Write;

use super::*;

/// The tree in one line (text in quotes, plain scalars bare), or the faults as `LINE:COL message`.
fn read(text: &str) -> Result<String, Vec<String>> {
    let sources = [Source::new("t.yaml", text)];
    let mut report = Report::new(&sources);
    let root = parse(&sources[0], 0, &mut report);
    let (faults, _) = report.finish();
    if faults.is_empty() {
        return Ok(root.map_or_else(|| "nothing".to_owned(), |root| show(&root)));
    }
    Err(faults.iter().map(|fault| format!("{}:{} {}", fault.line, fault.column, fault.message)).collect())
}

fn show(node: &Node) -> String {
    match &*node.kind {
        Kind::Scalar { text, plain: true } => text.clone(),
        Kind::Scalar { text, plain: false } => format!("{text:?}"),
        Kind::Sequence(items) => format!("[{}]", items.iter().map(show).collect::<Vec<_>>().join(", ")),
        Kind::Mapping(entries) => {
            let entries = entries.iter().map(|entry| format!("{}: {}", entry.key, show(&entry.value)));
            format!("{{{}}}", entries.collect::<Vec<_>>().join(", "))
        }
        Kind::Invalid => "INVALID".to_owned(),
    }
}

#[test]
fn spelling_is_kept() {
    for (text, tree) in [
        ("", "nothing"),
        ("# only a comment\n", "nothing"),
        ("a: 1.10\nb: 0123\nc: \"1.10\"\n", "{a: 1.10, b: 0123, c: \"1.10\"}"),
        ("a: on\n'on': yes\nb:\n", "{a: on, on: yes, b: ~}"),
        ("a: |\n  x\n  y\nb: >-\n  x\n  y\n", "{a: \"x\\ny\\n\", b: \"x y\"}"),
        ("\u{feff}a: 1\r\nb: [x, y]\r\n", "{a: 1, b: [x, y]}"),
        ("%YAML 1.2\n---\na: 1\n...\n", "{a: 1}"),
    ] {
        assert_eq!(read(text), Ok(tree.to_owned()), "{text:?}");
    }
}

#[test]
fn json_is_read_as_it_is() {
    for (text, tree) in [
        ("{\"a\": 1, \"b\": [true, null, \"on\"]}", "{a: 1, b: [true, null, \"on\"]}"),
        ("{\n\t\"a\":\t{\n\t\t\"b\": [\n\t\t\t1,\n\t\t\t2\n\t\t]\n\t}\n}\n", "{a: {b: [1, 2]}}"),
        ("{\"a\":\"\\u00e9\\ud83d\\ude00\\/\\n\"}", "{a: \"é😀/\\n\"}"),
        (
            "{\"a\":123456789012345678901234567890, \"b\": -1.5e-7}",
            "{a: 123456789012345678901234567890, b: -1.5e-7}",
        ),
        ("{\"a\":{},\"b\":[],\"c\":\"\"}", "{a: {}, b: [], c: \"\"}"),
    ] {
        assert_eq!(read(text), Ok(tree.to_owned()), "{text:?}");
    }
}

#[test]
fn aliases_resolve() {
    assert_eq!(read("x: &a [1, {y: 2}]\nz: *a\n"), Ok("{x: [1, {y: 2}], z: [1, {y: 2}]}".to_owned()));
    assert_eq!(read("[&a 1, &a 2, *a]"), Ok("[1, 2, 2]".to_owned()));
}

#[test]
fn what_configuration_has_no_use_for_is_refused() {
    for (text, faults) in [
        ("a: 1\nb: 2\na: 3\n", vec!["3:1 the key `a` is written twice in one mapping; the first is at 1:1"]),
        (
            "{\"a\": {\"b\": 1, \"b\": 2}, \"a\": 1}",
            vec![
                "1:16 the key `b` is written twice in one mapping; the first is at 1:8",
                "1:25 the key `a` is written twice in one mapping; the first is at 1:2",
            ],
        ),
        ("x: &a {b: 1}\nc:\n  <<: *a\n", vec!["3:3 YAML 1.2 has no merge keys (`<<`)"]),
        (
            "a: !!str 5\nb: !custom {}\n",
            vec!["1:10 tags (`!…`) are not supported", "2:12 tags (`!…`) are not supported"],
        ),
        ("a: 1\n---\nb: 2\n", vec!["2:1 a second document begins here"]),
        ("%YAML 1.1\n---\na: 1\n", vec!["2:1 this document declares another version of YAML than 1.2"]),
        ("? [a, b]\n: 1\n", vec!["1:3 a list or mapping cannot be a key"]),
        ("a: *nope\n", vec!["1:4 no anchor `&…` is called `nope`"]),
        ("a: &x [*x]\n", vec!["1:8 this alias stands inside the node that it refers to"]),
        (
            "a:\n\t- b\n",
            vec!["2:1 this is not valid YAML: found a tab character where block indentation is expected"],
        ),
        ("a: [1, 2\n", vec!["2:1 this is not valid YAML: unclosed bracket '['"]),
        ("a: \"\\ud800\"\n", vec!["1:6 this is not valid YAML: invalid escape"]),
    ] {
        let found = read(text).expect_err(text);
        let same = found.len() == faults.len()
            && found.iter().zip(&faults).all(|(found, fault)| {
                found == fault || {
                    // The parser's own words may change with its version.
                    fault.contains("not valid YAML") && found.contains("not valid YAML")
                }
            });
        assert!(same, "{text:?}\nfound    {found:#?}\nexpected {faults:#?}");
    }
}

#[test]
fn a_quoted_merge_key_is_an_ordinary_key() {
    assert_eq!(read("'<<': 1"), Ok("{<<: 1}".to_owned()));
}

#[test]
fn documents_that_would_grow_or_nest_without_bound_are_refused_soon() {
    let mut laughs = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..30 {
        let below = format!("*a{}", level - 1);
        writeln!(laughs, "a{level}: &a{level} [{}]", vec![below; 10].join(", ")).unwrap();
    }
    let long = "y".repeat(1 << 20);
    let wide = format!("a: &a {long}\nb: [{}]", vec!["*a"; 1000].join(", "));
    let chain: String = (0..100).fold("a0: &a0 [x]\n".to_owned(), |text, level| {
        format!("{text}a{}: &a{} [*a{level}]\n", level + 1, level + 1)
    });
    for (what, text, message) in [
        ("laughs", laughs, "the document grows beyond"),
        ("wide", wide, "the document grows beyond"),
        ("chain", chain, "lists and mappings nest deeper than 64"),
        ("brackets", "[".repeat(1 << 20), "lists and mappings nest deeper than 64"),
        ("braces", "{a: ".repeat(1 << 18), "lists and mappings nest deeper than 64"),
        ("dashes", "- ".repeat(1 << 19), "lists and mappings nest deeper than 64"),
        ("questions", "? ".repeat(1 << 19), "lists and mappings nest deeper than 64"),
        ("indented", (0..2000).map(|n| " ".repeat(n) + "a:\n").collect(), "lists and mappings nest deeper"),
        ("large", "a".repeat(MAX_BYTES + 1), "the document has 4194305 bytes"),
    ] {
        let found = read(&text).expect_err(what);
        assert!(found.len() == 1 && found[0].contains(message), "{what}: {found:?}");
    }
}

#[test]
fn documents_may_be_as_large_as_the_bounds_say() {
    // The fault at the beginning shows that the text was read at all, without reading much of it.
    let sized = |bytes: usize| format!("]{}", " ".repeat(bytes - 1));
    let found = read(&sized(MAX_BYTES)).unwrap_err();
    assert!(found.len() == 1 && found[0].contains("not valid YAML"), "{found:?}");
    let found = read(&sized(MAX_BYTES + 1)).unwrap_err();
    assert!(found.len() == 1 && found[0].contains("4194305 bytes"), "{found:?}");

    // Without writing it out, aliases resolved.
    let is_read = |text: &str| {
        let sources = [Source::new("t.yaml", text)];
        parse(&sources[0], 0, &mut Report::new(&sources)).is_some()
    };
    // A list of 1000 values with itself, 998 aliases of it, and single values.
    let values = |aliases: usize, single: usize| {
        format!("[&a [{}{}]{}{}]", "x", ", x".repeat(998), ", *a".repeat(aliases), ", x".repeat(single))
    };
    for (aliases, single, good) in [(998, 999, true), (998, 1000, false), (998, 998, true), (999, 0, false)] {
        assert_eq!(is_read(&values(aliases, single)), good, "{aliases} {single}");
    }
    // Lists are values, and so is what was refused.
    let text = values(998, 999).replace('x', "[]");
    assert!(is_read(&text));
    assert!(!is_read(&text.replacen("[]", "[x]", 1)));
    let text = values(998, 999).replacen('x', "*x", 999);
    assert_eq!(read(&text).unwrap_err().len(), 999);
    let found = read(&text.replacen("*x", "[*x]", 1)).unwrap_err();
    assert!(found.len() == 1000 && found[999].contains("the document grows beyond"), "{}", found[999]);

    let text = "y".repeat(1 << 16);
    for (more, good) in [("", true), (", z", false)] {
        assert_eq!(is_read(&format!("[&a {text}{}{more}]", ", *a".repeat(255))), good, "{more}");
    }
}

#[test]
fn lists_nest_64_deep_aliases_resolved() {
    let nested = |depth: usize, inner: &str| format!("{}{inner}{}", "[".repeat(depth), "]".repeat(depth));
    for (outer, inner, good) in
        [(31, 32, true), (1, 62, true), (32, 32, false), (31, 33, false), (61, 2, true)]
    {
        let text = format!("[&a {}, {}]", nested(inner, "x"), nested(outer, "*a"));
        assert_eq!(read(&text).is_ok(), good, "{outer} {inner}");
    }
    for (depth, good) in [(64, true), (65, false)] {
        assert_eq!(read(&nested(depth, "x")).is_ok(), good, "{depth}");
        let block: String = (0..depth).map(|level| " ".repeat(level) + "a:\n").collect();
        assert_eq!(read(&block).is_ok(), good, "{depth}");
    }
}

#[test]
fn a_value_that_was_refused_keeps_its_place() {
    for (text, tree) in [
        ("a: *nope\nb: 1\n", "{a: INVALID, b: 1}"),
        ("a: &x [*x, 2]\nb: 1\n", "{a: [INVALID, 2], b: 1}"),
        ("*nope : 1\nb: 2\n", "{b: 2}"),
    ] {
        let sources = [Source::new("t.yaml", text)];
        let mut report = Report::new(&sources);
        let root = parse(&sources[0], 0, &mut report).unwrap();
        assert_eq!(report.finish().0.len(), 1, "{text}");
        assert_eq!(show(&root), tree, "{text}");
    }
}

#[test]
fn large_flat_documents_are_read_in_bounded_time() {
    for (what, good, text) in [
        ("list", true, format!("[{}]", vec!["1"; 400_000].join(","))),
        ("keys", true, (0..50_000).map(|n| format!("key{n}: {n}\n")).collect::<Vec<_>>().concat()),
        ("quotes", true, format!("a: \"{}\"", "\\\"".repeat(500_000))),
        ("comment", true, "#".repeat(1 << 20)),
        ("blank", true, " \n".repeat(1 << 19)),
        ("lines", true, format!("a: x\n{}", "  y\n".repeat(100_000))),
        ("colons", false, ":".repeat(1 << 18)),
        ("stars", false, "* ".repeat(1 << 16)),
        ("ampersands", false, "&a ".repeat(1 << 16)),
        ("bangs", false, "!a ".repeat(1 << 16)),
        ("percents", false, "%a ".repeat(1 << 16)),
    ] {
        assert_eq!(read(&text).is_ok(), good, "{what}");
    }
}
