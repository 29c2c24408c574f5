//! Reading and checking.

mod redis;

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::HeaderValue;
use http::uri::Authority;
use tidegate_core::document::diagnostic::quoted;
use tidegate_core::document::quantity::{bytes, duration};
use tidegate_core::document::scalar::{Scalar, choice, integer, is_null, name, text, wrong_type};
use tidegate_core::document::{At, Diagnostic, Fields, Node, Refused, Report, Source, Span, fields, tree};

use super::layers::{Environment, Flags, Form, Layers};
use super::{
    Config, DEFAULT_FILE, Disclose, EncodedSlashes, Limits, Log, LogFormat, LogLevel, StoreSetting, Timeouts,
    UpstreamSetting,
};
use crate::gateway::{HostHeader, ListenerConfig, UpstreamConfig, UpstreamUrl};

/// The longest time that may be set.
const MAX_TIME: Duration = Duration::from_hours(24);
/// The shortest time that may be set, but for `drain`, which may be nothing.
const MIN_TIME: Duration = Duration::from_millis(1);
/// Most URLs of one upstream, and most upstreams.
const MAX_URLS: usize = 64;
const MAX_WORKERS: u64 = 1024;
/// The longest that a request may wait for the store of its limits.
const MAX_REDIS_TIME: Duration = Duration::from_mins(1);

/// Reads the three layers. Paths in the file are relative to its directory; others to the working
/// directory.
///
/// # Errors
/// [`Refused`] with every fault of every layer.
pub fn load(flags: &Flags, environment: &Environment) -> Result<Config, Refused> {
    let named = flags.config.clone().or_else(|| environment.config());
    let path = named.clone().unwrap_or_else(|| PathBuf::from(DEFAULT_FILE));
    let file = match std::fs::read_to_string(&path) {
        Ok(text) => Some(Source::new(path.display().to_string(), text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound && named.is_none() => None,
        Err(error) => {
            let help = "name a readable file with --config or TIDEGATE_CONFIG";
            let fault = Diagnostic::without_text(
                &path.display().to_string(),
                format!("cannot read the configuration: {error}"),
                help,
            );
            return Err(Refused { faults: vec![fault], warnings: Vec::new() });
        }
    };
    let base = path.parent().map(Path::to_owned).unwrap_or_default();
    read(file, &base, flags, environment)
}

/// A configuration out of flags alone: no file and no variable is looked at.
///
/// # Errors
/// [`Refused`] with every fault.
pub fn from_flags(flags: &Flags) -> Result<Config, Refused> {
    read(None, Path::new(""), flags, &Environment::default())
}

fn read(
    file: Option<Source>,
    base: &Path,
    flags: &Flags,
    environment: &Environment,
) -> Result<Config, Refused> {
    // Without a file there is an empty one, so that what is missing has a place.
    let file = file.unwrap_or_else(|| Source::new(DEFAULT_FILE, ""));
    let mut layers = Layers::new(file, flags, environment);
    let sources = std::mem::take(&mut layers.sources);
    let mut report = Report::new(&sources);
    let root = sources.first().and_then(|file| tree::parse(file, 0, &mut report));
    let root = root.filter(|root| !is_null(root));
    let fields = root.as_ref().and_then(|root| Fields::of(root, "the configuration", &mut report));
    let config = Reader { layers, fields, report: &mut report, base }.config();
    let (mut faults, _) = report.finish();
    match config {
        Some(config) if faults.is_empty() => Ok(config),
        _ if faults.is_empty() => {
            // Whatever gives no value has reported why, so this is out of reach.
            let message = "the configuration could not be read";
            faults.push(Diagnostic::without_text(
                DEFAULT_FILE,
                message,
                "report this to the makers of Tidegate",
            ));
            Err(Refused { faults, warnings: Vec::new() })
        }
        _ => Err(Refused { faults, warnings: Vec::new() }),
    }
}

struct Reader<'r, 's, 'n> {
    layers: Layers,
    fields: Option<Fields<'n>>,
    report: &'r mut Report<'s>,
    base: &'r Path,
}

impl Reader<'_, '_, '_> {
    fn config(mut self) -> Option<Config> {
        let upstreams = self.upstreams();
        let base = self.base.to_owned();
        let before = self.report.fault_count();
        let rules = self.top("rules", Form::Text, |node, report| path(node, &base, report));
        if rules.is_none() && self.report.fault_count() == before {
            let help = "give --rules FILE, set TIDEGATE_RULES, or write `rules: FILE` in tidegate.yaml";
            self.report.fault(self.top_of_file(), "no rules are named", help);
        }
        let loopback = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let listen = self.top("listen", Form::Text, address);
        let admin = self.top("admin", Form::Text, loopback_address);
        let health = self.top("health", Form::Text, address);
        self.distinct(&[listen.as_ref(), admin.as_ref(), health.as_ref()]);
        let store = self.top("store", Form::Text, |node, report| store(node, &base, report));
        let redis = self.redis();
        let trusted_hops = self.top("trusted_hops", Form::Plain, |node, report| small(node, 0..=32, report));
        let ipv6_prefix = self.top("ipv6_prefix", Form::Plain, |node, report| small(node, 1..=128, report));
        let encoded_slashes = self.top("encoded_slashes", Form::Text, |node, report| {
            choice(node, &[("refuse", EncodedSlashes::Refuse), ("keep", EncodedSlashes::Keep)], report)
        });
        let instances = self.top("instances", Form::Plain, |node, report| {
            let count = integer(node, 1..=10_000, report)?;
            NonZeroU32::new(u32::try_from(count).ok()?)
        });
        let disclose = self.top("disclose", Form::Text, |node, report| {
            choice(node, &[("full", Disclose::Full), ("minimal", Disclose::Minimal)], report)
        });
        let drain = self.top("drain", Form::Plain, |node, report| time(node, Duration::ZERO, report));
        let workers = self.top("workers", Form::Plain, |node, report| non_zero(node, MAX_WORKERS, report));
        let limits = self.limits();
        let timeouts = self.timeouts();
        let log = self.log();

        let Self { layers, fields, report, .. } = self;
        layers.finish(report);
        if let Some(fields) = fields {
            fields.finish_except(report, |name| name.starts_with("x-"));
        }
        Some(Config {
            upstreams: upstreams?,
            rules: rules?.value,
            listen: listen.map_or(loopback(8080), |at| at.value),
            admin: admin.map_or(loopback(9080), |at| at.value),
            health: health.map(|at| at.value),
            store: store.map_or_else(|| StoreSetting::Sqlite("tidegate.db".into()), |at| at.value),
            redis,
            trusted_hops: trusted_hops.map_or(0, |at| at.value),
            ipv6_prefix: ipv6_prefix.map_or(64, |at| at.value),
            encoded_slashes: encoded_slashes.map(|at| at.value).unwrap_or_default(),
            instances: instances.map(|at| at.value),
            disclose: disclose.map(|at| at.value).unwrap_or_default(),
            limits,
            timeouts,
            log,
            drain: drain.map_or(Duration::from_secs(10), |at| at.value),
            workers: workers.map_or_else(|| ListenerConfig::default().workers, |at| at.value),
        })
    }

    /// A setting at the top of the file.
    fn top<T>(
        &mut self,
        path: &'static str,
        form: Form,
        read: impl Fn(&Node, &mut Report) -> Option<T>,
    ) -> Option<At<T>> {
        let read =
            |node: &Node, report: &mut Report| Some(At { value: read(node, report)?, span: node.span });
        self.layers.get(self.fields.as_mut(), path, form, self.report, read)
    }

    fn top_of_file(&self) -> Span {
        self.fields.as_ref().map_or(Span::top(0), Fields::span)
    }

    /// `upstreams` of the file, or the one that `--upstream` or `TIDEGATE_UPSTREAM` gives.
    fn upstreams(&mut self) -> Option<Vec<UpstreamSetting>> {
        let before = self.report.fault_count();
        let given = self.layers.given("upstream", Form::List, self.report, urls);
        let in_file = self
            .fields
            .as_mut()
            .and_then(|fields| fields.optional("upstreams", self.report, upstreams).value);
        let given = given
            .map(|urls| vec![UpstreamSetting { id: "default".to_owned(), urls, host: HostHeader::Client }]);
        let found = match (given, in_file) {
            // The host setting is the file's, wherever the URLs come from.
            (Some(mut given), Some(in_file)) => {
                if let Some(same) = in_file.into_iter().find(|upstream| upstream.id == given[0].id) {
                    given[0].host = same.host;
                }
                Some(given)
            }
            (given, in_file) => given.or(in_file),
        };
        if found.is_none() && self.report.fault_count() == before {
            let help = "give --upstream http://HOST:PORT, set TIDEGATE_UPSTREAM, or write \
                        `upstreams: [ { id: default, urls: [...] } ]` in tidegate.yaml";
            self.report.fault(self.top_of_file(), "no upstream is configured", help);
        }
        found
    }

    /// No two of our own ports may be one.
    fn distinct(&mut self, addresses: &[Option<&At<SocketAddr>>]) {
        let mut seen: Vec<&At<SocketAddr>> = Vec::new();
        for at in addresses.iter().flatten().filter(|at| at.value.port() != 0) {
            if let Some(same) = seen.iter().find(|same| same.value == at.value) {
                let place = self.report.place(same.span, at.span);
                let message = format!("{} is used twice; also at {place}", at.value);
                self.report.fault(at.span, message, "give listen, admin and health a port each");
            }
            seen.push(at);
        }
    }

    fn limits(&mut self) -> Limits {
        let (listener, upstream) = (ListenerConfig::default(), UpstreamConfig::default());
        let mut limits = Limits {
            max_connections: listener.max_connections,
            max_upstream_connections: upstream.max_connections,
            max_header_size: listener.max_header_size,
            max_headers: listener.max_headers,
            max_streams: listener.max_streams,
            max_body: 1 << 20,
            max_keys: 1_000_000,
        };
        self.section("limits", |section| {
            let head = ListenerConfig::MIN_HEADER_SIZE as u64..=ListenerConfig::MAX_HEADER_SIZE as u64;
            section.set("limits.max_connections", &mut limits.max_connections, |node, report| {
                count(node, 1_000_000, report)
            });
            section.set(
                "limits.max_upstream_connections",
                &mut limits.max_upstream_connections,
                |node, report| non_zero(node, 100_000, report),
            );
            section.set("limits.max_header_size", &mut limits.max_header_size, |node, report| {
                usize::try_from(bytes(node, head.clone(), report)?).ok()
            });
            section
                .set("limits.max_headers", &mut limits.max_headers, |node, report| count(node, 1000, report));
            section.set("limits.max_streams", &mut limits.max_streams, |node, report| {
                u32::try_from(integer(node, 1..=10_000, report)?).ok()
            });
            section.set("limits.max_body", &mut limits.max_body, |node, report| {
                bytes(node, 1..=1 << 30, report)
            });
            section.set("limits.max_keys", &mut limits.max_keys, |node, report| {
                count(node, 1_000_000_000, report)
            });
        });
        limits
    }

    fn timeouts(&mut self) -> Timeouts {
        let (listener, upstream) = (ListenerConfig::default(), UpstreamConfig::default());
        let mut timeouts = Timeouts {
            header: listener.header_timeout,
            idle: listener.idle_timeout,
            body: listener.body_timeout,
            write: listener.write_timeout,
            connect: upstream.connect_timeout,
            redis: Duration::from_millis(50),
            upstream_idle: upstream.idle_timeout,
            upstream_body: upstream.body_timeout,
        };
        self.section("timeouts", |section| {
            for (path, value) in [
                ("timeouts.header", &mut timeouts.header),
                ("timeouts.idle", &mut timeouts.idle),
                ("timeouts.body", &mut timeouts.body),
                ("timeouts.write", &mut timeouts.write),
                ("timeouts.connect", &mut timeouts.connect),
                ("timeouts.upstream_idle", &mut timeouts.upstream_idle),
                ("timeouts.upstream_body", &mut timeouts.upstream_body),
            ] {
                section.set(path, value, |node, report| time(node, MIN_TIME, report));
            }
            section.set("timeouts.redis", &mut timeouts.redis, |node, report| {
                duration(node, MIN_TIME..=MAX_REDIS_TIME, report)
            });
        });
        timeouts
    }

    fn log(&mut self) -> Log {
        let mut log = Log { format: LogFormat::default(), level: LogLevel::default() };
        self.section("log", |section| {
            section.set("log.format", &mut log.format, |node, report| {
                choice(node, &[("text", LogFormat::Text), ("json", LogFormat::Json)], report)
            });
            section.set("log.level", &mut log.level, |node, report| {
                let levels = [
                    ("error", LogLevel::Error),
                    ("warn", LogLevel::Warn),
                    ("info", LogLevel::Info),
                    ("debug", LogLevel::Debug),
                    ("trace", LogLevel::Trace),
                ];
                choice(node, &levels, report)
            });
        });
        log
    }

    /// A mapping of settings in the file, each of which may come from a variable too.
    fn section(&mut self, called: &'static str, read: impl FnOnce(&mut Section)) {
        let entry = self.fields.as_mut().and_then(|fields| fields.entry(called));
        let entry = entry.filter(|entry| !is_null(&entry.value));
        let fields = entry.and_then(|entry| Fields::of(&entry.value, format!("`{called}`"), self.report));
        let mut section = Section { layers: &mut self.layers, fields, report: self.report };
        read(&mut section);
        if let Some(fields) = section.fields {
            fields.finish(section.report);
        }
    }
}

struct Section<'a, 's, 'n> {
    layers: &'a mut Layers,
    fields: Option<Fields<'n>>,
    report: &'a mut Report<'s>,
}

impl Section<'_, '_, '_> {
    fn set<T>(&mut self, path: &'static str, value: &mut T, read: impl Fn(&Node, &mut Report) -> Option<T>) {
        if let Some(given) = self.layers.get(self.fields.as_mut(), path, Form::Plain, self.report, read) {
            *value = given;
        }
    }
}

fn upstreams(node: &Node, report: &mut Report) -> Option<Vec<UpstreamSetting>> {
    let help = "write `[ { id: default, urls: [\"http://127.0.0.1:9000\"] } ]`";
    let list = fields::non_empty_list(node, report, help, |node, report| {
        let mut fields = Fields::of(node, "this upstream", report)?;
        let id = fields.or("id", "default".to_owned(), report, name);
        let urls = fields.required("urls", "[\"http://127.0.0.1:9000\"]", report, urls);
        let host = fields.or("host", HostHeader::Client, report, host);
        fields.finish(report);
        Some(UpstreamSetting { id: id.value?, urls: urls.value?, host: host.value? })
    })?;
    fields::reject_repeats(&list, |upstream| upstream.id.clone(), report);
    fields::at_most(list, MAX_URLS, report)?.into_values()
}

fn urls(node: &Node, report: &mut Report) -> Option<Vec<UpstreamUrl>> {
    let list = fields::non_empty_list(node, report, "write at least one URL", |node, report| {
        let text = text(node, report)?;
        text.parse::<UpstreamUrl>()
            .map_err(|error| {
                report.fault(node.span, error.to_string(), "write http://HOST:PORT");
            })
            .ok()
    })?;
    fields::reject_repeats(&list, ToString::to_string, report);
    fields::at_most(list, MAX_URLS, report)?.into_values()
}

fn host(node: &Node, report: &mut Report) -> Option<HostHeader> {
    match text(node, report)? {
        "client" => Some(HostHeader::Client),
        "upstream" => Some(HostHeader::Upstream),
        other => {
            let host = other.parse::<Authority>().ok().filter(|host| !host.as_str().contains('@'));
            let value = host.and_then(|host| HeaderValue::from_str(host.as_str()).ok());
            if value.is_none() {
                let help = "write client, upstream, or a host name with or without a port";
                report.fault(node.span, format!("{} is not a host", quoted(other)), help);
            }
            value.map(HostHeader::Fixed)
        }
    }
}

fn address(node: &Node, report: &mut Report) -> Option<SocketAddr> {
    const HELP: &str = "write IP:PORT: 127.0.0.1:8080, 0.0.0.0:80, \"[::1]:8080\" (quoted in YAML)";
    let Some(Scalar::Text(text) | Scalar::Number(text)) = Scalar::of(node) else {
        wrong_type(node, "an address is expected", HELP, report);
        return None;
    };
    let found = text.parse().ok();
    if found.is_none() {
        report.fault(node.span, format!("{} is not an address", quoted(text)), HELP);
    }
    found
}

/// Whoever reaches the administration can change what is in force, so it is not for the network.
fn loopback_address(node: &Node, report: &mut Report) -> Option<SocketAddr> {
    let found = address(node, report)?;
    let ip: IpAddr = found.ip().to_canonical();
    if !ip.is_loopback() {
        report.fault(
            node.span,
            format!("the administration has no password, and {ip} can be reached from the network"),
            format!(
                "write 127.0.0.1:{}; probes and metrics can be served elsewhere with health",
                found.port()
            ),
        );
        return None;
    }
    Some(found)
}

fn path(node: &Node, base: &Path, report: &mut Report) -> Option<PathBuf> {
    let text = text(node, report)?;
    if text.is_empty() {
        report.fault(node.span, "a path is expected, not an empty text", "name a file");
        return None;
    }
    Some(in_file(node, base, text))
}

/// Paths in the file begin at its directory. Flags and variables are no file: theirs begin at the
/// working directory, which is what an empty base means.
fn in_file(node: &Node, base: &Path, path: &str) -> PathBuf {
    if node.span.source == 0 { base.join(path) } else { PathBuf::from(path) }
}

fn store(node: &Node, base: &Path, report: &mut Report) -> Option<StoreSetting> {
    let text = text(node, report)?;
    match text.split_once(':') {
        Some(("memory", "")) => Some(StoreSetting::Memory),
        Some(("sqlite", path)) if !path.is_empty() => Some(StoreSetting::Sqlite(in_file(node, base, path))),
        _ => {
            let message = format!("{} is not a store", quoted(text));
            report.fault(node.span, message, "write sqlite:PATH or memory:");
            None
        }
    }
}

fn time(node: &Node, least: Duration, report: &mut Report) -> Option<Duration> {
    duration(node, least..=MAX_TIME, report)
}

fn small(node: &Node, range: std::ops::RangeInclusive<u64>, report: &mut Report) -> Option<u8> {
    u8::try_from(integer(node, range, report)?).ok()
}

fn count(node: &Node, most: u64, report: &mut Report) -> Option<usize> {
    usize::try_from(integer(node, 1..=most, report)?).ok()
}

fn non_zero(node: &Node, most: u64, report: &mut Report) -> Option<NonZeroUsize> {
    NonZeroUsize::new(count(node, most, report)?)
}
