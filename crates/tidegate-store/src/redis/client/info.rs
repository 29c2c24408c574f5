//! What a server says of itself.

use std::collections::HashMap;

use super::config::Address;

/// What a server says of itself, for an operator and for warnings about how it is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerInfo {
    /// Where it answered.
    pub address: Address,
    /// `redis`, or `valkey` for a server that says so.
    pub product: String,
    /// As in `7.0.15`, of that product.
    pub version: String,
    /// Master or replica.
    pub role: Role,
    /// What it does at its memory limit, as in `noeviction`. Empty when it does not say.
    pub maxmemory_policy: String,
    /// Its memory limit, in bytes; 0 is none.
    pub maxmemory: u64,
    /// The memory it uses, in bytes.
    pub used_memory: u64,
    /// Changes with each start.
    pub run_id: String,
    /// Replicas that are connected to it.
    pub replicas: u64,
}

/// What a server is to the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Role {
    /// Takes writes.
    Master,
    /// Follows a master.
    Replica,
    /// Something else, as a sentinel.
    Other,
}

impl ServerInfo {
    /// From the answer of `INFO`; `None` when it does not say its version.
    pub(super) fn read(address: Address, info: &str) -> Option<Self> {
        let fields: HashMap<&str, &str> =
            info.lines().filter_map(|line| line.trim_end().split_once(':')).collect();
        let text = |name: &str| fields.get(name).copied().unwrap_or_default().to_owned();
        let number = |name: &str| fields.get(name).and_then(|value| value.parse().ok()).unwrap_or(0);
        // Valkey gives its own version beside the one of Redis that it is like.
        let (product, version) = match (fields.get("valkey_version"), fields.get("redis_version")) {
            (Some(version), _) => ("valkey", version),
            (None, Some(version)) => ("redis", version),
            (None, None) => return None,
        };
        let role = match fields.get("role") {
            Some(&"master") => Role::Master,
            Some(&"slave") => Role::Replica,
            _ => Role::Other,
        };
        Some(Self {
            address,
            product: product.to_owned(),
            version: (*version).to_owned(),
            role,
            maxmemory_policy: text("maxmemory_policy"),
            maxmemory: number("maxmemory"),
            used_memory: number("used_memory"),
            run_id: text("run_id"),
            replicas: number("connected_slaves"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_and_valkey_is_told_apart() {
        let at = || Address::new("a", 1);
        let redis = "# Server\r\nredis_version:7.0.15\r\nrun_id:ab\r\n# Memory\r\nused_memory:10\r\nmaxmemory:20\r\n\
                     maxmemory_policy:noeviction\r\n# Replication\r\nrole:master\r\nconnected_slaves:1\r\n";
        let info = ServerInfo::read(at(), redis).unwrap();
        assert_eq!(
            (info.product.as_str(), info.version.as_str(), info.role),
            ("redis", "7.0.15", Role::Master)
        );
        assert_eq!((info.used_memory, info.maxmemory, info.replicas), (10, 20, 1));
        assert_eq!((info.maxmemory_policy.as_str(), info.run_id.as_str()), ("noeviction", "ab"));
        let valkey = "redis_version:7.2.4\r\nvalkey_version:8.0.1\r\nrole:slave\r\n";
        let info = ServerInfo::read(at(), valkey).unwrap();
        assert_eq!(
            (info.product.as_str(), info.version.as_str(), info.role),
            ("valkey", "8.0.1", Role::Replica)
        );
        assert_eq!(ServerInfo::read(at(), "nothing"), None);
    }
}
