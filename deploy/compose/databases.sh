#!/bin/sh
# One role and one database for each service, and none can open another's; the role of backups reads them all. Runs at every
# start and changes only what is missing, so that a service that is added later gets its database, too. While passwords are
# rotated, a service has two logins with the rights of one role, and afterwards the one that is not used any more has none.
set -eu
export PGHOST=postgres PGUSER=postgres PGPASSWORD PGCONNECT_TIMEOUT=5
PGPASSWORD=$(cat /secrets/postgres/password)
other=/secrets/postgres/password-other
if [ -s $other ] && ! psql --quiet --no-psqlrc --command '' 2>/dev/null; then
    PGPASSWORD=$(cat $other) psql --quiet --no-psqlrc --set ON_ERROR_STOP=1 --set password="$PGPASSWORD" <<'SQL'
ALTER ROLE postgres PASSWORD :'password';
SQL
fi

psql --quiet --no-psqlrc --set ON_ERROR_STOP=1 --set password="$(cat /secrets/postgres/backup.role)" <<'SQL'
SELECT 'CREATE ROLE backup LOGIN' WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'backup') \gexec
ALTER ROLE backup PASSWORD :'password';
ALTER ROLE backup SET default_transaction_read_only = on;
GRANT pg_read_all_data TO backup;
SQL

for service in identity machine_registry session_store orchestrator voice_gateway; do
    psql --quiet --no-psqlrc --set ON_ERROR_STOP=1 --set role="$service" <<'SQL'
SELECT format('CREATE ROLE %I NOLOGIN', :'role')
WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = :'role') \gexec
SELECT format('CREATE DATABASE %I OWNER %I', :'role', :'role')
WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = :'role') \gexec
REVOKE ALL ON DATABASE :"role" FROM PUBLIC;
GRANT CONNECT ON DATABASE :"role" TO backup;
SQL
    logins=
    for which in "" -other; do
        [ -s "/secrets/postgres/$service.login$which" ] || continue
        login=$(cat "/secrets/postgres/$service.login$which")
        logins="$logins $login"
        psql --quiet --no-psqlrc --set ON_ERROR_STOP=1 --set role="$service" --set login="$login" \
            --set password="$(cat "/secrets/postgres/$service.role$which")" <<'SQL'
SELECT format('CREATE ROLE %I IN ROLE %I', :'login', :'role')
WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = :'login') \gexec
-- What it makes belongs to the role.
SELECT format('ALTER ROLE %I SET role = %L', :'login', :'role') WHERE :'login' <> :'role' \gexec
ALTER ROLE :"login" LOGIN PASSWORD :'password';
SQL
    done
    psql --quiet --no-psqlrc --set ON_ERROR_STOP=1 --set role="$service" --set logins="$logins" <<'SQL'
SELECT format('ALTER ROLE %I NOLOGIN PASSWORD NULL', rolname) FROM pg_roles
WHERE rolname IN (:'role', :'role' || '_2') AND rolcanlogin AND rolname <> ALL (string_to_array(:'logins', ' ')) \gexec
SELECT count(pg_terminate_backend(pid)) AS ended FROM pg_stat_activity
WHERE usename IN (:'role', :'role' || '_2') AND usename <> ALL (string_to_array(:'logins', ' ')) \gset
SQL
    echo "database $service is there"
done
