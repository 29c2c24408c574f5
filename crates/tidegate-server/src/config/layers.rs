//! The three layers as one: a setting is asked for once, and every layer that has it is read.

use std::ffi::OsString;
use std::path::PathBuf;
use std::rc::Rc;

use clap::Args;
use tidegate_core::document::{Fields, Kind, Node, Report, Source, Span};

/// What variables of ours begin with.
const PREFIX: &str = "TIDEGATE_";
/// The variable that names the file; it is no setting of the file.
pub(crate) const CONFIG_VARIABLE: &str = "TIDEGATE_CONFIG";

/// The flags of `tidegate gateway`. A flag wins over a `TIDEGATE_…` variable, which wins over the file.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// Configuration file [default: tidegate.yaml, if it exists]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where the service is, http://HOST:PORT; given again, the URLs are taken in turn
    #[arg(long, value_name = "URL")]
    pub upstream: Vec<String>,
    /// Rule file, or a directory of them
    #[arg(long, value_name = "FILE|DIR")]
    pub rules: Option<String>,
    /// Where clients connect [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<String>,
    /// Where the administration listens, loopback only [default: 127.0.0.1:9080]
    #[arg(long, value_name = "ADDR")]
    pub admin: Option<String>,
    /// An address that serves only /livez, /readyz and /metrics
    #[arg(long, value_name = "ADDR")]
    pub health: Option<String>,
    /// sqlite:PATH or memory: [default: sqlite:tidegate.db]
    #[arg(long, value_name = "STORE")]
    pub store: Option<String>,
    /// Where all instances count limits together: redis://HOST:PORT, redis+sentinel:// or redis+cluster://
    #[arg(long, value_name = "URL")]
    pub redis: Option<String>,
    /// A file that holds the URL of Redis, with its password
    #[arg(long, value_name = "FILE", conflicts_with = "redis")]
    pub redis_url_file: Option<String>,
    /// How many proxies in front are believed about the client's address [default: 0]
    #[arg(long, value_name = "N")]
    pub trusted_hops: Option<String>,
    /// How long a shutdown waits for requests that have begun [default: 10s]
    #[arg(long, value_name = "DURATION")]
    pub drain: Option<String>,
}

/// The variables of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment(Vec<(String, Option<String>)>);

impl Environment {
    /// This process's.
    pub fn current() -> Self {
        Self::from_pairs(std::env::vars_os())
    }

    /// From names and values. Only `TIDEGATE_…` is kept; an empty value counts as not set, and what
    /// Kubernetes writes for a Service of our name is nobody's setting.
    pub fn from_pairs(pairs: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let mut kept: Vec<_> = pairs
            .into_iter()
            .filter(|(_, value)| !value.is_empty())
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok())))
            .filter(|(name, _)| name.starts_with(PREFIX) && !is_service_link(name))
            .collect();
        kept.sort();
        Self(kept)
    }

    /// The file that they name.
    pub(super) fn config(&self) -> Option<PathBuf> {
        let (_, value) = self.0.iter().find(|(name, _)| name == CONFIG_VARIABLE)?;
        value.as_ref().map(PathBuf::from)
    }
}

/// Whether Kubernetes puts the variable into every pod of a namespace with a Service called `tidegate`:
/// `TIDEGATE_SERVICE_HOST`, `TIDEGATE_SERVICE_PORT…`, `TIDEGATE_PORT`, `TIDEGATE_PORT_8080_TCP…`.
fn is_service_link(name: &str) -> bool {
    let rest = name.strip_prefix(PREFIX).unwrap_or(name);
    rest == "SERVICE_HOST" || rest == "PORT" || rest.starts_with("SERVICE_PORT") || rest.starts_with("PORT_")
}

/// Values from flags and variables, each a small document of its own, so that the readers and the
/// messages are the same as for the file.
#[derive(Default)]
pub(super) struct Layers {
    /// The documents: the file first.
    pub(super) sources: Vec<Source>,
    variables: Vec<Given>,
    flags: Vec<Given>,
    /// Variables that were asked for.
    known: Vec<String>,
}

struct Given {
    /// The setting, as a variable is called.
    variable: String,
    source: u32,
    values: Vec<String>,
}

/// How a flag's or variable's bare text is to be taken.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// As text, even if it looks like a number.
    Text,
    /// As YAML would.
    Plain,
    /// As a list of texts, separated by commas.
    List,
}

impl Layers {
    pub(super) fn new(file: Source, flags: &Flags, environment: &Environment) -> Self {
        let mut layers = Self { sources: vec![file], ..Self::default() };
        for (name, value) in &environment.0 {
            if name == CONFIG_VARIABLE {
                continue;
            }
            // What is no UTF-8 is no value of any setting; its reader will say what it wants.
            let value = value.clone().unwrap_or_else(|| "\u{fffd}".to_owned());
            let given = layers.give(name.clone(), name.clone(), vec![value]);
            layers.variables.push(given);
        }
        let one = |value: &Option<String>| value.iter().cloned().collect::<Vec<_>>();
        for (flag, values) in [
            ("upstream", flags.upstream.clone()),
            ("rules", one(&flags.rules)),
            ("listen", one(&flags.listen)),
            ("admin", one(&flags.admin)),
            ("health", one(&flags.health)),
            ("store", one(&flags.store)),
            ("redis", one(&flags.redis)),
            ("redis-url-file", one(&flags.redis_url_file)),
            ("trusted-hops", one(&flags.trusted_hops)),
            ("drain", one(&flags.drain)),
        ] {
            if !values.is_empty() {
                let given = layers.give(format!("--{flag}"), variable(setting(flag)), values);
                layers.flags.push(given);
            }
        }
        layers
    }

    fn give(&mut self, name: String, variable: String, values: Vec<String>) -> Given {
        let source = u32::try_from(self.sources.len()).unwrap_or(u32::MAX);
        self.sources.push(Source::new(name, values.join(",")));
        Given { variable, source, values }
    }

    /// Reads the setting `path` (`log.level`) wherever it is given. The highest layer wins; the value is
    /// `None` when it is given nowhere or cannot be read, which has been reported.
    pub(super) fn get<T>(
        &mut self,
        fields: Option<&mut Fields<'_>>,
        path: &'static str,
        form: Form,
        report: &mut Report,
        read: impl Fn(&Node, &mut Report) -> Option<T>,
    ) -> Option<T> {
        let name = path.rsplit('.').next().unwrap_or(path);
        let in_file =
            fields.and_then(|fields| fields.optional(name, report, |node, report| read(node, report)).value);
        let given = self.given(path, form, report, read);
        given.or(in_file)
    }

    /// As [`Self::get`], from flags and variables only.
    pub(super) fn given<T>(
        &mut self,
        path: &'static str,
        form: Form,
        report: &mut Report,
        read: impl Fn(&Node, &mut Report) -> Option<T>,
    ) -> Option<T> {
        let variable = variable(path);
        let mut value = None;
        for layer in [&self.variables, &self.flags] {
            if let Some(given) = layer.iter().find(|given| given.variable == variable) {
                value = read(&given.node(form), report).or(value);
            }
        }
        self.known.push(variable);
        value
    }

    /// Reports variables that nobody asked for.
    pub(super) fn finish(self, report: &mut Report) {
        for given in self.variables.iter().filter(|given| !self.known.contains(&given.variable)) {
            let known = self.known.join(", ");
            let help = match report.nearest(&given.variable, self.known.iter().map(String::as_str)) {
                Some(near) => format!("did you mean {near}?"),
                None => format!("unset it; known variables: {CONFIG_VARIABLE}, {known}"),
            };
            let message = format!("unknown variable {}", given.variable);
            report.fault(Span::top(given.source), message, help);
        }
    }
}

impl Given {
    fn node(&self, form: Form) -> Node {
        let scalar = |text: &str| {
            let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
            let span = Span { length, ..Span::top(self.source) };
            let plain = form == Form::Plain;
            Node { span, kind: Rc::new(Kind::Scalar { text: text.to_owned(), plain }) }
        };
        if form == Form::List {
            let items = self.values.iter().flat_map(|value| value.split(',')).map(str::trim).map(scalar);
            let kind = Rc::new(Kind::Sequence(items.collect()));
            return Node { span: Span::top(self.source), kind };
        }
        scalar(self.values.last().map_or("", String::as_str))
    }
}

/// The setting that a flag gives.
fn setting(flag: &str) -> &str {
    if flag == "redis-url-file" { "redis_file" } else { flag }
}

/// The variable of a setting: `log.level` → `TIDEGATE_LOG_LEVEL`.
fn variable(path: &str) -> String {
    PREFIX.to_owned() + &path.to_ascii_uppercase().replace(['.', '-'], "_")
}
