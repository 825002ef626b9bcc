//! The caller's machines.

use ensemble_types::ids::MachineId;
use ensemble_types::machines::{Activity, Machine, MachinePage, RegisterMachine, SeenList, UpdateMachine};
use futures_util::Stream;

use crate::call::LONGEST_RECORD;
use crate::error::{Result, asked_for};
use crate::pages;
use crate::refs::named;
use crate::retry::Repeat;
use crate::transport::Client;

impl Client {
    /// Registers a machine. `true`: it was created. `false`: the caller already owned the id, and the record is the
    /// stored one.
    pub async fn register_machine(&self, machine: &RegisterMachine) -> Result<(Machine, bool)> {
        let key = crate::idempotency_key();
        let call = self.post(&["v1", "machines"], Repeat::Harmless).idempotent(&key).json(machine);
        named(call.at_most(LONGEST_RECORD).send_created().await?)
    }

    pub async fn machine(&self, id: &MachineId) -> Result<Machine> {
        let machine: Machine = self.get(&["v1", "machines", id.as_str()]).at_most(LONGEST_RECORD).send().await?;
        asked_for(id, &machine.id)?;
        named(machine)
    }

    pub async fn machine_page(&self, limit: Option<u32>, cursor: Option<&str>) -> Result<MachinePage> {
        named(self.get(&["v1", "machines"]).query("limit", limit).query("cursor", cursor).send().await?)
    }

    /// All machines, newest first.
    pub fn machines(&self) -> impl Stream<Item = Result<Machine>> + Send {
        let client = self.clone();
        pages::walk(move |cursor| {
            let client = client.clone();
            async move {
                let page = client.machine_page(None, cursor.as_deref()).await?;
                Ok((page.machines, page.next_cursor))
            }
        })
    }

    /// Changes a machine. An update with an expected version is sent once; any other update may be repeated.
    pub async fn update_machine(&self, id: &MachineId, update: &UpdateMachine) -> Result<Machine> {
        let guarded = update.expected_version.is_some()
            || update.expected_metadata_version.is_some()
            || update.expected_daemon_state_version.is_some();
        let repeat = if guarded { Repeat::Harmful } else { Repeat::Harmless };
        let call = self.patch(&["v1", "machines", id.as_str()], repeat).json(update).at_most(LONGEST_RECORD);
        let machine: Machine = call.send().await?;
        asked_for(id, &machine.id)?;
        named(machine)
    }

    /// The machine's heartbeat: the service stores the time, and `activity` for people to see.
    pub async fn machine_heartbeat(&self, id: &MachineId, activity: Activity) -> Result<Machine> {
        self.update_machine(id, &UpdateMachine { activity: Some(activity), ..UpdateMachine::default() }).await
    }

    /// Which list of its owner the calling machine obeys from now on.
    pub async fn say_seen(&self, id: &MachineId, seen: SeenList) -> Result<Machine> {
        self.update_machine(id, &UpdateMachine { seen: Some(seen), ..UpdateMachine::default() }).await
    }

    /// The last heartbeat: the machine is offline from now on.
    pub async fn machine_signs_off(&self, id: &MachineId, activity: Activity) -> Result<Machine> {
        let update = UpdateMachine { activity: Some(activity), online: Some(false), ..UpdateMachine::default() };
        self.update_machine(id, &update).await
    }

    /// Deletes a machine: its tokens stop working, its leases end, and tasks that only it may do fail.
    pub async fn delete_machine(&self, id: &MachineId) -> Result<()> {
        self.delete(&["v1", "machines", id.as_str()]).await
    }
}
