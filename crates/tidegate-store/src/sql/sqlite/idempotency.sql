-- One row for each idempotency key that was ever claimed, until it is purged.
--
-- Text compares byte by byte (BINARY is the default collation): no padding, trimming or folding.
-- The rows lie in the order of their making, not of their keys: keys are random, and a row is
-- written twice within a short time.
-- Times are milliseconds since 1970-01-01T00:00:00Z by SQLite's own clock, spans milliseconds.
CREATE TABLE IF NOT EXISTS tidegate_idempotency (
    operation        TEXT    NOT NULL,
    scope            TEXT    NOT NULL,
    key              TEXT    NOT NULL,
    state            TEXT    NOT NULL CHECK (state IN ('PROCESSING', 'SUCCEEDED', 'FAILED', 'RELEASED')),
    token            INTEGER NOT NULL CHECK (token >= 1),
    owner            TEXT    NOT NULL CHECK (length(owner) = 32),
    fingerprint      BLOB    NOT NULL,
    commit_mode      TEXT    NOT NULL CHECK (commit_mode IN ('after_response', 'with_effects', 'one_transaction')),
    on_unknown       TEXT    NOT NULL CHECK (on_unknown IN ('hold', 'retry')),
    retention_ms     INTEGER NOT NULL,
    window_ms        INTEGER,
    rules_version    INTEGER NOT NULL,
    flags            TEXT    NOT NULL,
    attempts         INTEGER NOT NULL,
    first_claimed_at INTEGER NOT NULL,
    claimed_at       INTEGER NOT NULL,
    execution_until  INTEGER NOT NULL,
    lease_until      INTEGER NOT NULL,
    changed_at       INTEGER NOT NULL,
    expires_at       INTEGER NOT NULL,
    status           INTEGER CHECK (status BETWEEN 200 AND 599),
    headers          BLOB,              -- `name: value` lines, each ended by CRLF
    body             BLOB,              -- null when it was too large to keep
    PRIMARY KEY (operation, scope, key),
    CHECK ((state IN ('SUCCEEDED', 'FAILED')) = (status IS NOT NULL AND headers IS NOT NULL))
) STRICT;

CREATE INDEX IF NOT EXISTS tidegate_idempotency_expiry ON tidegate_idempotency (expires_at);
