//! The administration: what is in force, what it has done, and what it would do.
//!
//! Two ports. `--admin` has everything and is for people on this machine: it listens on the loopback
//! interface only, and [`guard`] keeps web pages out. `--health` has the three probes that need no
//! secret, for load balancers and scrapers elsewhere.
//!
//! Nothing here is on the path of a client's request: both ports run on the process's shared runtime,
//! and the gateway's workers have runtimes of their own.

mod audit;
mod explain;
mod flags;
mod guard;
mod health;
mod openapi;
mod port;
mod problem;
mod resources;
mod rules;
mod view;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{MethodRouter, get, post};
use tidegate::Gates;
use tidegate::gates::InForce;
use tidegate::rules::RuleService;
use tidegate_store::rules::RuleStore;

pub use port::{Port, Running};
use problem::Problem;

/// The largest request body, in bytes: a described request with its own body in it.
const MAX_BODY: usize = 4 << 20;

/// What the administration looks at. Cloning shares it.
#[derive(Clone)]
pub struct Subject(Arc<Inner>);

struct Inner {
    gates: Gates,
    store: Arc<dyn RuleStore>,
    /// Set once the first version is in force.
    rules: OnceLock<Arc<RuleService>>,
    hosts: Vec<String>,
    draining: AtomicBool,
}

impl Subject {
    /// Gates whose rules may not be in force yet, the store with their audit trail, and the hosts that
    /// calls go to.
    pub fn new(gates: Gates, store: Arc<dyn RuleStore>, hosts: Vec<String>) -> Self {
        let (rules, draining) = (OnceLock::new(), AtomicBool::new(false));
        Self(Arc::new(Inner { gates, store, rules, hosts, draining }))
    }

    /// Rules are in force: from here on it is ready. The first service that is given counts.
    pub fn set_rules(&self, rules: Arc<RuleService>) {
        // A second one would be a mistake of the caller that changes nothing here.
        let _ = self.0.rules.set(rules);
    }

    /// From here on it is not ready: no new clients, please.
    pub fn drain(&self) {
        self.0.draining.store(true, Ordering::Release);
    }

    fn is_draining(&self) -> bool {
        self.0.draining.load(Ordering::Acquire)
    }

    fn gates(&self) -> &Gates {
        &self.0.gates
    }

    fn store(&self) -> &dyn RuleStore {
        &*self.0.store
    }

    fn hosts(&self) -> &[String] {
        &self.0.hosts
    }

    fn rules(&self) -> Result<&Arc<RuleService>, Problem> {
        self.0.rules.get().ok_or_else(Problem::not_ready)
    }

    fn in_force(&self) -> Result<Arc<InForce>, Problem> {
        self.0.gates.in_force().ok_or_else(Problem::not_ready)
    }
}

/// A path as the document has it, and as the router has it.
type Route = (&'static str, &'static str, MethodRouter<Subject>);

fn probes() -> Vec<Route> {
    vec![
        ("/livez", "/livez", get(health::livez)),
        ("/readyz", "/readyz", get(health::readyz)),
        ("/metrics", "/metrics", get(health::metrics)),
    ]
}

fn administration() -> Vec<Route> {
    let mut routes = probes();
    routes.extend([
        ("/v1/rules", "/v1/rules", get(rules::show)),
        ("/v1/resources", "/v1/resources", get(resources::show)),
        ("/v1/explain", "/v1/explain", post(explain::ask)),
        // A key may have any character, `/` too: the handler takes it out of the path as it was sent.
        ("/v1/flags/{key}/explain", "/v1/flags/{*rest}", get(flags::explain)),
        ("/v1/audit", "/v1/audit", get(audit::show)),
        ("/openapi.json", "/openapi.json", get(openapi::show)),
    ]);
    routes
}

/// Everything, guarded, for the loopback interface.
pub fn router(subject: Subject) -> Router {
    build(administration(), subject).layer(axum::middleware::from_fn(guard::admit))
}

/// Only the probes.
pub fn health_router(subject: Subject) -> Router {
    build(probes(), subject)
}

fn build(routes: Vec<Route>, subject: Subject) -> Router {
    let mut router = Router::new();
    for (_, path, methods) in routes {
        router = router.route(path, methods);
    }
    router
        .fallback(async || Problem::not_found("there is nothing here; /openapi.json lists what there is"))
        .method_not_allowed_fallback(async || Problem::method_not_allowed())
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(axum::middleware::map_response(guard::not_for_caches))
        .with_state(subject)
}

#[cfg(test)]
mod tests;
