//! The table of the public door.

use ensemble_chassis::{Routes, Who, get, post};
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
                .who(Who::User)
                .says(TAG, "Submits a plan: 1 to 10,000 tasks that may depend on each other.")
                .takes::<CreateRun>()
                .idempotent()
                .gives::<Run>(201)
                .gives::<Run>(200)
                .errors(&[InvalidDependency, DependencyCycle, MachineNotFound, IdempotencyMismatch, Conflict])
                .to(runs::create),
        )
        .row(
            get("/v1/orchestrator/runs")
                .who(Who::User)
                .says(TAG, "Lists your runs, newest first, without their tasks.")
                .query::<runs::RunQuery>()
                .gives::<RunPage>(200)
                .errors(&[InvalidCursor])
                .to(runs::list),
        )
        .row(
            get("/v1/orchestrator/runs/{id}")
                .who(Who::User)
                .says(TAG, "Reads a run with all its tasks, in the order they were submitted.")
                .gives::<Run>(200)
                .errors(&[NotFound])
                .to(runs::read),
        )
        .row(
            post("/v1/orchestrator/runs/{id}/cancel")
                .who(Who::User)
                .says(TAG, "Cancels what is queued and asks the runners of the rest to stop.")
                .may_take::<CancelRun>()
                .gives::<Run>(200)
                .errors(&[NotFound])
                .to(runs::cancel),
        )
        .row(
            post("/v1/orchestrator/runs/{id}/retry")
                .who(Who::User)
                .says(TAG, "Makes new attempts for the tasks that failed, were cancelled or were given up.")
                .gives::<Run>(200)
                .errors(&[NotFound, Conflict])
                .to(runs::retry),
        );
    on_changes(routes)
}

fn on_changes(routes: Routes) -> Routes {
    const TAG: &str = "Runs";
    const WAITS: &str = "Waits until the run changes, or until it has ended, and tells what changed.";
    routes
        .row(
            post("/v1/orchestrator/runs/{id}/pend")
                .who(Who::User)
                .says(TAG, WAITS)
                .query::<runs::PendQuery>()
                .may_take::<Pend>()
                .gives::<Pended>(200)
                .errors(&[NotFound, InvalidCursor])
                .to(runs::pend),
        )
        .row(
            get("/v1/orchestrator/runs/{id}/pend")
                .who(Who::User)
                .says(TAG, WAITS)
                .query::<runs::PendQuery>()
                .gives::<Pended>(200)
                .errors(&[NotFound, InvalidCursor])
                .to(runs::pend),
        )
        .row(
            get("/v1/orchestrator/runs/{id}/events")
                .who(Who::User)
                .says(TAG, "Streams the run's changes until it has ended; an event's id is the run's version.")
                .query::<events::EventQuery>()
                .gives_as(200, "text/event-stream")
                .errors(&[NotFound, InvalidCursor])
                .to(events::stream),
        )
        .row(
            get("/v1/orchestrator/runs/{id}/tasks/{taskId}/output")
                .who(Who::User)
                .says(TAG, "Reads the output of a task's attempt, whole, in part (`Range`) or live (`follow`).")
                .query::<outputs::OutputQuery>()
                .gives_as(200, "text/plain")
                .gives_as(206, "text/plain")
                .errors(&[NotFound, RangeNotSatisfiable])
                .to(outputs::read),
        )
}

fn on_leases(routes: Routes) -> Routes {
    const TAG: &str = "Runners";
    routes
        .row(
            post("/v1/orchestrator/leases")
                .who(Who::Machine)
                .says(TAG, "Takes tasks to run, and waits for some when there are none.")
                .takes::<LeaseRequest>()
                .gives::<Leases>(200)
                .to(leases::take),
        )
        .row(
            post("/v1/orchestrator/leases/{id}/heartbeat")
                .who(Who::Machine)
                .says(TAG, "Says that the attempt goes on; tells whether it should end.")
                .takes::<LeaseHeartbeat>()
                .gives::<LeaseBeat>(200)
                .errors(&[NotFound, LeaseLost])
                .to(leases::beat),
        )
        .row(
            post("/v1/orchestrator/leases/{id}/output")
                .who(Who::Machine)
                .says(TAG, "Hands in a piece of the attempt's output.")
                .takes::<LeaseOutput>()
                .gives::<LeaseOutputTaken>(200)
                .errors(&[NotFound, LeaseLost, Conflict])
                .to(leases::output),
        )
        .row(
            post("/v1/orchestrator/leases/{id}/finish")
                .who(Who::Machine)
                .says(TAG, "Reports how the attempt ended. May be repeated.")
                .takes::<LeaseFinish>()
                .gives::<LeaseFinished>(200)
                .errors(&[NotFound, LeaseLost])
                .to(leases::finish),
        )
}
