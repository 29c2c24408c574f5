//! Checks of the rule set as a whole: its size, resources that tie, flag rules that contradict each other.

use crate::document::tree::{MAX_BYTES, MAX_NODES};
use crate::document::{Severity, Span};
use crate::rule::conflict::{Conflict, conflicts};
use crate::rule::model::RuleSet;
use crate::rule::positions::{Finding, Positions};
use crate::rule::route::{RouteFault, RouteTable};
use crate::rule::version;

/// What is published, and loaded by every node, is the rules written out in full, as one document.
pub(super) fn written_out(rules: &RuleSet, _: &Positions) -> Vec<Finding> {
    let document = version::document(rules);
    let (values, bytes) = (document.count(), document.render().len());
    let message = if bytes > MAX_BYTES {
        format!("written out in full, the rules have {bytes} bytes, and {MAX_BYTES} are the most")
    } else if values > MAX_NODES {
        format!("written out in full, the rules have {values} values, and {MAX_NODES} are the most")
    } else {
        return Vec::new();
    };
    fault_at(Some(Span::top(0)), message, "merge rules, or use keys instead of one rule for each case")
        .into_iter()
        .collect()
}

/// No two resources may claim one request with equal right.
pub(super) fn ties(rules: &RuleSet, positions: &Positions) -> Vec<Finding> {
    let Err(faults) = RouteTable::new(&rules.resources) else { return Vec::new() };
    let finding = |fault: &RouteFault| {
        let resource = fault.resource();
        let span = positions.resource_match(resource).or_else(|| positions.resource(resource));
        fault_at(span, fault.problem(), fault.help())
    };
    faults.iter().filter_map(finding).collect()
}

/// Two flag rules of one priority must exclude each other, or serve the same.
pub(super) fn contradictions(rules: &RuleSet, positions: &Positions) -> Vec<Finding> {
    let finding = |conflict: &Conflict| {
        let span = positions.flag_rule(&conflict.flag, &conflict.second);
        fault_at(span, conflict.problem(), conflict.help())
    };
    conflicts(rules).iter().filter_map(finding).collect()
}

fn fault_at(span: Option<Span>, message: String, help: &str) -> Option<Finding> {
    Some(Finding { severity: Severity::Fault, span: span?, message, help: help.to_owned() })
}

#[cfg(test)]
mod tests;
