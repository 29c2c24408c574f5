//! `idempotency.replay`: the same key again, and then with another body.

use std::time::Duration;

use http::{Request, Response, StatusCode};
use sqlx::SqlitePool;
use tidegate::Body;
use tidegate::call::{Call, CallError};

use super::{Database, KEY, answer, ask, register, registered};
use crate::experiment::Experiment;
use crate::node::block_on;
use crate::params::{Param, Spec};
use crate::{Expectation, LabError, Report, Row, Run};

const AGAIN: Param<u64> =
    Param { name: "again", about: "how often the call is repeated", default: 5, low: 1, high: 1_000 };

pub(crate) const EXPERIMENT: Experiment = Experiment {
    id: "idempotency.replay",
    about: "the same key again is answered by the first result; with another body it is refused",
    params: &[Spec::Count(AGAIN)],
    fits: None,
    run: |params, run| block_on(experiment(params.count(&AGAIN), run)),
};

/// Registers whoever the body names.
#[derive(Clone)]
struct Registers(SqlitePool);

impl Call for Registers {
    async fn call(&self, request: Request<Body>, _timeout: Duration) -> Result<Response<Body>, CallError> {
        let name = request.into_body().collect(super::MAX_ANSWER).await.unwrap_or_default();
        let name = String::from_utf8_lossy(&name).into_owned();
        let Ok(mut conn) = self.0.acquire().await else {
            return Ok(answer(StatusCode::INTERNAL_SERVER_ERROR, "no connection".to_owned()));
        };
        Ok(match register(&mut conn, &name).await {
            Ok(()) => answer(StatusCode::CREATED, registered(&name)),
            Err(error) => answer(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        })
    }

    fn host(&self) -> &'static str {
        "business"
    }
}

async fn experiment(again: u64, run: &mut Run<'_>) -> Result<Report, LabError> {
    run.steps(again + 2);
    let database = Database::new().await?;
    let node = database.node().await?;
    let business = Registers(database.pool.clone());
    let first = ask(&node.gates, KEY, "alice", &business).await?;
    run.step();
    let mut replays = 0;
    for _ in 0..again {
        let told = ask(&node.gates, KEY, "alice", &business).await?;
        replays += u64::from(told.replayed && told.status == first.status && told.body == first.body);
        run.step();
    }
    let rows = database.rows().await?;
    let other = ask(&node.gates, KEY, "bob", &business).await?;
    run.step();
    let said = format!("{} {}", first.status.as_u16(), String::from_utf8_lossy(&first.body));
    Ok(Report::of(vec![
        Row::new("first answer").tidegate(said.as_str(), Expectation::exactly("201 registration for alice")),
        Row::new("replays of that very answer").tidegate(replays, Expectation::exactly(again)),
        Row::new("rows after them").tidegate(rows, Expectation::exactly(1_u64)),
        Row::new("status for another body")
            .tidegate(u64::from(other.status.as_u16()), Expectation::exactly(422_u64)),
        Row::new("rows after it").tidegate(database.rows().await?, Expectation::exactly(1_u64)),
    ]))
}
