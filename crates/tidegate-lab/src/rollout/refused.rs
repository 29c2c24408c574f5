//! `rollout.refused`: rules that must never come into force. The rule file of a running node is
//! rewritten; the rule service refuses, and version 1 stays.

use super::{NEW_CHECKOUT, hits, rules};
use crate::experiment::Experiment;
use crate::node::{Node, block_on};
use crate::params::Share;
use crate::{Expectation, LabError, Report, Row, Run};

/// Enough to see whether the rules of version 1 still answer.
const SUBJECTS: u64 = 1_000;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "rollout.refused",
    about: "120 %, and two rules of equal priority that can both hold: version 1 stays",
    params: &[],
    fits: None,
    run: |_, run| block_on(experiment(run)),
};

const TOO_MUCH: &str = "apiVersion: tidegate/v1
flags:
  - key: new-checkout
    default: \"off\"
    rules:
      - { id: ramp, priority: 10, percentage: 120, serve: \"on\" }
";

const EQUAL_PRIORITY: &str = "apiVersion: tidegate/v1
flags:
  - key: new-checkout
    default: \"off\"
    rules:
      - { id: allow-acme, priority: 50, when: { tenant: { in: [acme] } }, serve: \"on\" }
      - { id: deny-de, priority: 50, when: { country: { in: [DE] } }, serve: \"off\" }
";

async fn experiment(run: &mut Run<'_>) -> Result<Report, LabError> {
    run.steps(2);
    let (node, _) = Node::on_manual_clock(&rules(&[(NEW_CHECKOUT, Share::percent(10))])).await?;
    let first = hits(&*node.plan()?, NEW_CHECKOUT, SUBJECTS)?;
    let mut report = Report::default();
    for (name, text) in [("120 %", TOO_MUCH), ("equal priority", EQUAL_PRIORITY)] {
        let status = node.edit(text).await?;
        let faults = status.refusal.as_ref().map_or(0, |refusal| refusal.faults);
        let now = hits(&*node.plan()?, NEW_CHECKOUT, SUBJECTS)?;
        let same = SUBJECTS - super::differences(&first, &now);
        report.rows.extend([
            Row::new(format!("{name}: faults reported")).tidegate(faults, Expectation::exactly(1_u64)),
            Row::new(format!("{name}: version in force"))
                .tidegate(status.version, Expectation::exactly(1_u64)),
            Row::new(format!("{name}: results as in version 1, of {SUBJECTS}"))
                .tidegate(same, Expectation::exactly(SUBJECTS)),
        ]);
        if let Some(line) = node.refused(&status) {
            report = report.note(format!("{name}: {line}"));
        }
        run.step();
    }
    Ok(report)
}
