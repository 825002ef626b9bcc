//! Who asked for leases lately, so that tasks can say whether they wait for a machine.

use std::time::Duration;

use diesel::prelude::*;
use ensemble_store_kit::{StoreError, on};
use ensemble_types::ids::{MachineId, UserId};

use super::Store;
use super::sql::{Sql, Value, two_sqls, values};

/// A runner that asked for leases and counts as there for so long.
#[derive(Clone, Debug)]
pub(crate) struct SeenRunner {
    pub(crate) owner: UserId,
    pub(crate) machine: MachineId,
    pub(crate) providers: String,
    pub(crate) within: Duration,
}

impl SeenRunner {
    fn row(&self) -> serde_json::Value {
        serde_json::json!({
            "owner": self.owner.uuid().simple().to_string(),
            "machine": self.machine.as_str(),
            "providers": self.providers,
            "within": u64::try_from(self.within.as_micros()).unwrap_or(0),
        })
    }
}

impl Store {
    /// Notes that runners asked for leases, so that tasks know whether they wait for a machine. One statement for all.
    pub(crate) async fn note_runners(&self, seen: Vec<SeenRunner>) -> Result<(), StoreError> {
        self.db
            .write("note runners", move |tx| {
                let rows: Vec<serde_json::Value> = seen.iter().map(SeenRunner::row).collect();
                let rows = serde_json::Value::from(rows).to_string();
                let upsert: Sql<()> = two_sqls(
                    "INSERT INTO runners (owner_id, machine_id, providers, seen_until) \
                     SELECT owner, machine, providers, {} + within * interval '1 microsecond' \
                     FROM json_to_recordset({}::json) AS x (owner uuid, machine text, providers text, within bigint) \
                     ON CONFLICT (owner_id, machine_id) DO UPDATE \
                     SET providers = excluded.providers, seen_until = excluded.seen_until",
                    "INSERT INTO runners (owner_id, machine_id, providers, seen_until) \
                     SELECT unhex(value ->> 'owner'), value ->> 'machine', value ->> 'providers', \
                     {} + (value ->> 'within') FROM json_each({}) WHERE TRUE \
                     ON CONFLICT (owner_id, machine_id) DO UPDATE \
                     SET providers = excluded.providers, seen_until = excluded.seen_until",
                    values![Value::Now, rows],
                );
                on!(tx, |c| upsert.execute(c))?;
                Ok(())
            })
            .await
    }
}
