//! Shared state on Redis: one server, Sentinel or Cluster.
