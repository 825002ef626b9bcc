//! The table of the public door.

use ensemble_chassis::{Routes, Who, delete, get, patch, post};
use ensemble_types::deleted::Deleted;
use ensemble_types::machines::{Machine, MachinePage, RegisterMachine, UpdateMachine};
use ensemble_types::problem::Code::{IdempotencyMismatch, InvalidCursor, NotFound, VersionMismatch};

use crate::handlers::machines::{self, PageQuery};

pub(crate) fn table() -> Routes {
    const TAG: &str = "Machines";
    Routes::new()
        .row(
            post("/v1/machines")
                .who(Who::User)
                .says(TAG, "Registers a machine; an id that is already yours answers with the stored record.")
                .takes::<RegisterMachine>()
                .idempotent()
                .gives::<Machine>(201)
                .gives::<Machine>(200)
                .errors(&[IdempotencyMismatch])
                .to(machines::register),
        )
        .row(
            get("/v1/machines")
                .who(Who::User)
                .says(TAG, "Lists your machines, newest first.")
                .query::<PageQuery>()
                .gives::<MachinePage>(200)
                .errors(&[InvalidCursor])
                .to(machines::list),
        )
        .row(
            get("/v1/machines/{id}")
                .who(Who::UserOrMachine)
                .says(TAG, "Reads a machine.")
                .gives::<Machine>(200)
                .errors(&[NotFound])
                .to(machines::read),
        )
        .row(
            patch("/v1/machines/{id}")
                .who(Who::UserOrMachine)
                .says(TAG, "Changes a machine's metadata or daemon state; `activity` is its heartbeat.")
                .takes::<UpdateMachine>()
                .gives::<Machine>(200)
                .errors(&[NotFound, VersionMismatch])
                .to(machines::update),
        )
        .row(
            delete("/v1/machines/{id}")
                .who(Who::User)
                .says(TAG, "Removes a machine, revokes its tokens and ends its leases.")
                .gives::<Deleted>(200)
                .errors(&[NotFound])
                .to(machines::remove),
        )
}
