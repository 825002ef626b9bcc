#!/usr/bin/env bash
# All tests of session-store against a table of messages that deploy/postgres/partition_messages.sql has split, on the PostgreSQL
# of TEST_DATABASE_URL or a private one; and the script itself on a table with rows. Needs target/debug.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
if [ -z "${TEST_DATABASE_URL:-}" ]; then exec target/debug/with-postgres "$0" "$@"; fi
sql=$PWD/deploy/postgres/partition_messages.sql

base=${TEST_DATABASE_URL%/*}
database=partitions_$$
ask() { psql -qAt --no-psqlrc --set ON_ERROR_STOP=1 "$base/$database" "$@"; }
psql -q --no-psqlrc "$base/postgres" -c "CREATE DATABASE $database"
trap 'psql -q --no-psqlrc "$base/postgres" -c "DROP DATABASE $database WITH (FORCE)"' EXIT
INTERNAL_TOKEN=$(printf '%032d' 0) DATABASE_URL=$base/$database IDENTITY_RPC_URL=http://127.0.0.1:1 MACHINE_REGISTRY_RPC_URL=http://127.0.0.1:1 \
    target/debug/ensemble-session-store migrate
ask -c "INSERT INTO messages (session_id, seq, id, sender_id, local_id, content, key_epoch, created_at)
    SELECT md5((n / 100)::text)::uuid, n % 100 + 1, gen_random_uuid(), md5('me')::uuid, n::text, repeat('x', 100), 1, now() FROM generate_series(0, 99999) n"
sum="SELECT count(*), md5(string_agg(messages::text, ',' ORDER BY session_id, seq)) FROM messages"
columns="SELECT string_agg(concat(attname, attnotnull, attstorage, atthasdef), ',' ORDER BY attname) FROM pg_attribute WHERE attnum > 0 AND NOT attisdropped AND attrelid ="
before=$(ask -c "$sum" -c "$columns 'messages'::regclass")
ask -f "$sql"
[ "$(ask -c "$sum" -c "$columns 'messages_7'::regclass")" = "$before" ] || { echo "FAILED rows or columns are not as before"; exit 1; }
parts=$(ask -c "SELECT count(DISTINCT tableoid) FROM messages")
[ "$parts" = 32 ] || { echo "FAILED the rows are in $parts partitions"; exit 1; }
echo "ok  100,000 rows are in 32 partitions, as they were"

TEST_TEMPLATE_SQL=$sql ${CARGO:-cargo} test --locked -p ensemble-session-store -- --test-threads "${TEST_THREADS:-4}" postgres
echo "partitions: everything holds"
