//! `tidegate idempotency resolve` and `release`.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use clap::ValueEnum;
use serde_json::json;
use tidegate::env::Env;
use tidegate_core::idempotency::transition::Verdict;
use tidegate_core::idempotency::{Outcome, Owner, RecordId, Stage, StoredResponse};
use tidegate_core::rule::bounds::MAX_RESPONSE;
use tidegate_core::rule::render;
use tidegate_store::StoreError;
use tidegate_store::rules::{AuditKind, MAX_NOTE, NewAuditEntry};
use tidegate_store::traits::{Settled, Shown};

use super::{Store, Trouble, Which};
use crate::cli::output::{print, say};
use crate::cli::{Exit, input};
use crate::serve;

/// How often a command is repeated whose commit the database did not acknowledge.
const TRIES: usize = 3;

/// Whose word it is, and about which state.
#[derive(Debug, clap::Args)]
struct Word {
    /// The token that `show` printed: a conflict when the record has another by now
    #[arg(long, value_name = "N")]
    token: Option<u64>,
    /// Who says so, for the audit trail [default: the user of the operating system]
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
    /// Why, for the audit trail
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
    /// Print what was done as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct ResolveArgs {
    #[command(flatten)]
    which: Which,
    /// What the silent attempt did
    #[arg(long = "as", value_name = "OUTCOME")]
    outcome: Finding,
    /// The status that retries replay; with happened
    #[arg(long, value_name = "STATUS", required_if_eq("outcome", "happened"))]
    status: Option<u16>,
    /// A header that retries replay, as 'name: value'; may be given again
    #[arg(long, value_name = "HEADER")]
    header: Vec<String>,
    /// The body that retries replay; - is standard input [default: an empty body]
    #[arg(long, value_name = "FILE")]
    body: Option<PathBuf>,
    #[command(flatten)]
    word: Word,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Finding {
    /// It took effect: retries replay what is given here
    Happened,
    /// It took none: the next call executes
    NotApplied,
}

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct ReleaseArgs {
    #[command(flatten)]
    which: Which,
    /// Release it even while an attempt holds it: when its executor is known to be dead, or the
    /// intent may be carried out twice
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    word: Word,
}

/// What is to be done.
struct Command<'a> {
    which: &'a Which,
    word: &'a Word,
    kind: AuditKind,
    /// `None` releases a leased record too.
    verdict: Option<Verdict>,
    /// What the audit trail and the answer say.
    what: String,
}

pub(super) async fn resolve(args: &ResolveArgs) -> Result<Exit, Trouble> {
    let (verdict, what) = match args.outcome {
        Finding::Happened => match result(args) {
            Ok(response) => {
                let what = format!("resolved as happened with status {}", response.status());
                (Verdict::Happened(Arc::new(response)), what)
            }
            Err(why) => {
                say(why);
                return Ok(Exit::Usage);
            }
        },
        Finding::NotApplied => {
            if args.status.is_some() || !args.header.is_empty() || args.body.is_some() {
                say(
                    "--status, --header and --body are for --as happened: what was not applied has no result",
                );
                return Ok(Exit::Usage);
            }
            (Verdict::NotApplied, "resolved as not applied".to_owned())
        }
    };
    let kind = AuditKind::IdempotencyResolved;
    Command { which: &args.which, word: &args.word, kind, verdict: Some(verdict), what }.run().await
}

pub(super) async fn release(args: &ReleaseArgs) -> Result<Exit, Trouble> {
    let kind = AuditKind::IdempotencyReleased;
    let (verdict, what) =
        if args.force { (None, "released by force") } else { (Some(Verdict::NotApplied), "released") };
    Command { which: &args.which, word: &args.word, kind, verdict, what: what.to_owned() }.run().await
}

/// The result that retries replay.
fn result(args: &ResolveArgs) -> Result<StoredResponse, String> {
    let status = args.status.unwrap_or_default();
    if Outcome::of_status(status) != Outcome::Final {
        return Err(format!(
            "--status {status}: such an answer is never a result; give a status from 200 to 499 other than 401, 407, 408, 425 and 429"
        ));
    }
    let mut headers = Vec::new();
    for header in &args.header {
        let (name, value) =
            header.split_once(':').ok_or_else(|| format!("--header {header:?}: write 'name: value'"))?;
        headers.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
    }
    let body = match &args.body {
        None => Bytes::new(),
        Some(path) => {
            let read = input::bytes(path, usize::try_from(MAX_RESPONSE).unwrap_or(usize::MAX));
            read.map_err(|error| format!("--body: {} cannot be read: {error}", input::name(path)))?.into()
        }
    };
    let names: Vec<String> = headers.iter().map(|(name, _)| name.clone()).collect();
    let pairs = || headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
    let kept =
        StoredResponse::keep(status, pairs(), Some(body), &names).map_err(|error| error.to_string())?;
    if let Some(never) = names.iter().find(|name| !kept.headers().any(|(kept, _)| kept == **name)) {
        return Err(format!(
            "--header {never}: it belongs to one exchange, or is made anew for each answer, and is never replayed; leave it out"
        ));
    }
    Ok(kept)
}

impl Command<'_> {
    async fn run(&self) -> Result<Exit, Trouble> {
        if self.word.reason.len() > MAX_NOTE || self.word.by.as_ref().is_some_and(|by| by.len() > MAX_NOTE) {
            say(format_args!("--by and --reason take at most {MAX_NOTE} bytes"));
            return Ok(Exit::Usage);
        }
        let store = Store::open(self.which).await?;
        let (id, seen) = store.read(self.which).await?;
        let fence = seen.record.fence;
        if let Some(token) = self.word.token
            && token != fence.token
        {
            say(format_args!("the record has token {} by now, not {token}: look at it again", fence.token));
            return Ok(Exit::Conflict);
        }
        if seen.record.stage != Stage::Processing {
            let state = seen.record.stage.state().as_str();
            say(format_args!(
                "nothing was done: the record is {state}, and only a PROCESSING one can be settled"
            ));
            return Ok(Exit::Conflict);
        }
        store.trail().await?;
        match self.settle(&store, &id, &seen).await.map_err(|error| store.failed(error))? {
            Settled::Done => {
                self.say_done(&id)?;
                Ok(Exit::Fine)
            }
            Settled::Leased { left } => {
                say(format_args!(
                    "nothing was done: an attempt holds the record for another {}; wait for its end, or, when its \
                     executor is known to be dead, use `tidegate idempotency release --force`",
                    render::duration(left)
                ));
                Ok(Exit::Refused)
            }
            Settled::Changed => {
                say("nothing was done: the record has changed since it was read; look at it again");
                Ok(Exit::Conflict)
            }
        }
    }

    async fn settle(&self, store: &Store, id: &RecordId, seen: &Shown) -> Result<Settled, StoreError> {
        // One owner for every repetition, by which the command knows itself again.
        let by = Owner(Env::system().nonce());
        let mut tries = 1;
        loop {
            let (fence, verdict) = (seen.record.fence, self.verdict.as_ref());
            let settled = store.records.settle_audited(id, fence, by, verdict, self.entry(id)).await;
            match settled {
                Err(StoreError::CommitUnknown { .. }) if tries < TRIES => tries += 1,
                settled => return settled,
            }
        }
    }

    /// The trail's entry, in words about the record as the change found it: a lease may end between
    /// the look and the act.
    fn entry(&self, id: &RecordId) -> impl Fn(&Shown) -> NewAuditEntry + Send + Sync + 'static {
        let (node, kind) = (serve::host(), self.kind);
        let who = self.word.by.clone().unwrap_or_else(user);
        let done = format!("{id}: {}", self.what);
        let reason =
            if self.word.reason.is_empty() { "none given".to_owned() } else { self.word.reason.clone() };
        move |seen| {
            let record = &seen.record;
            let held = if record.is_leased(seen.now) { "held" } else { "silent" };
            NewAuditEntry {
                node: node.clone(),
                kind,
                version: None,
                digest: None,
                who: who.clone(),
                detail: format!(
                    "{done}; it was PROCESSING and {held}, token {}, owner {}; reason: {reason}",
                    record.fence.token, record.fence.owner
                ),
            }
        }
    }

    fn say_done(&self, id: &RecordId) -> std::io::Result<()> {
        let next = match &self.verdict {
            Some(Verdict::Happened(_)) => "retries replay this result",
            _ => "the next call with this key executes",
        };
        if !self.word.json {
            return print(format_args!("{id}: {}; {next}", self.what));
        }
        let state = match &self.verdict {
            Some(Verdict::Happened(response)) => response.state(),
            _ => tidegate_core::idempotency::State::Released,
        };
        print(json!({
            "operation": id.operation(),
            "scope": id.scope(),
            "key": id.key(),
            "done": self.kind.as_str(),
            "state": state.as_str(),
        }))
    }
}

/// Who runs this process, by the system's word and not by a variable that anybody may set.
pub(in crate::cli) fn user() -> String {
    let Ok(process) = std::fs::metadata("/proc/self") else { return "unknown".to_owned() };
    let uid = process.uid();
    user_name(uid, Path::new("/etc/passwd")).unwrap_or_else(|| format!("uid {uid}"))
}

fn user_name(uid: u32, passwd: &Path) -> Option<String> {
    let passwd = std::fs::read_to_string(passwd).ok()?;
    let line = passwd.lines().find(|line| line.split(':').nth(2) == Some(uid.to_string().as_str()))?;
    line.split(':').next().map(str::to_owned)
}
