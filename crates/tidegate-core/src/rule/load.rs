//! Text → checked rule set, all or nothing.

pub use crate::document::Refused;
use crate::document::{Diagnostic, Report, Severity, Source};

use super::model::RuleSet;
use super::parse::{self, Drafts};
use super::positions::Positions;
use super::validate;

/// Most sources of one load.
pub const MAX_SOURCES: usize = 1000;
/// Most bytes of all sources of one load together.
pub const MAX_TOTAL_BYTES: usize = 16 << 20;

/// What the rules will run on. Rules that it cannot carry out are refused.
///
/// The default is what a gateway has without any configuration: no shared store, and SQLite for
/// idempotency records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deployment {
    /// Whether a store that all instances share is configured for limits.
    pub shared_store: bool,
    /// Whether batches of permits can be taken from it.
    pub leases: bool,
    /// Where idempotency records are kept.
    pub idempotency_store: IdempotencyBackend,
    /// What runs the gates.
    pub shell: Shell,
}

/// Where idempotency records are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum IdempotencyBackend {
    /// In this process.
    Memory,
    /// SQLite.
    #[default]
    Sqlite,
    /// PostgreSQL.
    Postgres,
    /// MySQL or MariaDB.
    Mysql,
    /// Redis.
    Redis,
}

impl IdempotencyBackend {
    /// Whether a business write can stand in one transaction with a record.
    pub const fn is_transactional(self) -> bool {
        matches!(self, Self::Sqlite | Self::Postgres | Self::Mysql)
    }
}

/// What runs the gates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Shell {
    /// The reverse proxy.
    #[default]
    Gateway,
    /// The library, inside a service.
    Library,
}

/// An accepted load.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The rules.
    pub rules: RuleSet,
    /// What somebody should look at, in document order.
    pub warnings: Vec<Diagnostic>,
    /// Where each rule stands.
    pub positions: Positions,
}

/// Reads documents, which together are one rule set, and checks them for `deployment`.
///
/// # Errors
/// [`Refused`] with every fault of every document.
pub fn load(sources: &[Source], deployment: &Deployment) -> Result<Loaded, Refused> {
    let refuse = |source: &str, message: String, help: &str| {
        Err(Refused { faults: vec![Diagnostic::without_text(source, message, help)], warnings: Vec::new() })
    };
    if sources.is_empty() {
        return refuse(
            "rules",
            "there is no rule document".to_owned(),
            "name a file, or a directory with .yaml or .json files",
        );
    }
    if let Some(over) = sources.get(MAX_SOURCES) {
        return refuse(
            &over.name,
            format!("there are more than {MAX_SOURCES} rule documents"),
            "merge some of them",
        );
    }
    let mut total = 0_usize;
    for source in sources {
        total = total.saturating_add(source.text.len());
        if total > MAX_TOTAL_BYTES {
            let message = format!("the rule documents together have more than {MAX_TOTAL_BYTES} bytes");
            return refuse(&source.name, message, "remove what is not needed");
        }
    }
    let mut report = Report::new(sources);
    let mut drafts = Drafts::default();
    for (index, source) in (0_u32..).zip(sources) {
        parse::source(source, index, &mut drafts, &mut report);
    }
    validate::drafts(&drafts, *deployment, &mut report);
    let positions = Positions::of(&drafts, sources.iter().map(|source| source.name.clone()).collect());
    let (rules, complete) = build(drafts);
    for check in validate::CHECKS {
        for found in check(&rules, &positions) {
            match found.severity {
                Severity::Fault => report.fault(found.span, found.message, found.help),
                Severity::Warning => report.warn(found.span, found.message, found.help),
            }
        }
    }
    let (mut faults, warnings) = report.finish();
    if faults.is_empty() && complete {
        return Ok(Loaded { rules, warnings, positions });
    }
    if faults.is_empty() {
        // Every reader that gives nothing reports why, so this is out of reach; refusing is the safe side.
        let help = "report this document to the makers of Tidegate";
        faults.push(Diagnostic::without_text(&sources[0].name, "a rule could not be read", help));
    }
    Err(Refused { faults, warnings })
}

/// The rules that could be read, and whether those are all.
fn build(drafts: Drafts) -> (RuleSet, bool) {
    let mut complete = true;
    let Drafts { resources, limits, idempotency, breakers, segments, flags, .. } = drafts;
    let rule_count: usize =
        flags.iter().map(|flag| flag.rules.value.as_ref().map_or(0, |rules| rules.items.len())).sum();
    let rules = RuleSet {
        resources: collect(resources, parse::resource::ResourceDraft::build, &mut complete),
        limits: collect(limits, parse::limit::LimitDraft::build, &mut complete),
        idempotency: collect(idempotency, parse::idempotency::IdempotencyDraft::build, &mut complete),
        breakers: collect(breakers, parse::breaker::BreakerDraft::build, &mut complete),
        segments: collect(segments, parse::SegmentDraft::build, &mut complete),
        flags: collect(flags, parse::flag::FlagDraft::build, &mut complete),
    };
    complete &= rules.flags.iter().map(|flag| flag.rules.len()).sum::<usize>() == rule_count;
    (rules, complete)
}

fn collect<D, T>(drafts: Vec<D>, build: impl Fn(D) -> Option<T>, complete: &mut bool) -> Vec<T> {
    let expected = drafts.len();
    let found: Vec<T> = drafts.into_iter().filter_map(build).collect();
    *complete &= found.len() == expected;
    found
}

#[cfg(test)]
mod tests;
