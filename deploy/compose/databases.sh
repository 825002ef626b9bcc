#!/bin/sh
# One role and one database for each service, and none can open another's; the role of backups reads them all. Runs at every
# start and changes only what is missing, so that a service that is added later gets its database, too.
set -eu
export PGHOST=postgres PGUSER=postgres PGPASSWORD PGCONNECT_TIMEOUT=5
PGPASSWORD=$(cat /secrets/postgres/password)

psql --quiet --no-psqlrc --set ON_ERROR_STOP=1 --set password="$(cat /secrets/postgres/backup.role)" <<'SQL'
SELECT 'CREATE ROLE backup LOGIN' WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'backup') \gexec
ALTER ROLE backup PASSWORD :'password';
ALTER ROLE backup SET default_transaction_read_only = on;
GRANT pg_read_all_data TO backup;
SQL

for service in identity machine_registry session_store orchestrator voice_gateway; do
    password=$(cat "/secrets/postgres/$service.role")
    psql --quiet --no-psqlrc --set ON_ERROR_STOP=1 --set role="$service" --set password="$password" <<'SQL'
SELECT format('CREATE ROLE %I LOGIN', :'role')
WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = :'role') \gexec
ALTER ROLE :"role" PASSWORD :'password';
SELECT format('CREATE DATABASE %I OWNER %I', :'role', :'role')
WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = :'role') \gexec
REVOKE ALL ON DATABASE :"role" FROM PUBLIC;
GRANT CONNECT ON DATABASE :"role" TO backup;
SQL
    echo "database $service is there"
done
