//! The schema beside the corpus of rule documents, good and bad.

use std::collections::HashMap;

use granit_parser::{Event, Parser, ScalarStyle};
use serde_json::{Map, Value};

use super::json_schema;
use crate::rule::tests::{CANNOT_TELL, REJECTS, documents};

fn validator() -> jsonschema::Validator {
    jsonschema::draft202012::new(&json_schema()).unwrap()
}

// ---- YAML to JSON, just enough for the corpus ------------------------------------------------------

fn read(text: &str) -> Value {
    let mut events = Parser::new_from_str(text)
        .map(|event| event.unwrap().0)
        .filter(|event| !matches!(event, Event::StreamStart | Event::DocumentStart(..)));
    let mut anchors = HashMap::new();
    let first = events.next().unwrap();
    node(first, &mut events, &mut anchors)
}

fn node<'a>(
    event: Event<'a>,
    events: &mut impl Iterator<Item = Event<'a>>,
    anchors: &mut HashMap<usize, Value>,
) -> Value {
    let (value, anchor) = match event {
        Event::Alias(anchor) => return anchors[&anchor].clone(),
        Event::Scalar(text, style, anchor, _) => (scalar(&text, style == ScalarStyle::Plain), anchor),
        Event::SequenceStart(_, anchor, _) => {
            let mut items = Vec::new();
            loop {
                match events.next().unwrap() {
                    Event::SequenceEnd => break,
                    event => items.push(node(event, events, anchors)),
                }
            }
            (Value::Array(items), anchor)
        }
        Event::MappingStart(_, anchor, _) => {
            let mut fields = Map::new();
            loop {
                match events.next().unwrap() {
                    Event::MappingEnd => break,
                    Event::Scalar(key, ..) => {
                        let event = events.next().unwrap();
                        fields.insert(key.into_owned(), node(event, events, anchors));
                    }
                    other => panic!("a key that is no scalar: {other:?}"),
                }
            }
            (Value::Object(fields), anchor)
        }
        other => panic!("not expected: {other:?}"),
    };
    if anchor > 0 {
        anchors.insert(anchor, value.clone());
    }
    value
}

fn scalar(text: &str, plain: bool) -> Value {
    match text {
        _ if !plain => text.into(),
        "" | "~" | "null" => Value::Null,
        "true" => true.into(),
        "false" => false.into(),
        // JSON has no leading zeros; the value is the same without them.
        _ => match serde_json::from_str::<serde_json::Number>(text.trim_start_matches('0')) {
            Ok(number) => Value::Number(number),
            Err(_) => match serde_json::from_str::<serde_json::Number>(text) {
                Ok(number) => Value::Number(number),
                Err(_) => text.into(),
            },
        },
    }
}

// ---- tests ---------------------------------------------------------------------------------------

#[test]
fn the_schema_is_a_schema() {
    let schema = json_schema();
    assert!(jsonschema::draft202012::meta::is_valid(&schema));
    assert_eq!(json_schema(), schema);
}

#[test]
fn good_documents_are_accepted() {
    let validator = validator();
    let documents = documents("good");
    assert!(documents.len() >= 12, "{}", documents.len());
    for (name, text) in documents {
        let value = read(&text);
        let errors: Vec<String> = validator
            .iter_errors(&value)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{name}: {errors:#?}");
    }
}

#[test]
fn bad_documents_are_rejected_where_a_schema_can_tell() {
    let validator = validator();
    let documents = documents("bad");
    assert!(documents.len() >= 40, "{}", documents.len());
    let mut wrong = Vec::new();
    for (name, text) in documents {
        let rejects = match text.lines().next().unwrap() {
            REJECTS => true,
            CANNOT_TELL => false,
            other => panic!("{name} does not say what the schema makes of it: {other}"),
        };
        if validator.is_valid(&read(&text)) == rejects {
            wrong.push(name);
        }
    }
    assert_eq!(wrong, [""; 0]);
}

#[test]
fn canonical_forms_are_accepted() {
    let validator = validator();
    for rules in [crate::rule::RuleSet::default(), crate::rule::sample::everything()] {
        let value = serde_json::from_str(&crate::rule::version::canonical(&rules)).unwrap();
        let errors: Vec<String> = validator
            .iter_errors(&value)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{errors:#?}");
    }
}

#[test]
fn every_hundredth_of_a_percent_is_accepted_and_nothing_finer() {
    let mut schema = json_schema();
    schema["$ref"] = "#/$defs/percentage".into();
    for field in ["required", "type", "properties", "patternProperties", "additionalProperties"] {
        schema.as_object_mut().unwrap().remove(field);
    }
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    let valid = |text: &str| validator.is_valid(&serde_json::from_str(text).unwrap());
    for hundredths in 0..=10_000 {
        let text = format!("{}.{:02}", hundredths / 100, hundredths % 100);
        assert!(valid(&text), "{text}");
    }
    for text in ["0.005", "33.333", "100.01", "-0.01", "\"10\""] {
        assert!(!valid(text), "{text}");
    }
}

#[test]
fn every_field_is_described_here_and_in_the_reference_and_used_by_a_good_document() {
    let schema = json_schema();
    let reference = include_str!("../../../../../docs/rules.md");
    let mut missing = Vec::new();
    let text: String = documents("good").into_iter().map(|(_, text)| text).collect();
    let mut undescribed = Vec::new();
    let mut unused = Vec::new();
    visit(&schema, &mut |name, field| {
        let described = field.get("description").is_some()
            || field.get("$ref").is_some()
            || matches!(name, "all" | "any" | "not" | "split" | "key" | "derive");
        if !described {
            undescribed.push(name.to_owned());
        }
        if !reference.contains(name) {
            missing.push(name.to_owned());
        }
        if !text.contains(&format!("{name}:")) && !text.contains(&format!("\"{name}\":")) {
            unused.push(name.to_owned());
        }
    });
    assert_eq!(undescribed, [""; 0]);
    assert_eq!(missing, [""; 0]);
    assert_eq!(unused, [""; 0]);
}

#[test]
fn defaults_are_said_where_there_are_some() {
    let mut defaults = HashMap::new();
    let mut without = Vec::new();
    visit(&json_schema(), &mut |name, field| match field.get("default") {
        Some(default) => {
            defaults.insert(name.to_owned(), default.clone());
        }
        None => without.push(name.to_owned()),
    });
    assert!(!defaults.values().any(Value::is_null), "{defaults:?}");
    for (name, default) in [
        ("timeout", Value::from("30s")),
        ("retention", "24h".into()),
        ("missing", "share".into()),
        ("min_requests", 20.into()),
        ("probes", 1.into()),
    ] {
        assert_eq!(defaults.get(name), Some(&default), "{name}");
    }
    for name in ["id", "from", "max", "capacity", "limit"] {
        assert!(without.iter().any(|field| field == name) && !defaults.contains_key(name), "{name}");
    }
}

/// Every field that the schema knows.
fn visit(schema: &Value, seen: &mut impl FnMut(&str, &Value)) {
    match schema {
        Value::Array(items) => items.iter().for_each(|item| visit(item, seen)),
        Value::Object(entries) => {
            // `if` names fields that are described elsewhere.
            for (name, value) in entries.iter().filter(|(name, _)| *name != "if") {
                if let ("properties", Value::Object(fields)) = (name.as_str(), value) {
                    fields.iter().for_each(|(name, field)| seen(name, field));
                }
                visit(value, seen);
            }
        }
        _ => {}
    }
}
