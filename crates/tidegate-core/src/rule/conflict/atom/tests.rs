use super::*;

fn scalar(text: &str, kind: ScalarKind) -> Scalar {
    Scalar { text: text.to_owned(), kind }
}

const STRING: ScalarKind = ScalarKind::String;
const NUMBER: ScalarKind = ScalarKind::Number;
const BOOL: ScalarKind = ScalarKind::Bool;

#[test]
fn a_scalar_may_be_equalled_by_a_text_a_number_or_a_boolean() {
    for (listed, forms) in [
        (scalar("x", STRING), "T"),
        (scalar("1.0", STRING), "TN"),
        (scalar("1.0", NUMBER), "TN"),
        // Beyond the bounds of decimals.
        (scalar("1e99999999999", NUMBER), "TO"),
        (scalar("1e99999999999", STRING), "T"),
        (scalar("true", BOOL), "TB"),
        (scalar("false", STRING), "TB"),
    ] {
        let set = Finite::new(std::iter::once(&listed));
        assert_eq!(set.len(), 1);
        let found: String = set
            .forms()
            .map(|form| match form {
                Form::Text(..) => 'T',
                Form::Number(..) => 'N',
                Form::Bool(..) => 'B',
                Form::Opaque(..) => 'O',
            })
            .collect();
        assert_eq!(found, forms, "{listed:?}");
        for form in set.forms() {
            assert_eq!(set.holds(form), Verdict::Surely, "{form:?}");
        }
    }
    let three = ["a", "b", "a"].map(|text| scalar(text, STRING));
    assert_eq!(Finite::new(three.iter()).len(), 3);
}

#[test]
fn a_form_stands_for_a_value() {
    let one = Decimal::parse("1").unwrap().to_owned();
    for (form, value) in [
        (Form::Text("true", BOOL), Value::Text("true")),
        (Form::Number("1.0", &one, NUMBER), Value::Number("1.0")),
        (Form::Opaque("1e99999999999", NUMBER), Value::Number("1e99999999999")),
        (Form::Bool("true", BOOL), Value::Bool(true)),
        (Form::Bool("false", STRING), Value::Bool(false)),
    ] {
        assert_eq!(form.value(), value);
    }
}

#[test]
fn only_what_is_listed_alike_surely_holds_and_only_what_cannot_meet_never_does() {
    use Verdict::{Maybe, Never, Surely};
    let listed = [
        scalar("a", STRING),
        scalar("2", NUMBER),
        scalar("03", STRING),
        scalar("true", STRING),
        scalar("4", BOOL),
    ];
    let set = Finite::new(listed.iter());
    let text = |text, kind| set.holds(Form::Text(text, kind));
    let number = |text, kind| {
        let number = Decimal::parse(text).unwrap().to_owned();
        set.holds(Form::Number(text, &number, kind))
    };
    for (found, expected) in [
        (text("a", STRING), Surely),
        (text("a", NUMBER), Maybe),
        (text("b", STRING), Never),
        (text("2", NUMBER), Surely),
        (text("2", STRING), Maybe),
        // Equal as a number only.
        (text("2.0", NUMBER), Maybe),
        (text("3", STRING), Maybe),
        (text("5", STRING), Never),
        (number("2", NUMBER), Surely),
        (number("2.0", NUMBER), Surely),
        (number("2.0", STRING), Maybe),
        (number("2", STRING), Maybe),
        // Listed as text.
        (number("03", NUMBER), Maybe),
        (number("3", NUMBER), Maybe),
        (number("5", NUMBER), Never),
        (set.holds(Form::Bool("true", STRING)), Surely),
        (set.holds(Form::Bool("true", BOOL)), Maybe),
        (set.holds(Form::Bool("false", BOOL)), Never),
        (set.holds(Form::Opaque("1e99999999999", NUMBER)), Maybe),
    ] {
        assert_eq!(found, expected);
    }
}
