use super::*;

const MINUTE: Duration = Duration::from_mins(1);

fn cache() -> Fallback {
    Fallback::Cache { ttl: MINUTE }
}

fn respond(status: u16) -> Fallback {
    Fallback::Respond { status, body: FallbackBody::Empty }
}

/// The layers that are tried, one after the other.
#[track_caller]
fn check(fallback: &[Fallback], cached: Option<u64>, expected: &[(&str, Option<usize>)]) {
    let mut tried = layers(fallback, cached.map(Duration::from_secs));
    let got: Vec<_> = tried
        .by_ref()
        .map(|answer| match answer {
            Answer::Cached { layer, ttl } => {
                assert_eq!(ttl, MINUTE);
                (answer.name(), Some(layer))
            }
            Answer::Respond { layer, status, body } => {
                assert_eq!(fallback[layer], Fallback::Respond { status, body: body.clone() });
                (answer.name(), Some(layer))
            }
            Answer::FailFast => (answer.name(), None),
        })
        .collect();
    assert_eq!(got, expected, "{fallback:?} {cached:?}");
    assert_eq!(tried.next(), None, "it ends");
}

#[test]
fn b19_a_fallback_that_fails_leads_to_the_next_layer_then_503_and_never_back() {
    let fail = ("fail_fast", None);
    check(&[], None, &[fail]);
    check(&[], Some(0), &[fail]);
    let both = [cache(), respond(503)];
    check(&both, Some(60), &[("cache", Some(0)), ("respond", Some(1)), fail]);
    check(&both, Some(61), &[("respond", Some(1)), fail]);
    check(&both, None, &[("respond", Some(1)), fail]);
    check(&[cache(), cache()], Some(1), &[("cache", Some(0)), ("cache", Some(1)), fail]);
    check(&[respond(200), cache()], Some(1), &[("respond", Some(0)), ("cache", Some(1)), fail]);
    check(&[cache()], None, &[fail]);
}
