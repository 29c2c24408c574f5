//! Where Redis is, and with which certificates it is reached.

use std::path::PathBuf;

use tidegate_core::document::scalar::text;
use tidegate_core::document::{Node, Report};
use tidegate_store::redis::RedisConfig;

use super::{Form, Reader, path};
use crate::config::RedisSetting;

impl Reader<'_, '_, '_> {
    /// `redis`, or what the file says that `redis_file` names; and `redis_tls`.
    pub(super) fn redis(&mut self) -> Option<RedisSetting> {
        let base = self.base.to_owned();
        let written =
            self.top("redis", Form::Text, |node, report| redis_url(node, text(node, report)?, report));
        let in_file = self.top("redis_file", Form::Text, |node, report| {
            let path = path(node, &base, report)?;
            match std::fs::read_to_string(&path) {
                Ok(url) => redis_url(node, url.trim(), report),
                Err(error) => {
                    let message = format!("cannot read {}: {error}", path.display());
                    report.fault(node.span, message, "name a readable file that holds the URL");
                    None
                }
            }
        });
        if let (Some(_), Some(in_file)) = (&written, &in_file) {
            let message = "the URL of Redis is given twice, in `redis` and in a file";
            self.report.fault(in_file.span, message, "leave one of them out");
        }
        let mut tls = RedisTls::default();
        self.section("redis_tls", |section| {
            for (name, value) in [
                ("redis_tls.ca", &mut tls.ca),
                ("redis_tls.certificate", &mut tls.certificate),
                ("redis_tls.key", &mut tls.key),
            ] {
                section.set(name, value, |node, report| path(node, &base, report).map(Some));
            }
        });
        let certificate = tls.certificate.zip(tls.key);
        written.or(in_file).map(|url| RedisSetting { url: url.value, ca: tls.ca, certificate })
    }
}

/// The messages of a URL's faults repeat no part of it, as it may hold a password.
fn redis_url(node: &Node, url: &str, report: &mut Report) -> Option<String> {
    match RedisConfig::from_url(url) {
        Ok(_) => Some(url.to_owned()),
        Err(error) => {
            report.fault(node.span, error.to_string(), "write redis://[USER:PASSWORD@]HOST:PORT[/DATABASE]");
            None
        }
    }
}

/// Files of `redis_tls`.
#[derive(Default)]
struct RedisTls {
    ca: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
}
