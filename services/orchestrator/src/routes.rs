//! The table of the public door.

use ensemble_chassis::{Access, Routes, get, post};
use ensemble_types::leases::{
    LeaseBeat, LeaseFinish, LeaseFinished, LeaseHeartbeat, LeaseOutput, LeaseOutputTaken, LeaseRequest, Leases,
};
use ensemble_types::problem::Code::{
    Conflict, DependencyCycle, IdempotencyMismatch, InvalidCursor, InvalidDependency, LeaseLost, MachineNotFound,
    NotFound, RangeNotSatisfiable,
};
use ensemble_types::runs::{CancelRun, CreateRun, Pend, Pended, Run, RunPage};

use crate::handlers::{events, leases, outputs, runs};

pub(crate) fn table() -> Routes {
    on_leases(on_runs(Routes::new()))
}

fn on_runs(routes: Routes) -> Routes {
    const TAG: &str = "Runs";
    let routes = routes
        .row(
            post("/v1/orchestrator/runs")
                .access(Access::User)
                .summary(TAG, "Submits a plan: 1 to 10,000 tasks that may depend on each other.")
                .body::<CreateRun>()
                .idempotent()
                .response::<Run>(201)
                .response::<Run>(200)
                .errors(&[InvalidDependency, DependencyCycle, MachineNotFound, IdempotencyMismatch, Conflict])
                .handler(runs::create),
        )
        .row(
            get("/v1/orchestrator/runs")
                .access(Access::User)
                .summary(TAG, "Lists your runs, newest first, without their tasks.")
                .query::<runs::RunQuery>()
                .response::<RunPage>(200)
                .errors(&[InvalidCursor])
                .handler(runs::list),
        )
        .row(
            get("/v1/orchestrator/runs/{id}")
                .access(Access::User)
                .summary(TAG, "Reads a run with all its tasks, in the order they were submitted.")
                .response::<Run>(200)
                .errors(&[NotFound])
                .handler(runs::read),
        )
        .row(
            post("/v1/orchestrator/runs/{id}/cancel")
                .access(Access::User)
                .summary(TAG, "Cancels what is queued and asks the runners of the rest to stop.")
                .optional_body::<CancelRun>()
                .response::<Run>(200)
                .errors(&[NotFound])
                .handler(runs::cancel),
        )
        .row(
            post("/v1/orchestrator/runs/{id}/retry")
                .access(Access::User)
                .summary(TAG, "Makes new attempts for the tasks that failed, were cancelled or were given up.")
                .response::<Run>(200)
                .errors(&[NotFound, Conflict])
                .handler(runs::retry),
        );
    on_changes(routes)
}

fn on_changes(routes: Routes) -> Routes {
    const TAG: &str = "Runs";
    const WAITS: &str = "Waits until the run changes, or until it has ended, and tells what changed.";
    routes
        .row(
            post("/v1/orchestrator/runs/{id}/pend")
                .access(Access::User)
                .summary(TAG, WAITS)
                .query::<runs::PendQuery>()
                .optional_body::<Pend>()
                .response::<Pended>(200)
                .errors(&[NotFound, InvalidCursor])
                .handler(runs::pend),
        )
        .row(
            get("/v1/orchestrator/runs/{id}/pend")
                .access(Access::User)
                .summary(TAG, WAITS)
                .query::<runs::PendQuery>()
                .response::<Pended>(200)
                .errors(&[NotFound, InvalidCursor])
                .handler(runs::pend),
        )
        .row(
            get("/v1/orchestrator/runs/{id}/events")
                .access(Access::User)
                .summary(TAG, "Streams the run's changes until it has ended; an event's id is the run's version.")
                .query::<events::EventQuery>()
                .response_as(200, "text/event-stream")
                .errors(&[NotFound, InvalidCursor])
                .handler(events::stream),
        )
        .row(
            get("/v1/orchestrator/runs/{id}/tasks/{taskId}/output")
                .access(Access::User)
                .summary(TAG, "Reads the output of a task's attempt, whole, in part (`Range`) or live (`follow`).")
                .query::<outputs::OutputQuery>()
                .response_as(200, "text/plain")
                .response_as(206, "text/plain")
                .errors(&[NotFound, RangeNotSatisfiable])
                .handler(outputs::read),
        )
}

fn on_leases(routes: Routes) -> Routes {
    const TAG: &str = "Runners";
    routes
        .row(
            post("/v1/orchestrator/leases")
                .access(Access::Machine)
                .summary(TAG, "Takes tasks to run, and waits for some when there are none.")
                .body::<LeaseRequest>()
                .response::<Leases>(200)
                .handler(leases::take),
        )
        .row(
            post("/v1/orchestrator/leases/{id}/heartbeat")
                .access(Access::Machine)
                .summary(TAG, "Says that the attempt goes on; tells whether it should end.")
                .body::<LeaseHeartbeat>()
                .response::<LeaseBeat>(200)
                .errors(&[NotFound, LeaseLost])
                .handler(leases::beat),
        )
        .row(
            post("/v1/orchestrator/leases/{id}/output")
                .access(Access::Machine)
                .summary(TAG, "Hands in a piece of the attempt's output.")
                .body::<LeaseOutput>()
                .response::<LeaseOutputTaken>(200)
                .errors(&[NotFound, LeaseLost, Conflict])
                .handler(leases::output),
        )
        .row(
            post("/v1/orchestrator/leases/{id}/finish")
                .access(Access::Machine)
                .summary(TAG, "Reports how the attempt ended. May be repeated.")
                .body::<LeaseFinish>()
                .response::<LeaseFinished>(200)
                .errors(&[NotFound, LeaseLost])
                .handler(leases::finish),
        )
}
