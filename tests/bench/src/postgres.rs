//! Which PostgreSQL is measured, and with which settings: figures of other settings are other figures.

use anyhow::{Context, Result};

use crate::machine::Machine;

/// Those that decide what a commit costs, and all others that were changed and concern how it works. `boot_val` is PostgreSQL's default;
/// what the server itself has worked out from it is not a change.
const SETTINGS: &str = "
    WITH setting AS (
        SELECT name, category, setting IS DISTINCT FROM boot_val AND source NOT IN ('default', 'override') AS changed
        FROM pg_settings)
    SELECT name, current_setting(name) || CASE WHEN changed THEN ' (not the default)' ELSE '' END
    FROM setting
    WHERE name IN ('fsync', 'full_page_writes', 'max_connections', 'max_wal_size', 'shared_buffers', 'synchronous_commit',
                   'wal_compression', 'wal_level', 'wal_sync_method')
        OR changed AND category ~ '^(Resource Usage|Write-Ahead Log|Query Tuning|Replication|Autovacuum|Vacuuming)'
    ORDER BY name";

/// Its version and settings, in two lines.
pub(crate) fn described(machine: &Machine) -> Result<String> {
    let version = machine.rows(&machine.admin_url, "SELECT version()")?.concat().concat();
    let settings = machine.rows(&machine.admin_url, SETTINGS)?;
    let settings = settings.iter().map(|row| match row.as_slice() {
        [name, value] => Ok(format!("{name} {value}")),
        _ => anyhow::bail!("a setting has {} columns", row.len()),
    });
    let settings = settings.collect::<Result<Vec<_>>>().context("the settings of PostgreSQL")?;
    Ok(format!("Measured on {version}\nwith {}.", settings.join(", ")))
}
