//! The routes of the public listener.

use ensemble_chassis::{Access, Routes, Tag, delete, get, patch, post};
use ensemble_types::deleted::Deleted;
use ensemble_types::machines::{Machine, MachinePage, RegisterMachine, UpdateMachine};
use ensemble_types::problem::Code::{IdempotencyMismatch, InvalidCursor, NotFound, QuotaExceeded, VersionMismatch};

use crate::handlers::machines::{self, PageQuery};

/// Metadata and daemon state at their largest, when every character is escaped (`\u0001`).
const MAX_MACHINE: usize = 4 << 20;

const MACHINES: Tag = Tag("Machines", "The computers on which agents work.");

pub(crate) fn table() -> Routes {
    Routes::new()
        .row(
            post("/v1/machines")
                .access(Access::User)
                .operation(
                    MACHINES,
                    "registerMachine",
                    "Registers a machine; an id that is already yours answers with the stored record.",
                )
                .about(
                    "Metadata and daemon state are sealed by the client and never read by the server. An \
                     account may use an id that another account has.",
                )
                .body::<RegisterMachine>()
                .max_body(MAX_MACHINE)
                .idempotent()
                .response::<Machine>(201)
                .response::<Machine>(200)
                .errors(&[IdempotencyMismatch, QuotaExceeded])
                .closed()
                .handler(machines::register),
        )
        .row(
            get("/v1/machines")
                .access(Access::User)
                .operation(MACHINES, "listMachines", "Lists your machines, newest first.")
                .about("A page ends at `limit` machines or at 4 MiB, whichever is first.")
                .query::<PageQuery>()
                .response::<MachinePage>(200)
                .errors(&[InvalidCursor])
                .handler(machines::list),
        )
        .row(
            get("/v1/machines/{id}")
                .access(Access::UserOrMachine)
                .operation(MACHINES, "getMachine", "Reads a machine.")
                .about("By its id or its ref. A machine's token reads its own machine only.")
                .response::<Machine>(200)
                .errors(&[NotFound])
                .etag()
                .handler(machines::read),
        )
        .row(
            patch("/v1/machines/{id}")
                .access(Access::UserOrMachine)
                .operation(
                    MACHINES,
                    "updateMachine",
                    "Changes a machine's metadata or daemon state; `activity` is its heartbeat.",
                )
                .about(
                    "Metadata and daemon state have a version each; send the version that you have read to \
                     learn of changes by others. A heartbeat raises no version.",
                )
                .body::<UpdateMachine>()
                .max_body(MAX_MACHINE)
                .response::<Machine>(200)
                .errors(&[NotFound, VersionMismatch])
                .handler(machines::update),
        )
        .row(
            delete("/v1/machines/{id}")
                .access(Access::User)
                .operation(MACHINES, "deleteMachine", "Removes a machine, revokes its tokens and ends its leases.")
                .about(
                    "Tasks that only this machine may run fail with MACHINE_DELETED. Sessions keep the \
                     machine's id.",
                )
                .response::<Deleted>(200)
                .errors(&[NotFound])
                .handler(machines::remove),
        )
}
