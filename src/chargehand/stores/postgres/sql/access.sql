-- Statements about API keys, sessions, the operator log and remembered answers.

-- name: add_key
INSERT INTO chargehand_key (id, name, digest, scopes, created_ms, expires_ms, used_ms, revoked_ms)
VALUES ($1, $2, $3, $4, $5::bigint, $6::bigint, $7::bigint, $8::bigint) ON CONFLICT DO NOTHING RETURNING id

-- name: revoke_key
UPDATE chargehand_key SET revoked_ms = {now} WHERE (name = $2 OR id = $2) AND revoked_ms IS NULL RETURNING id

-- name: end_sessions
DELETE FROM chargehand_session WHERE key = ANY ($1::text[])

-- name: touch_key
UPDATE chargehand_key SET used_ms = greatest(coalesce(used_ms, 0), $2::bigint) WHERE id = $1

-- name: sign_in
INSERT INTO chargehand_session (digest, key, created_ms, expires_ms) VALUES ($1, $2, $3::bigint, $4::bigint)
ON CONFLICT (digest) DO UPDATE
SET key = excluded.key, created_ms = excluded.created_ms, expires_ms = excluded.expires_ms

-- name: too_many
DELETE FROM chargehand_session WHERE digest IN (
  SELECT digest FROM chargehand_session WHERE key = $1 ORDER BY created_ms DESC, digest COLLATE "C" OFFSET $2::bigint)

-- name: sign_out
DELETE FROM chargehand_session WHERE digest = ANY ($1::text[])

-- name: log
INSERT INTO chargehand_operation (at_ms, who, verb, target, detail, origin)
SELECT {now}, who, verb, target, detail, origin
FROM ROWS FROM (json_to_recordset($2::json) AS (who text, verb text, target text, detail text, origin text))
  WITH ORDINALITY AS e(who, verb, target, detail, origin, nr) ORDER BY nr

-- name: remember
INSERT INTO chargehand_remembered (caller, key, digest, status, body, at_ms) VALUES ($2, $3, $4, $5::int, $6, {now})
ON CONFLICT (caller, key) DO UPDATE
SET digest = excluded.digest, status = excluded.status, body = excluded.body, at_ms = excluded.at_ms

-- name: one_request
-- A request that is repeated while it is being answered waits for the answer; the statement after this one sees it.
SELECT pg_advisory_xact_lock(hashtextextended('chargehand request ' || current_schema() || ' ' || $1 || ' ' || $2, 0))

-- name: remembered
SELECT caller, key, digest, status, body FROM chargehand_remembered
WHERE caller = $2 AND key = $3 AND at_ms > {now} - $4::bigint
