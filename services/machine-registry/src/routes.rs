//! The routes of the public listener.

use ensemble_chassis::{Access, Routes, delete, get, patch, post};
use ensemble_types::deleted::Deleted;
use ensemble_types::machines::{Machine, MachinePage, RegisterMachine, UpdateMachine};
use ensemble_types::problem::Code::{IdempotencyMismatch, InvalidCursor, NotFound, QuotaExceeded, VersionMismatch};

use crate::handlers::machines::{self, PageQuery};

/// Metadata and daemon state at their largest, when every character is escaped (`\u0001`).
const MAX_MACHINE: usize = 4 << 20;

pub(crate) fn table() -> Routes {
    const TAG: &str = "Machines";
    Routes::new()
        .row(
            post("/v1/machines")
                .access(Access::User)
                .summary(TAG, "Registers a machine; an id that is already yours answers with the stored record.")
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
                .summary(TAG, "Lists your machines, newest first.")
                .query::<PageQuery>()
                .response::<MachinePage>(200)
                .errors(&[InvalidCursor])
                .in_turn()
                .handler(machines::list),
        )
        .row(
            get("/v1/machines/{id}")
                .access(Access::UserOrMachine)
                .summary(TAG, "Reads a machine.")
                .response::<Machine>(200)
                .errors(&[NotFound])
                .etag()
                .handler(machines::read),
        )
        .row(
            patch("/v1/machines/{id}")
                .access(Access::UserOrMachine)
                .summary(TAG, "Changes a machine's metadata or daemon state; `activity` is its heartbeat.")
                .body::<UpdateMachine>()
                .max_body(MAX_MACHINE)
                .response::<Machine>(200)
                .errors(&[NotFound, VersionMismatch])
                .handler(machines::update),
        )
        .row(
            delete("/v1/machines/{id}")
                .access(Access::User)
                .summary(TAG, "Removes a machine, revokes its tokens and ends its leases.")
                .response::<Deleted>(200)
                .errors(&[NotFound])
                .handler(machines::remove),
        )
}
