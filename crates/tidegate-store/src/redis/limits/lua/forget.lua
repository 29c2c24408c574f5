-- Forgets counters. KEYS: them, and what is kept beside them. Reply: how many were there.
return redis.call('DEL', unpack(K))
