//! The `limits` section.

use std::time::Duration;

use crate::document::{At, Fields, Got, Kind, List, Node, Report, Span, fields, quantity, scalar};
use crate::rule::model::{
    AfterStoreLoss, Algorithm, Cost, Limit, LimitOverride, Mode, OnStoreFailure, Rate, Sharing,
};

use super::condition::{self, ConditionDraft};
use super::values::{self, Covered, MAX_COUNT, MAX_FILL, MAX_PARTS};

/// Largest limit of a sliding log, which keeps a timestamp for each call.
pub const MAX_LOG: u64 = 1_000_000;
/// Longest queue of a leaky bucket: each call in it is held in memory.
pub const MAX_QUEUE: u64 = 1_000_000;
/// Most overrides of one limit: they are tried in order for each new key.
pub const MAX_OVERRIDES: usize = 1000;
/// The algorithms' names.
const ALGORITHMS: &str = "token_bucket, fixed_window, sliding_log, sliding_window, leaky_bucket, concurrency";

#[derive(Debug)]
pub(in crate::rule) struct LimitDraft {
    pub(in crate::rule) span: Span,
    pub(in crate::rule) id: Option<At<String>>,
    pub(in crate::rule) description: Got<String>,
    pub(in crate::rule) owner: Got<String>,
    pub(in crate::rule) mode: Got<Mode>,
    pub(in crate::rule) resources: Got<Covered>,
    pub(in crate::rule) key: Got<List<String>>,
    pub(in crate::rule) algorithm: AlgorithmDraft,
    pub(in crate::rule) cost: Got<CostDraft>,
    pub(in crate::rule) overrides: Got<List<OverrideDraft>>,
    pub(in crate::rule) sharing: Got<Sharing>,
    pub(in crate::rule) on_store_failure: Got<OnStoreFailure>,
    pub(in crate::rule) after_store_loss: Got<AfterStoreLoss>,
}

#[derive(Debug)]
pub(in crate::rule) struct AlgorithmDraft {
    /// Where the algorithm's name stands, or the rule when there is none.
    pub(in crate::rule) span: Span,
    /// Its name, even when its numbers could not be read.
    pub(in crate::rule) name: Option<&'static str>,
    pub(in crate::rule) value: Option<Algorithm>,
}

#[derive(Debug)]
pub(in crate::rule) enum CostDraft {
    Fixed(u64),
    Attribute { from: Got<String>, default: Got<u64>, max: Got<u64> },
}

#[derive(Debug)]
pub(in crate::rule) struct OverrideDraft {
    pub(in crate::rule) when: Got<ConditionDraft>,
    pub(in crate::rule) algorithm: AlgorithmDraft,
}

impl LimitDraft {
    /// As the model has it; `None` when something could not be read.
    pub(in crate::rule) fn build(self) -> Option<Limit> {
        let cost = match self.cost.value? {
            CostDraft::Fixed(cost) => Cost::Fixed(cost),
            CostDraft::Attribute { from, default, max } => {
                Cost::Attribute { from: from.value?, default: default.value?, max: max.value? }
            }
        };
        let overrides = self.overrides.value?.into_values()?.into_iter().map(|one| {
            Some(LimitOverride { when: one.when.value?.condition?, algorithm: one.algorithm.value? })
        });
        Some(Limit {
            id: self.id?.value,
            description: self.description.optional()?,
            owner: self.owner.optional()?,
            mode: self.mode.value?,
            resources: self.resources.value?.build()?,
            key: self.key.value?.into_values()?,
            algorithm: self.algorithm.value?,
            cost,
            overrides: overrides.collect::<Option<_>>()?,
            sharing: self.sharing.value?,
            on_store_failure: self.on_store_failure.optional()?,
            after_store_loss: self.after_store_loss.value?,
        })
    }
}

/// Reads one entry.
pub(super) fn read(node: &Node, report: &mut Report) -> Option<LimitDraft> {
    let mut fields = Fields::of(node, "this limit", report)?;
    let id = super::id(&mut fields, "pay-per-tenant", report);
    let description = fields.optional("description", report, scalar::free_text);
    let owner = fields.optional("owner", report, scalar::free_text);
    let mode = fields.or("mode", Mode::Enforce, report, |node, report| {
        scalar::choice(
            node,
            &[("enforce", Mode::Enforce), ("shadow", Mode::Shadow), ("off", Mode::Off)],
            report,
        )
    });
    let resources = fields.required("resources", "[pay]", report, values::covered);
    let key = fields.or("key", List::empty(), report, |node, report| {
        let key = fields::list(node, report, |node, report| scalar::text(node, report).map(str::to_owned))?;
        fields::reject_repeats(&key, ToString::to_string, report);
        fields::at_most(key, MAX_PARTS, report)
    });
    let algorithm = read_algorithm(&mut fields, "this limit", report);
    let cost = fields.or("cost", CostDraft::Fixed(1), report, read_cost);
    let overrides = fields.or("overrides", List::empty(), report, |node, report| {
        let overrides = fields::list(node, report, read_override)?;
        if let Some(over) = overrides.items.get(MAX_OVERRIDES) {
            let help = "merge some of them with `in: [a, b]`";
            report.fault(over.span, format!("a limit has at most {MAX_OVERRIDES} overrides"), help);
        }
        Some(overrides)
    });
    let sharing = fields.or("sharing", Sharing::Local, report, |node, report| {
        let words = [("local", Sharing::Local), ("exact", Sharing::Exact), ("leased", Sharing::Leased)];
        scalar::choice(node, &words, report)
    });
    let on_store_failure = fields.optional("on_store_failure", report, |node, report| {
        let words = [
            ("fail_open", OnStoreFailure::FailOpen),
            ("fail_closed", OnStoreFailure::FailClosed),
            ("local_fallback", OnStoreFailure::LocalFallback),
        ];
        scalar::choice(node, &words, report)
    });
    let after_store_loss = fields.or("after_store_loss", AfterStoreLoss::Fresh, report, |node, report| {
        scalar::choice(
            node,
            &[("fresh", AfterStoreLoss::Fresh), ("exhausted", AfterStoreLoss::Exhausted)],
            report,
        )
    });
    let span = fields.span();
    fields.finish(report);
    Some(LimitDraft {
        span,
        id,
        description,
        owner,
        mode,
        resources,
        key,
        algorithm,
        cost,
        overrides,
        sharing,
        on_store_failure,
        after_store_loss,
    })
}

fn read_cost(node: &Node, report: &mut Report) -> Option<CostDraft> {
    if !matches!(&*node.kind, Kind::Mapping(_)) {
        return values::count(node, report).map(CostDraft::Fixed);
    }
    let mut fields = Fields::of(node, "cost", report)?;
    let from = fields
        .required("from", "weight", report, |node, report| scalar::text(node, report).map(str::to_owned));
    let default = fields.or("default", 1, report, values::count);
    let max = fields.required("max", "100", report, values::count);
    fields.finish(report);
    if let (Some(least), Some(most)) = (default.value, max.value)
        && least > most
    {
        report.fault(
            default.span,
            format!("the default cost {least} is more than the largest accepted cost {most}"),
            "raise `max` or lower `default`",
        );
    }
    Some(CostDraft::Attribute { from, default, max })
}

fn read_override(node: &Node, report: &mut Report) -> Option<OverrideDraft> {
    let mut fields = Fields::of(node, "this override", report)?;
    let when = fields.required("when", "{ channel: { equals: app } }", report, |node, report| {
        Some(condition::read(node, report))
    });
    let algorithm = read_algorithm(&mut fields, "this override", report);
    fields.finish(report);
    Some(OverrideDraft { when, algorithm })
}

fn read_algorithm(fields: &mut Fields, what: &str, report: &mut Report) -> AlgorithmDraft {
    type Read = fn(&Node, &mut Report) -> Option<Algorithm>;
    let readers: [(&'static str, Read); 6] = [
        ("token_bucket", token_bucket),
        ("fixed_window", |node, report| {
            window("fixed_window", MAX_COUNT, node, report)
                .map(|(limit, window)| Algorithm::FixedWindow { limit, window })
        }),
        ("sliding_log", |node, report| {
            window("sliding_log", MAX_LOG, node, report)
                .map(|(limit, window)| Algorithm::SlidingLog { limit, window })
        }),
        ("sliding_window", |node, report| {
            window("sliding_window", MAX_COUNT, node, report)
                .map(|(limit, window)| Algorithm::SlidingWindow { limit, window })
        }),
        ("leaky_bucket", leaky_bucket),
        ("concurrency", concurrency),
    ];
    let mut found: Vec<(AlgorithmDraft, Span)> = Vec::new();
    for (name, read) in readers {
        let got = fields.optional(name, report, read);
        if got.written {
            let draft = AlgorithmDraft { span: got.span, name: Some(name), value: got.value };
            found.push((draft, got.span));
        }
    }
    found.sort_by_key(|(_, span)| span.start);
    let mut found = found.into_iter();
    let Some((first, _)) = found.next() else {
        report.fault(
            fields.span(),
            format!("an algorithm is missing in {what}"),
            format!("add exactly one of {ALGORITHMS}, for example `token_bucket: {{ capacity: 20, refill: 10/s }}`"),
        );
        return AlgorithmDraft { span: fields.span(), name: None, value: None };
    };
    for (extra, span) in found {
        let (first, extra) = (first.name.unwrap_or_default(), extra.name.unwrap_or_default());
        report.fault(
            span,
            format!("{what} has two algorithms, {first} and {extra}"),
            "keep exactly one; for both, write two limits",
        );
    }
    first
}

fn token_bucket(node: &Node, report: &mut Report) -> Option<Algorithm> {
    let mut fields = Fields::of(node, "token_bucket", report)?;
    let capacity = fields.required("capacity", "20", report, values::count);
    let refill = fields.required("refill", "10/s", report, values::rate);
    fields.finish(report);
    let (size, rate) = (capacity.value?, refill.value?);
    check_fill(size, rate, capacity.span, "an empty bucket would need", report)?;
    Some(Algorithm::TokenBucket { capacity: size, refill: rate })
}

fn leaky_bucket(node: &Node, report: &mut Report) -> Option<Algorithm> {
    let mut fields = Fields::of(node, "leaky_bucket", report)?;
    let rate = fields.required("rate", "10/s", report, values::rate);
    let queue =
        fields.required("queue", "50", report, |node, report| scalar::integer(node, 0..=MAX_QUEUE, report));
    fields.finish(report);
    let (pace, waiting) = (rate.value?, queue.value?);
    check_fill(waiting, pace, queue.span, "a full queue would need", report)?;
    Some(Algorithm::LeakyBucket { rate: pace, queue: waiting })
}

/// Refuses numbers whose arithmetic would leave the range of time.
fn check_fill(count: u64, rate: Rate, span: Span, what: &str, report: &mut Report) -> Option<()> {
    // 10^15 × 366 days in nanoseconds is below 2^105.
    let fill = u128::from(count) * rate.per.as_nanos() / u128::from(rate.count.max(1));
    if fill <= MAX_FILL.as_nanos() {
        return Some(());
    }
    let years = fill.div_ceil(Duration::from_hours(365 * 24).as_nanos());
    report.fault(
        span,
        format!("{what} {years} years at this rate, and 100 are the most"),
        "lower the count or raise the rate",
    );
    None
}

fn concurrency(node: &Node, report: &mut Report) -> Option<Algorithm> {
    let mut fields = Fields::of(node, "concurrency", report)?;
    let max = fields.required("max", "64", report, values::count);
    fields.finish(report);
    Some(Algorithm::Concurrency { max: max.value? })
}

fn window(what: &str, most: u64, node: &Node, report: &mut Report) -> Option<(u64, Duration)> {
    let mut fields = Fields::of(node, what, report)?;
    let limit =
        fields.required("limit", "100", report, |node, report| scalar::integer(node, 1..=most, report));
    let window = fields
        .required("window", "1s", report, |node, report| quantity::duration(node, values::SPANS, report));
    fields.finish(report);
    Some((limit.value?, window.value?))
}
