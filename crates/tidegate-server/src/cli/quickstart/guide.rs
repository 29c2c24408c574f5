//! The requests that show each gate at work, in an order that works.
//!
//! What stands behind the last ` # ` of a command are the statuses that it shows. A test runs them all.

use std::fmt;
use std::path::Path;

use super::Found;

/// What is printed once everything runs.
pub(super) struct Guide<'a> {
    /// Of the gateway, without a path.
    pub(super) url: String,
    /// The same of the administration.
    pub(super) admin: String,
    /// The rule file.
    pub(super) rules: &'a Path,
    /// How it came to be.
    pub(super) found: Found,
}

/// A part of the guide: a heading, and steps.
struct Part {
    heading: &'static str,
    steps: Vec<Step>,
}

/// One command, what it shows, and the statuses that it comes to.
struct Step {
    shows: &'static str,
    command: String,
    statuses: &'static str,
}

fn step(shows: &'static str, command: impl Into<String>, statuses: &'static str) -> Step {
    Step { shows, command: command.into(), statuses }
}

impl Guide<'_> {
    fn parts(&self) -> Vec<Part> {
        vec![
            self.idempotency(),
            self.limit(),
            self.rollout(),
            self.breaker(),
            self.rule_file(),
            self.administration(),
        ]
    }

    /// A payment: `options` are further ones of curl's, and the key is left out when it is empty.
    fn pay(&self, order: &str, user: &str, key: &str, options: &str) -> String {
        let key = if key.is_empty() { String::new() } else { format!("-H 'Idempotency-Key: {key}' ") };
        format!("curl -i -X POST -H 'X-User: {user}' {key}{options}{}/orders/{order}/pay", self.url)
    }

    fn idempotency(&self) -> Part {
        let steps = vec![
            step("A first payment is carried out.", self.pay("1", "ada", "a-1", "-d amount=10 "), "201"),
            step(
                "The same request again, as a client does that lost the answer: the same payment, not a second one \
                 (see Idempotent-Replayed).",
                self.pay("1", "ada", "a-1", "-d amount=10 "),
                "201",
            ),
            step(
                "The same key for another request is a mistake.",
                self.pay("1", "ada", "a-1", "-d amount=99 "),
                "422",
            ),
            step("Without a key there is no safe retry.", self.pay("1", "ada", "", "-d amount=10 "), "400"),
        ];
        Part { heading: "Idempotency: one key, one payment", steps }
    }

    fn limit(&self) -> Part {
        let pay = format!(
            "curl -s -o /dev/null -w '%{{http_code}} ' -X POST -H 'X-User: bob' -H \"Idempotency-Key: b-$i\" {}/orders/$i/pay",
            self.url
        );
        let steps = vec![
            step(
                "Five payments at once are allowed to each user; the sixth is not.",
                format!("for i in 1 2 3 4 5 6; do {pay}; done"),
                "201 201 201 201 201 429",
            ),
            step(
                "The refusal says when to come back (see Retry-After).",
                self.pay("7", "bob", "b-7", ""),
                "429",
            ),
            step("Others are not held up by it.", self.pay("8", "cleo", "c-1", ""), "201"),
        ];
        Part { heading: "Limit: how often a user may pay", steps }
    }

    fn rollout(&self) -> Part {
        let steps = vec![
            step(
                "The service is told which variant the user gets: \"on\" for staff, by a rule on the address.",
                self.pay("9", "eve@example.com", "e-1", ""),
                "201",
            ),
            step(
                "\"off\" for dan, who is not among the first 10 %; always the same for the same user.",
                self.pay("10", "dan", "d-1", ""),
                "201",
            ),
        ];
        Part { heading: "Rollout: a new checkout for some (see \"flags\" in the answers)", steps }
    }

    fn breaker(&self) -> Part {
        let fail =
            format!("curl -s -o /dev/null -w '%{{http_code}} ' -H 'X-Sample: fail' {}/accounts/1", self.url);
        let steps = vec![
            step("An account, while all is well.", format!("curl -i {}/accounts/1", self.url), "200"),
            step(
                "The service begins to fail. After five calls, most of them bad, the breaker opens.",
                format!("for i in 1 2 3 4; do {fail}; done"),
                "500 500 500 500",
            ),
            step(
                "The service is spared now: the last good answer comes from the cache (see Age and Cache-Status).",
                format!("curl -i {}/accounts/1", self.url),
                "200",
            ),
            step(
                "Nothing is cached for this account: the answer that the rules give for such times.",
                format!("curl -i {}/accounts/2", self.url),
                "503",
            ),
        ];
        Part { heading: "Breaker: a service that fails is left alone for 30 seconds", steps }
    }

    fn rule_file(&self) -> Part {
        let file = quoted(&self.rules.to_string_lossy());
        let edit =
            |from: &str, to: &str| format!("sed -i 's/capacity: {from},/capacity: {to},/' {file}; sleep 2; ");
        let steps = vec![
            step(
                "A higher limit is in force within a second, and bob may pay again.",
                edit("5", "50") + &self.pay("11", "bob", "b-11", ""),
                "201",
            ),
            step(
                "A bad edit changes nothing: the fault, with its line, is printed here, and the version in force stays.",
                edit("50", "-1") + &self.pay("12", "bob", "b-12", ""),
                "201",
            ),
            step(
                "The first limit again. What bob has used is remembered.",
                edit("-1", "5") + &self.pay("13", "bob", "b-13", ""),
                "429",
            ),
        ];
        Part { heading: "Rules: edited while everything runs", steps }
    }
}

impl Guide<'_> {
    fn administration(&self) -> Part {
        let get = |path: &str| format!("curl -i {}{path}", self.admin);
        let steps = vec![
            step(
                "What each resource admitted, refused and failed, and how fast it was.",
                get("/v1/resources"),
                "200",
            ),
            step("Every version of the rules, and the edit that was refused.", get("/v1/audit"), "200"),
            step("The same numbers for Prometheus.", get("/metrics"), "200"),
        ];
        Part { heading: "Administration: what has happened so far", steps }
    }
}

impl fmt::Display for Guide<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "A sample payment service runs behind Tidegate at {}", self.url)?;
        let how = match self.found {
            Found::Written => "written for you",
            Found::Same => "found, as it was written for you before",
            Found::Edited => {
                "found with other rules than the quickstart's, and used as it is; delete it, and start again, \
                 for what is printed below"
            }
        };
        writeln!(f, "Its rules: {} ({how})", self.rules.display())?;
        writeln!(
            f,
            "Run these lines in another terminal, one after the other; behind each stands the status to expect."
        )?;
        for part in self.parts() {
            writeln!(f, "\n== {}", part.heading)?;
            for Step { shows, command, statuses } in part.steps {
                writeln!(f, "\n{shows}\n{command} # {statuses}")?;
            }
        }
        writeln!(f, "\nCtrl-C ends all of it.")
    }
}

/// A path as one word of a shell.
fn quoted(path: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    if !path.is_empty() && path.chars().all(plain) {
        path.to_owned()
    } else {
        format!("'{}'", path.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_one_word() {
        for (path, expected) in [
            ("/tmp/a-b_c.yaml", "/tmp/a-b_c.yaml"),
            ("/tmp/my rules", "'/tmp/my rules'"),
            ("/tmp/it's", r"'/tmp/it'\''s'"),
            ("/tmp/$HOME", "'/tmp/$HOME'"),
        ] {
            assert_eq!(quoted(path), expected);
        }
    }
}
