//! The resource of a request, by ranking every resource.

use std::time::Duration;

use tidegate_core::rule::model::{Match, PathSegment, Resource};
use tidegate_core::rule::route::{RouteFault, RouteTable};

use super::Input;

const MAX_RESOURCES: usize = 8;
const MAX_SEGMENTS: usize = 5;
const MAX_REQUESTS: usize = 16;
const HOSTS: [&str; 6] = ["a.b.c", "x.c", "*.c", "*.b.c", "*.a.b.c", "A.B.C"];
const METHODS: [&str; 3] = ["GET", "POST", "PUT"];

pub(super) fn run(input: &mut Input<'_>) {
    let count = 1 + input.below(MAX_RESOURCES);
    let resources: Vec<Resource> = (0..count).map(|number| resource(number, input)).collect();
    let table = match RouteTable::new(&resources) {
        Ok(table) => table,
        Err(faults) => {
            assert!(!faults.is_empty());
            for fault in faults {
                let RouteFault::Tie(tie) = &fault else { panic!("{fault}: {resources:?}") };
                assert_ne!(tie.first, tie.second, "{fault}");
            }
            return;
        }
    };
    for _ in 0..MAX_REQUESTS {
        let host = input.pick(&["a.b.c", "A.b.C:80", "x.b.c", "x.c.", "c", "z", ""]);
        let host = (!host.is_empty()).then_some(host);
        let method = input.pick(&METHODS);
        let path = path(input);
        let found = table.find(host, method, &path);
        let expected = plainly(&resources, host, method, &path);
        assert_eq!(
            found.as_ref().map(|found| found.resource),
            expected,
            "{method} {host:?}{path} among {resources:?}"
        );
        if let Some(found) = found {
            let named = resources[found.resource].matcher.iter().flat_map(|matcher| &matcher.path);
            let named = named.filter(|segment| !matches!(segment, PathSegment::Literal(_))).count();
            assert_eq!(found.params.iter().len(), named);
            assert!(found.params.iter().all(|(_, value)| !value.is_empty()));
        }
        if input.is_empty() {
            break;
        }
    }
}

fn resource(number: usize, input: &mut Input<'_>) -> Resource {
    let hosts = (0..input.below(3)).map(|_| input.pick(&HOSTS).to_owned()).collect();
    let methods = (0..input.below(3)).map(|_| input.pick(&METHODS).to_owned()).collect();
    let mut path: Vec<PathSegment> = (0..input.below(MAX_SEGMENTS)).map(|at| segment(at, input)).collect();
    match input.below(4) {
        0 => path.push(PathSegment::Rest("rest".to_owned())),
        1 => path.push(PathSegment::Literal(String::new())),
        _ => {}
    }
    Resource {
        id: number.to_string(),
        matcher: (input.below(8) > 0).then_some(Match { hosts, methods, path }),
        timeout: Duration::from_secs(1),
        attributes: Vec::new(),
        subject: None,
        flags: Vec::new(),
    }
}

fn segment(at: usize, input: &mut Input<'_>) -> PathSegment {
    match input.below(6) {
        0 | 1 => PathSegment::Param(format!("p{at}")),
        choice => PathSegment::Literal(["a", "b", "a!", "%"][choice - 2].to_owned()),
    }
}

/// In normal form; `a!` in both of its spellings.
fn path(input: &mut Input<'_>) -> String {
    let mut path = String::new();
    for _ in 0..input.below(MAX_SEGMENTS + 1) {
        path.push('/');
        path.push_str(input.pick(&["a", "b", "a!", "a%21", "%25", "z"]));
    }
    if path.is_empty() || input.below(4) == 0 {
        path.push('/');
    }
    path
}

fn plainly(resources: &[Resource], host: Option<&str>, method: &str, path: &str) -> Option<usize> {
    let host = host.map(|host| {
        let name = host.split(':').next().unwrap_or_default();
        name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
    });
    let ranked = resources.iter().enumerate().filter_map(|(index, resource)| {
        let matcher = resource.matcher.as_ref()?;
        let hosts = matcher.hosts.iter().filter_map(|pattern| host_rank(pattern, host.as_deref()?));
        let host = if matcher.hosts.is_empty() { Some(0) } else { hosts.max() };
        let listed = matcher.methods.iter().any(|listed| listed == method);
        let allowed = listed || matcher.methods.is_empty();
        Some(((host?, path_rank(&matcher.path, path)?, allowed.then_some(listed)?), index))
    });
    let ranked: Vec<_> = ranked.collect();
    let (best, index) = ranked.iter().max_by_key(|(rank, _)| rank)?;
    assert_eq!(ranked.iter().filter(|(rank, _)| rank == best).count(), 1, "an unseen tie: {resources:?}");
    Some(*index)
}

/// An exact name above every wildcard, a longer wildcard above a shorter one.
fn host_rank(pattern: &str, host: &str) -> Option<usize> {
    let pattern = pattern.to_ascii_lowercase();
    match pattern.strip_prefix('*') {
        Some(suffix) => (host.ends_with(suffix) && host.len() > suffix.len()).then_some(suffix.len()),
        None => (host == pattern).then_some(usize::MAX),
    }
}

/// Literal segments, then parameters.
fn path_rank(pattern: &[PathSegment], path: &str) -> Option<(usize, usize)> {
    let root = [PathSegment::Literal(String::new())];
    let pattern = if pattern.is_empty() { &root } else { pattern };
    let path = path.replace("%21", "!").replace("%25", "%");
    let segments: Vec<&str> = path[1..].split('/').collect();
    let (mut literals, mut params) = (0, 0);
    for (at, segment) in pattern.iter().enumerate() {
        let text = *segments.get(at)?;
        match segment {
            PathSegment::Literal(literal) if literal == text => literals += 1,
            PathSegment::Param(_) if !text.is_empty() => params += 1,
            PathSegment::Rest(_) if !text.is_empty() => return Some((literals, params)),
            _ => return None,
        }
    }
    (pattern.len() == segments.len()).then_some((literals, params))
}
