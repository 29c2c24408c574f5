use std::time::Duration;

use proptest::prelude::*;

use super::*;

/// A path pattern as documents write it.
fn pattern(path: &str) -> Vec<PathSegment> {
    let segments = path.strip_prefix('/').unwrap().split('/');
    let segment = |text: &str| match text.strip_prefix('{').and_then(|text| text.strip_suffix('}')) {
        Some(name) => match name.strip_prefix('*') {
            Some(name) => PathSegment::Rest(name.to_owned()),
            None => PathSegment::Param(name.to_owned()),
        },
        None => PathSegment::Literal(text.to_owned()),
    };
    if path == "/" { Vec::new() } else { segments.map(segment).collect() }
}

/// Hosts and methods are separated by spaces; the id is the path.
fn resource(hosts: &str, methods: &str, path: &str) -> Resource {
    let words = |text: &str| text.split_ascii_whitespace().map(str::to_owned).collect();
    Resource {
        id: format!("{hosts} {methods} {path}").trim().to_owned(),
        matcher: Some(Match { hosts: words(hosts), methods: words(methods), path: pattern(path) }),
        timeout: Duration::from_secs(30),
        attributes: Vec::new(),
        subject: None,
        flags: Vec::new(),
    }
}

/// Requests as `METHOD host/path`, each with the id of its resource or `-`.
fn check(resources: &[Resource], requests: &[(&str, &str)]) {
    // Whatever the order of the document, the result is the same.
    for turn in 0..resources.len() {
        let mut resources = resources.to_vec();
        resources.rotate_left(turn);
        let table = RouteTable::new(&resources).unwrap();
        for (request, expected) in requests {
            let (method, target) = request.split_once(' ').unwrap();
            let (host, path) = target.split_at(target.find('/').unwrap_or(target.len()));
            let found = table.find((!host.is_empty()).then_some(host), method, path);
            let id = found.map_or("-", |found| &resources[found.resource].id);
            assert_eq!(id, *expected, "{request}");
        }
    }
}

#[test]
fn hosts_rank_before_everything_else() {
    check(
        &[
            resource("api.example.com", "", "/{*all}"),
            resource("*.example.com", "GET", "/a"),
            resource("*.eu.example.com", "", "/{*all}"),
            resource("", "POST", "/a"),
            resource("[::1] 192.0.2.1", "", "/a"),
        ],
        &[
            ("GET api.example.com/a", "api.example.com  /{*all}"),
            ("GET API.Example.com.:443/a", "api.example.com  /{*all}"),
            ("GET x.example.com/a", "*.example.com GET /a"),
            ("GET x.y.example.com/a", "*.example.com GET /a"),
            ("GET x.eu.example.com/a", "*.eu.example.com  /{*all}"),
            ("GET eu.example.com/a", "*.example.com GET /a"),
            // What a more specific host has not, the next one may have.
            ("POST x.example.com/a", "POST /a"),
            ("POST example.com/a", "POST /a"),
            ("GET example.com/a", "-"),
            ("GET .example.com/a", "-"),
            ("GET badexample.com/a", "-"),
            ("POST /a", "POST /a"),
            ("PUT [0:0:0:0:0:0:0:1]:80/a", "[::1] 192.0.2.1  /a"),
            ("PUT 192.0.2.1:80/a", "[::1] 192.0.2.1  /a"),
            ("GET api.example.com/", "-"),
        ],
    );
}

#[test]
fn paths_rank_by_literals_then_params_then_rest() {
    check(
        &[
            resource("", "", "/"),
            resource("", "", "/orders"),
            resource("", "", "/orders/"),
            resource("", "", "/orders/new"),
            resource("", "", "/orders/{id}"),
            resource("", "", "/orders/{id}/pay"),
            resource("", "", "/orders/{*rest}"),
            resource("", "", "/{area}/{id}/pay"),
            resource("", "", "/{p}/b/c"),
            resource("", "", "/files/{*rest}"),
            resource("", "", "/files/{name}"),
        ],
        &[
            ("GET /", "/"),
            ("GET /orders", "/orders"),
            ("GET /orders/", "/orders/"),
            ("GET /orders/new", "/orders/new"),
            ("GET /orders/5", "/orders/{id}"),
            ("GET /orders/5/pay", "/orders/{id}/pay"),
            ("GET /orders/5/ship", "/orders/{*rest}"),
            // Two literals, though the first segment is not one of them.
            ("GET /orders/b/c", "/{p}/b/c"),
            ("GET /orders/5/ship/now", "/orders/{*rest}"),
            ("GET /orders/5/", "/orders/{*rest}"),
            ("GET /carts/5/pay", "/{area}/{id}/pay"),
            ("GET /carts/5", "-"),
            ("GET /files/a", "/files/{name}"),
            ("GET /files/a/b", "/files/{*rest}"),
            ("GET /files/", "-"),
            ("GET /files", "-"),
            ("GET /ORDERS", "-"),
            ("OPTIONS *", "-"),
        ],
    );
}

#[test]
fn methods_rank_last() {
    check(
        &[
            resource("", "POST PUT", "/a/{x}"),
            resource("", "", "/a/{x}"),
            resource("", "GET", "/a/{*rest}"),
            resource("", "", "/b/{x}/c"),
            resource("", "POST", "/b/b/{y}"),
            resource("", "DELETE", "/c"),
            resource("", "", "/{any}"),
        ],
        &[
            ("POST /a/1", "POST PUT /a/{x}"),
            ("PUT /a/1", "POST PUT /a/{x}"),
            ("GET /a/1", "/a/{x}"),
            ("GET /a/1/2", "GET /a/{*rest}"),
            ("POST /a/1/2", "-"),
            // Equal paths: the listed method decides.
            ("POST /b/b/c", "POST /b/b/{y}"),
            ("GET /b/b/c", "/b/{x}/c"),
            // A resource that does not take the method does not compete.
            ("DELETE /c", "DELETE /c"),
            ("GET /c", "/{any}"),
            ("post /c", "/{any}"),
        ],
    );
}

#[test]
fn escapes_do_not_get_past_a_rule() {
    check(
        &[
            resource("", "", "/a!b/c"),
            resource("", "", "/café/{x}"),
            resource("", "", "/100%/{x}"),
            resource("", "", "/s/{x}"),
        ],
        &[
            ("GET /a!b/c", "/a!b/c"),
            ("GET /a%21b/c", "/a!b/c"),
            ("GET /caf%C3%A9/1", "/café/{x}"),
            ("GET /100%25/1", "/100%/{x}"),
            // A kept encoded slash does not separate.
            ("GET /a!b%2Fc", "-"),
            ("GET /s/a%2Fb", "/s/{x}"),
            ("GET /s%2Fa", "-"),
        ],
    );
}

#[test]
fn captured_values_are_decoded() {
    let resources = [
        resource("", "", "/orders/{order}/pay"),
        resource("", "", "/f/{a}/{b}/{*rest}"),
        resource("", "", "/plain"),
    ];
    let table = RouteTable::new(&resources).unwrap();
    let check = |path: &str, expected: &[(&str, &str)]| {
        let found = table.find(None, "GET", path).unwrap();
        assert_eq!(found.params.iter().collect::<Vec<_>>(), expected, "{path}");
        for (name, value) in expected {
            assert_eq!(found.params.get(name), Some(*value));
        }
        assert_eq!(found.params.get("nothing"), None);
    };
    check("/orders/5/pay", &[("order", "5")]);
    check("/orders/caf%C3%A9%20+%2525/pay", &[("order", "café +%25")]);
    check("/orders/%FF/pay", &[("order", "%FF")]);
    check("/f/1/2/x/y%2Fz/", &[("a", "1"), ("b", "2"), ("rest", "x/y/z/")]);
    check("/plain", &[]);
}

#[test]
fn resources_without_a_match_keep_their_place() {
    let mut named = resource("", "", "/");
    named.matcher = None;
    let resources = [named.clone(), resource("", "", "/a"), named];
    let table = RouteTable::new(&resources).unwrap();
    assert_eq!(table.find(None, "GET", "/a").unwrap().resource, 1);
    assert_eq!(table.find(None, "GET", "/"), None);
    assert!(RouteTable::new(&[]).unwrap().find(Some("x"), "GET", "/").is_none());
}

fn ties(resources: &[Resource]) -> Vec<(String, String, String)> {
    let faults = RouteTable::new(resources).err().unwrap_or_default();
    faults
        .into_iter()
        .map(|fault| match fault {
            RouteFault::Tie(tie) => (tie.first, tie.second, tie.example),
            other => panic!("{other}"),
        })
        .collect()
}

#[test]
fn of_many_ties_the_first_are_reported() {
    let resources: Vec<Resource> =
        (0..20).map(|n| Resource { id: format!("{n:02}"), ..resource("", "", "/a/{x}") }).collect();
    let pairs = (0..20)
        .flat_map(|second| (0..second).map(move |first| (format!("{first:02}"), format!("{second:02}"))));
    let found = ties(&resources).into_iter().map(|(first, second, _)| (first, second));
    assert_eq!(found.collect::<Vec<_>>(), pairs.take(MAX_TIES).collect::<Vec<_>>());
}

#[test]
fn ties_are_faults_with_an_example() {
    let check = |first: Resource, second: Resource, example: Option<&str>| {
        let found = ties(&[first.clone(), second.clone()]);
        let expected = example.map(|example| (first.id.clone(), second.id.clone(), example.to_owned()));
        assert_eq!(found, Vec::from_iter(expected), "{} and {}", first.id, second.id);
        // The other way round, it is the same tie.
        assert_eq!(ties(&[second, first]).len(), found.len());
    };
    check(resource("", "", "/a"), resource("", "", "/a"), Some("GET /a"));
    check(resource("", "", "/"), resource("", "", "/"), Some("GET /"));
    check(resource("", "", "/a/{x}"), resource("", "", "/a/{y}"), Some("GET /a/x"));
    check(resource("", "", "/a/{x}/c"), resource("", "", "/a/b/{y}"), Some("GET /a/b/c"));
    check(resource("", "", "/{x}/b"), resource("", "", "/a/{y}"), Some("GET /a/b"));
    check(resource("", "", "/a/{x}/{*r}"), resource("", "", "/{y}/b/{*r}"), Some("GET /a/b/x"));
    check(resource("", "", "/café"), resource("", "", "/café"), Some("GET /café"));
    check(resource("", "GET POST", "/a"), resource("", "PUT POST", "/a"), Some("POST /a"));
    check(
        resource("a.example b.example", "", "/a"),
        resource("B.example. c.example", "", "/a"),
        Some("GET b.example/a"),
    );
    check(resource("*.example", "", "/a"), resource("a.example *.example", "PUT", "/a"), None);
    check(
        resource("*.example", "PUT", "/a"),
        resource("a.example *.example", "PUT", "/a"),
        Some("PUT x.example/a"),
    );
    // A tie of two stays one, though a third resource may outrank both wherever they meet.
    let third = resource("", "", "/a/b/c");
    assert_eq!(ties(&[resource("", "", "/a/{x}/c"), third, resource("", "", "/a/b/{y}")]).len(), 1);
    // No tie: something differs in rank, or nothing matches both.
    for (first, second) in [
        (resource("", "", "/a"), resource("", "", "/b")),
        (resource("", "", "/a"), resource("", "", "/a/")),
        (resource("", "", "/a/{x}"), resource("", "", "/a/")),
        (resource("", "", "/{x}/"), resource("", "", "/a/{y}")),
        (resource("", "", "/a/{x}"), resource("", "", "/a/{*r}")),
        (resource("", "", "/a/{x}/{*r}"), resource("", "", "/a/{*r}")),
        (resource("", "", "/a/{x}/c"), resource("", "", "/a/b/{*r}")),
        (resource("", "", "/a/{x}/c"), resource("", "", "/b/b/{y}")),
        (resource("", "GET", "/a"), resource("", "POST", "/a")),
        (resource("", "GET", "/a"), resource("", "", "/a")),
        (resource("a.example", "", "/a"), resource("*.example", "", "/a")),
        (resource("a.example", "", "/a"), resource("", "", "/a")),
        (resource("*.a.example", "", "/a"), resource("*.example", "", "/a")),
        (resource("a.example", "", "/a"), resource("b.example", "", "/a")),
    ] {
        check(first, second, None);
    }
    // A resource does not tie with itself.
    assert!(RouteTable::new(&[resource("a.example A.example", "GET GET", "/a")]).is_ok());
}

#[test]
fn many_ties_are_reported_up_to_the_bound() {
    let same: Vec<Resource> = (0..200).map(|_| resource("", "GET POST", "/a/{x}")).collect();
    assert_eq!(ties(&same).len(), MAX_TIES);
    let message = RouteTable::new(&same).unwrap_err()[0].to_string();
    assert!(message.contains("both match `GET /a/x`") && message.contains("make one path"), "{message}");
    assert_eq!(ties(&same[..3]).len(), 3, "each pair once, though two methods tie");
}

#[test]
fn patterns_are_bounded() {
    let long = |segments: usize| resource("", "", &"/s".repeat(segments));
    assert!(RouteTable::new(&[long(MAX_PATTERN_SEGMENTS)]).is_ok());
    let faults = RouteTable::new(&[long(MAX_PATTERN_SEGMENTS + 1), resource("", "", "/{*r}/a")]).unwrap_err();
    assert!(
        matches!(&faults[..], [RouteFault::TooManySegments { .. }, RouteFault::RestNotLast { .. }]),
        "{faults:?}"
    );
    assert!(faults.iter().all(|fault| fault.to_string().contains("; ")));
    // A path may be longer than any pattern.
    let table = RouteTable::new(&[
        resource("", "", "/s/{*r}"),
        resource("", "", &("/{x}".repeat(MAX_PATTERN_SEGMENTS))),
    ])
    .unwrap();
    let path = "/s".repeat(10_000);
    assert_eq!(table.find(None, "GET", &path).unwrap().resource, 0);
    assert!(table.find(None, "GET", &format!("/x{path}")).is_none());
    let find = |count: usize| table.find(None, "GET", &"/x".repeat(count)).map(|found| found.resource);
    assert_eq!([0, 1].map(|more| find(MAX_PATTERN_SEGMENTS + more)), [Some(1), None]);
}

#[test]
fn a_search_costs_the_same_with_ten_and_ten_thousand_resources() {
    let visited = |count: usize| {
        let resources: Vec<Resource> = (0..count)
            .map(|n| resource("", "", &format!("/service-{n}/{{id}}/items/{{item}}")))
            .chain([resource("", "", "/{*rest}"), resource("", "", "/{a}/{b}")])
            .collect();
        let table = RouteTable::new(&resources).unwrap();
        assert_eq!(table.find(None, "GET", "/service-7/1/items/2").unwrap().resource, 7);
        trie::visited(&table.any, "GET", "/service-7/1/items/2")
    };
    // The root and one node for each segment.
    assert_eq!((visited(10), visited(10_000)), (5, 5));
}

/// The plain model: rank every resource that matches, take the highest; two highest are a tie.
fn plainly(resources: &[Resource], host: &str, method: &str, path: &str) -> Result<Option<usize>, ()> {
    let mut best: Option<((usize, Rank, bool), usize)> = None;
    let mut tie = false;
    for (index, resource) in resources.iter().enumerate() {
        let matcher = resource.matcher.as_ref().unwrap();
        let host_rank = |pattern: &String| match pattern.strip_prefix('*') {
            Some(suffix) => (host.ends_with(suffix) && host.len() > suffix.len()).then_some(suffix.len()),
            None => (host == pattern).then_some(usize::MAX),
        };
        let host_rank = match &matcher.hosts[..] {
            [] => Some(0),
            hosts => hosts.iter().filter_map(host_rank).max(),
        };
        let Some(host_rank) = host_rank else { continue };
        let listed = matcher.methods.iter().any(|listed| listed == method);
        if !listed && !matcher.methods.is_empty() {
            continue;
        }
        let Some(rank) = plain_path(&matcher.path, path) else { continue };
        let rank = (host_rank, rank, listed);
        match &best {
            Some((other, _)) if *other > rank => {}
            Some((other, _)) if *other == rank => tie = true,
            _ => {
                best = Some((rank, index));
                tie = false;
            }
        }
    }
    if tie { Err(()) } else { Ok(best.map(|(_, index)| index)) }
}

fn plain_path(pattern: &[PathSegment], path: &str) -> Option<Rank> {
    let root = [PathSegment::Literal(String::new())];
    let pattern = if pattern.is_empty() { &root } else { pattern };
    let segments: Vec<&str> = path.strip_prefix('/').unwrap().split('/').collect();
    let (mut literals, mut params) = (0, 0);
    for (at, segment) in pattern.iter().enumerate() {
        let text = segments.get(at)?;
        match segment {
            PathSegment::Literal(literal) if literal == text => literals += 1,
            PathSegment::Param(_) if !text.is_empty() => params += 1,
            PathSegment::Rest(_) if !text.is_empty() => return Some((literals, params)),
            _ => return None,
        }
    }
    (pattern.len() == segments.len()).then_some((literals, params))
}

fn resources() -> impl Strategy<Value = Vec<Resource>> {
    let hosts = proptest::sample::select(vec!["", "", "a.b.c", "*.c", "*.b.c", "x.c a.b.c", "*.c a.b.c"]);
    let methods = proptest::sample::select(vec!["", "", "GET", "POST", "GET POST"]);
    let one = (hosts, methods, "(/(a|b|\\{x\\})){0,4}(/\\{\\*r\\}|/)?");
    proptest::collection::vec(one, 1..9).prop_map(|all| {
        all.into_iter()
            .map(|(hosts, methods, path)| resource(hosts, methods, if path.is_empty() { "/" } else { &path }))
            .collect()
    })
}

/// All requests that can tell resources of [`resources`] apart.
fn requests() -> Vec<(&'static str, &'static str, String)> {
    let mut paths = vec!["/".to_owned()];
    let mut level = vec![String::new()];
    for _ in 0..5 {
        level = level.iter().flat_map(|path| ["a", "b", "z"].map(|name| format!("{path}/{name}"))).collect();
        paths.extend(level.iter().cloned());
        paths.extend(level.iter().map(|path| format!("{path}/")));
    }
    let mut all = Vec::new();
    for host in ["a.b.c", "x.b.c", "x.c", "z.c", "z"] {
        for method in ["GET", "POST", "PUT"] {
            all.extend(paths.iter().map(|path| (host, method, path.clone())));
        }
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn agrees_with_ranking_every_resource(resources in resources()) {
        let found = RouteTable::new(&resources);
        let mut tied = false;
        for (host, method, path) in requests() {
            match (&found, plainly(&resources, host, method, &path)) {
                (Ok(table), Ok(expected)) => {
                    prop_assert_eq!(table.find(Some(host), method, &path).map(|found| found.resource), expected, "{} {}{}", method, host, path);
                }
                (Ok(_), Err(())) => prop_assert!(false, "an unseen tie at {} {}{}", method, host, path),
                (Err(_), result) => tied |= result.is_err(),
            }
        }
        // A tie may be hidden at each request by a resource that outranks both, so look at pairs alone.
        if let (Err(faults), false) = (&found, tied) {
            for fault in faults {
                let RouteFault::Tie(tie) = fault else { return Err(TestCaseError::fail(fault.to_string())) };
                let pair: Vec<Resource> =
                    resources.iter().filter(|resource| resource.id == tie.first || resource.id == tie.second).cloned().collect();
                let seen = requests().iter().any(|(host, method, path)| plainly(&pair, host, method, path).is_err());
                prop_assert!(seen, "{:?} is no tie", tie);
            }
        }
    }
}
