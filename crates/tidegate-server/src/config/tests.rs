use std::ffi::OsString;
use std::path::Path;

use super::*;

fn environment(pairs: &[(&str, &str)]) -> Environment {
    Environment::from_pairs(pairs.iter().map(|(name, value)| (OsString::from(name), OsString::from(value))))
}

fn flags(upstream: &[&str], rules: Option<&str>) -> Flags {
    Flags {
        upstream: upstream.iter().map(|url| (*url).to_owned()).collect(),
        rules: rules.map(str::to_owned),
        ..Flags::default()
    }
}

/// Loads with a file of this text (none: without a file), in a directory of its own.
fn load_with(yaml: Option<&str>, env: &[(&str, &str)], flags: &Flags) -> (Result<Config, Refused>, PathBuf) {
    let directory = tidegate_testkit::temp_dir();
    let path = directory.path().join("tidegate.yaml");
    let mut flags = flags.clone();
    if let Some(yaml) = yaml {
        std::fs::write(&path, yaml).unwrap();
        flags.config = Some(path);
    }
    (load(&flags, &environment(env)), directory.path().to_owned())
}

#[track_caller]
fn check_refused(yaml: Option<&str>, env: &[(&str, &str)], flags: &Flags, expected: &[&str]) {
    let refused = load_with(yaml, env, flags).0.unwrap_err();
    let heads = refused.faults.iter().map(|fault| {
        let source = fault.source.rsplit('/').next().unwrap();
        format!("{source}:{}:{}: {}", fault.line, fault.column, fault.message)
    });
    assert_eq!(heads.collect::<Vec<_>>(), expected, "\n{refused}");
}

#[test]
fn an_upstream_and_rules_are_enough() {
    let config = load_with(None, &[], &flags(&["http://127.0.0.1:9000"], Some("rules.yaml"))).0.unwrap();
    assert_eq!(config.upstreams.len(), 1);
    assert_eq!(config.upstreams[0].id, "default");
    assert_eq!(config.upstreams[0].urls[0].to_string(), "http://127.0.0.1:9000");
    assert_eq!(config.rules, Path::new("rules.yaml"));
    assert_eq!(config.listen.to_string(), "127.0.0.1:8080");
    assert_eq!(config.admin.to_string(), "127.0.0.1:9080");
    assert_eq!(config.health, None);
    assert_eq!(config.store, StoreSetting::Sqlite("tidegate.db".into()));
    assert_eq!((config.trusted_hops, config.ipv6_prefix, config.instances), (0, 64, None));
    assert_eq!((config.encoded_slashes, config.disclose), (EncodedSlashes::Refuse, Disclose::Full));
    assert_eq!(config.drain, Duration::from_secs(10));
    assert_eq!(config.limits.max_body, 1024 * 1024);
    assert_eq!(config.log, Log { format: LogFormat::Text, level: LogLevel::Info });
    assert_eq!(config.listener(), ListenerConfig::default());
    assert_eq!(config.upstream(&config.upstreams[0]), UpstreamConfig::default());
}

#[test]
fn the_file_can_say_everything() {
    let yaml = r#"
x-note: ours
upstreams:
  - { id: default, urls: ["http://10.0.0.1:9000", "http://10.0.0.2:9000"], host: upstream }
  - { id: other, urls: ["http://10.0.0.3"], host: "inner.example:81" }
rules: rules.d
listen: 0.0.0.0:80
admin: "[::1]:9081"
health: 0.0.0.0:9090
store: sqlite:data/tidegate.db
trusted_hops: 2
ipv6_prefix: 56
encoded_slashes: keep
instances: 4
disclose: minimal
drain: 1m30s
workers: 3
limits: { max_connections: 100, max_upstream_connections: 20, max_header_size: 16KiB, max_headers: 50, max_streams: 8, max_body: 64KiB, max_keys: 5000 }
timeouts: { header: 1s, idle: 2s, body: 3s, write: 4s, connect: 250ms, upstream_idle: 5s, upstream_body: 6s }
log: { format: json, level: debug }
"#;
    let (config, directory) = load_with(Some(yaml), &[], &Flags::default());
    let config = config.unwrap();
    assert_eq!(config.upstreams[0].host, HostHeader::Upstream);
    assert_eq!(config.upstreams[0].urls.len(), 2);
    assert_eq!(config.upstreams[1].host, HostHeader::Fixed("inner.example:81".parse().unwrap()));
    assert_eq!(config.rules, directory.join("rules.d"), "a path in the file is relative to the file");
    assert_eq!(config.store, StoreSetting::Sqlite(directory.join("data/tidegate.db")));
    assert_eq!((config.listen.port(), config.admin.port(), config.health.unwrap().port()), (80, 9081, 9090));
    assert_eq!((config.trusted_hops, config.ipv6_prefix, config.instances), (2, 56, NonZeroU32::new(4)));
    assert_eq!((config.encoded_slashes, config.disclose), (EncodedSlashes::Keep, Disclose::Minimal));
    assert_eq!(config.log, Log { format: LogFormat::Json, level: LogLevel::Debug });
    assert_eq!((config.drain, config.limits.max_keys), (Duration::from_secs(90), 5000));
    let listener = config.listener();
    assert_eq!((listener.workers.get(), listener.max_connections, listener.max_headers), (3, 100, 50));
    assert_eq!(listener.header_timeout, Duration::from_secs(1));
    let upstream = config.upstream(&config.upstreams[0]);
    assert_eq!((upstream.max_connections.get(), upstream.max_idle, upstream.workers.get()), (20, 20, 3));
    assert_eq!(upstream.connect_timeout, Duration::from_millis(250));
}

#[test]
fn flags_win_over_variables_and_those_over_the_file() {
    let yaml = "upstreams: [ { urls: ['http://file:1'], host: upstream } ]\nrules: file.yaml\nlisten: 127.0.0.1:1\nhealth: 127.0.0.1:11\ndrain: 1s\nlog: { level: warn }\n";
    let env = [
        ("TIDEGATE_UPSTREAM", "http://env-a:1, http://env-b:1"),
        ("TIDEGATE_LISTEN", "127.0.0.1:2"),
        ("TIDEGATE_HEALTH", "127.0.0.1:12"),
        ("TIDEGATE_LOG_LEVEL", "error"),
        ("TIDEGATE_LIMITS_MAX_BODY", "2MiB"),
        ("TIDEGATE_TRUSTED_HOPS", "1"),
        ("TIDEGATE_RULES", ""),
        ("OTHER", "x"),
    ];
    let given = Flags { listen: Some("127.0.0.1:3".to_owned()), ..Flags::default() };
    let config = load_with(Some(yaml), &env, &given).0.unwrap();
    assert_eq!((config.listen.port(), config.health.unwrap().port()), (3, 12));
    let urls: Vec<_> = config.upstreams[0].urls.iter().map(ToString::to_string).collect();
    assert_eq!(urls, ["http://env-a:1", "http://env-b:1"]);
    assert_eq!(config.upstreams[0].host, HostHeader::Upstream, "the host setting stays the file's");
    assert!(config.rules.ends_with("file.yaml"), "an empty variable is not set");
    assert_eq!((config.drain, config.trusted_hops), (Duration::from_secs(1), 1));
    assert_eq!((config.log.level, config.limits.max_body), (LogLevel::Error, 2 * 1024 * 1024));
}

#[test]
fn what_is_missing_is_named_all_at_once() {
    check_refused(
        None,
        &[],
        &Flags::default(),
        &["tidegate.yaml:1:1: no upstream is configured", "tidegate.yaml:1:1: no rules are named"],
    );
    let refused = load_with(None, &[], &Flags::default()).0.unwrap_err().to_string();
    assert!(
        refused.contains("--upstream http://HOST:PORT, set TIDEGATE_UPSTREAM, or write `upstreams:"),
        "{refused}"
    );
}

#[test]
fn every_fault_of_every_layer_is_reported_at_its_place() {
    let yaml = "upstreams: [ { urls: ['https://a', 'http://b/c'], hosts: x } ]\nlisten: 8080\nadmin: 0.0.0.0:9080\nipv6_prefix: 129\ndrain: 10\nencoded_slashes: allow\nlimits: { max_body: 1MB, max_heders: 5 }\nlistn: x\n";
    let env =
        [("TIDEGATE_DRAIN", "soon"), ("TIDEGATE_LISTN", "127.0.0.1:1"), ("TIDEGATE_STORE", "redis://x")];
    let given = Flags { trusted_hops: Some("many".to_owned()), ..flags(&[], Some("rules.yaml")) };
    check_refused(
        Some(yaml),
        &env,
        &given,
        &[
            "tidegate.yaml:1:23: \"https://a\": upstreams are reached by plain http; write http://HOST:PORT",
            "tidegate.yaml:1:36: \"http://b/c\": only http://HOST:PORT is allowed here, without path, query or user",
            "tidegate.yaml:1:51: unknown field `hosts` in this upstream",
            "tidegate.yaml:2:9: `8080` is not an address",
            "tidegate.yaml:3:8: the administration has no password, and 0.0.0.0 can be reached from the network",
            "tidegate.yaml:4:14: `129` is outside 1 to 128",
            "tidegate.yaml:5:8: `10` has no unit, and a duration is never a bare number",
            "tidegate.yaml:6:18: `allow` is not known here",
            "tidegate.yaml:7:21: `1MB` is not a number of bytes",
            "tidegate.yaml:7:26: unknown field `max_heders` in `limits`",
            "tidegate.yaml:8:1: unknown field `listn` in the configuration",
            "TIDEGATE_DRAIN:1:1: `soon` is not a duration",
            "TIDEGATE_LISTN:1:1: unknown variable TIDEGATE_LISTN",
            "TIDEGATE_STORE:1:1: `redis://x` is not a store",
            "--trusted-hops:1:1: a whole number is expected, not the text `many`",
        ],
    );
    let refused = load_with(Some(yaml), &env, &given).0.unwrap_err().to_string();
    for help in [
        "did you mean `max_headers`? Known fields: max_connections",
        "did you mean `listen`?",
        "did you mean TIDEGATE_LISTEN?",
        "write sqlite:PATH or memory:",
    ] {
        assert!(refused.contains(help), "{help} in\n{refused}");
    }
}

#[test]
fn ports_ids_and_urls_are_not_used_twice() {
    let yaml = "upstreams:\n  - { id: a, urls: ['http://a:1', 'http://a:1'] }\n  - { id: a, urls: ['http://b:1'] }\nrules: r\nlisten: 127.0.0.1:80\nhealth: 127.0.0.1:80\n";
    check_refused(
        Some(yaml),
        &[],
        &Flags::default(),
        &[
            "tidegate.yaml:2:35: `http://a:1` is listed twice; the first is at 2:21",
            "tidegate.yaml:3:5: `a` is listed twice; the first is at 2:5",
            "tidegate.yaml:6:9: 127.0.0.1:80 is used twice; also at 5:9",
        ],
    );
    let free = "upstreams: [ { urls: ['http://a:1'] } ]\nrules: r\nlisten: 127.0.0.1:0\nadmin: 127.0.0.1:0\n";
    assert!(load_with(Some(free), &[], &Flags::default()).0.is_ok(), "port 0 is any free one");
}

#[test]
fn a_named_file_must_be_there_and_hold_a_mapping() {
    let given =
        Flags { config: Some("/nonexistent/tidegate.yaml".into()), ..flags(&["http://a"], Some("r")) };
    let refused = load(&given, &Environment::default()).unwrap_err().to_string();
    assert!(
        refused.starts_with("/nonexistent/tidegate.yaml:1:1: cannot read the configuration"),
        "{refused}"
    );
    let named = environment(&[("TIDEGATE_CONFIG", "/nonexistent/other.yaml")]);
    let refused = load(&flags(&["http://a"], Some("r")), &named).unwrap_err().to_string();
    assert!(refused.starts_with("/nonexistent/other.yaml:1:1:"), "{refused}");
    let given = flags(&["http://a"], Some("r"));
    check_refused(
        Some("- a\n"),
        &[],
        &given,
        &["tidegate.yaml:1:1: the configuration must be a mapping, not a list"],
    );
    assert!(load_with(Some("# nothing\n"), &[], &given).0.is_ok());
    assert!(load_with(Some("a: [\n"), &[], &given).0.is_err());
}

#[test]
fn only_the_loopback_interface_gets_the_administration() {
    let given = flags(&["http://a"], Some("r"));
    for (admin, fine) in [
        ("127.0.0.1:1", true),
        ("127.9.9.9:1", true),
        ("[::1]:1", true),
        ("[::ffff:127.0.0.1]:1", true),
        ("0.0.0.0:1", false),
        ("[::]:1", false),
        ("10.0.0.1:1", false),
    ] {
        assert_eq!(load_with(None, &[("TIDEGATE_ADMIN", admin)], &given).0.is_ok(), fine, "{admin}");
    }
}

#[test]
fn what_kubernetes_writes_for_a_service_of_our_name_is_no_setting() {
    let links = [
        ("TIDEGATE_PORT", "tcp://10.0.0.1:8080"),
        ("TIDEGATE_PORT_8080_TCP_ADDR", "10.0.0.1"),
        ("TIDEGATE_SERVICE_HOST", "10.0.0.1"),
        ("TIDEGATE_SERVICE_PORT_HTTP", "8080"),
    ];
    assert_eq!(environment(&links), Environment::default());
    assert_ne!(environment(&[("TIDEGATE_PORTS", "1")]), Environment::default());
}
