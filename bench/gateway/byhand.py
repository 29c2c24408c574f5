#!/usr/bin/env python3
"""The statements of a first call sent by hand: insert, committed; update, committed. One connection, WAL, synchronous=FULL."""
import os, sqlite3, sys, time

path, secs = sys.argv[1], float(sys.argv[2])
db = sqlite3.connect(path, isolation_level=None)
db.execute("PRAGMA journal_mode=WAL")
db.execute("PRAGMA synchronous=FULL")
db.execute("CREATE TABLE IF NOT EXISTS r (k TEXT PRIMARY KEY, state TEXT, token INTEGER, owner BLOB, lease INTEGER, body BLOB)")
n, end, body, owner = 0, time.monotonic() + secs, os.urandom(64), os.urandom(16)
while time.monotonic() < end:
    n += 1
    key = f"{os.getpid()}-{time.monotonic_ns()}"
    db.execute("INSERT INTO r VALUES (?, 'PROCESSING', 1, ?, 30000, NULL)", (key, owner))
    db.execute("UPDATE r SET state = 'SUCCEEDED', body = ? WHERE k = ? AND token = 1 AND owner = ?", (body, key, owner))
print(f"{n / secs:.0f}")
