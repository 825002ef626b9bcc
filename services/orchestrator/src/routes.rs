//! The table of the public routes.

use ensemble_chassis::{Access, Required, Routes, delete, get, post};
use ensemble_types::changes::{LeaseDiff, LeaseDiffTaken, OrderResult, OrderResultTaken};
use ensemble_types::deleted::Deleted;
use ensemble_types::events::RunEvent;
use ensemble_types::leases::{
    LeaseBeat, LeaseFinish, LeaseFinished, LeaseHeartbeat, LeaseOutput, LeaseOutputTaken, LeaseRequest, Leases,
};
use ensemble_types::problem::Code::{
    Conflict, DependencyCycle, IdempotencyMismatch, InvalidCursor, InvalidDependency, LeaseLost, MachineNotFound,
    NotFound, QuotaExceeded, RangeNotSatisfiable,
};
use ensemble_types::runs::{CancelRun, CreateRun, Pend, Pended, RunPage, Task, TaskMessage, WholeRun};
use ensemble_types::signatures::ChangesOrder;
use ensemble_types::usage::UsageReport;

use crate::handlers;

pub(crate) fn table() -> Routes {
    orders(task_changes(leases(usage(follow_ups(runs(Routes::new()))))))
}

fn runs(routes: Routes) -> Routes {
    const TAG: &str = "Runs";
    let routes = routes
        .row(
            post("/v1/orchestrator/runs")
                .access(Access::User)
                .summary(TAG, "Submits a run of 1 to 10,000 tasks that can depend on each other.")
                .body::<CreateRun>()
                .max_body(16 << 20)
                .idempotent()
                .response::<WholeRun>(201)
                .response::<WholeRun>(200)
                .errors(&[
                    InvalidDependency,
                    DependencyCycle,
                    MachineNotFound,
                    IdempotencyMismatch,
                    Conflict,
                    QuotaExceeded,
                ])
                .closed()
                .handler(handlers::runs::create),
        )
        .row(
            get("/v1/orchestrator/runs")
                .access(Access::User)
                .summary(TAG, "Lists your runs, newest first, without their tasks.")
                .query::<handlers::runs::RunQuery>()
                .response::<RunPage>(200)
                .errors(&[InvalidCursor])
                .in_turn()
                .closed()
                .handler(handlers::runs::list),
        )
        .row(
            get("/v1/orchestrator/runs/{id}")
                .access(Access::User)
                .summary(TAG, "Reads a run with all its tasks, in the order they were submitted.")
                .response::<WholeRun>(200)
                .errors(&[NotFound])
                .in_turn()
                .closed()
                .etag()
                .handler(handlers::runs::read),
        )
        .row(
            post("/v1/orchestrator/runs/{id}/cancel")
                .access(Access::User)
                .summary(TAG, "Cancels the queued tasks and asks the runners of the others to stop.")
                .optional_body::<CancelRun>()
                .response::<WholeRun>(200)
                .errors(&[NotFound])
                .in_turn()
                .closed()
                .handler(handlers::runs::cancel),
        )
        .row(
            post("/v1/orchestrator/runs/{id}/retry")
                .access(Access::User)
                .summary(TAG, "Queues all tasks again that ended without completing.")
                .response::<WholeRun>(200)
                .errors(&[NotFound, Conflict, QuotaExceeded])
                .in_turn()
                .closed()
                .handler(handlers::runs::retry),
        );
    changes(deletion(routes))
}

fn follow_ups(routes: Routes) -> Routes {
    routes.row(
        post("/v1/orchestrator/runs/{id}/tasks/{taskId}/messages")
            .access(Access::User)
            .summary(
                "Runs",
                "Says something more to the agent of a task that has ended; it goes on with its conversation.",
            )
            .body::<TaskMessage>()
            .max_body(1 << 20)
            .response::<Task>(200)
            .errors(&[NotFound, Conflict, QuotaExceeded])
            .in_turn()
            .closed()
            .handler(handlers::follow_ups::say),
    )
}

fn usage(routes: Routes) -> Routes {
    routes.row(
        get("/v1/orchestrator/usage")
            .access(Access::User)
            .summary("Runs", "Adds up tokens and costs of your tasks, by day, machine or provider.")
            .query::<handlers::usage::UsageQuery>()
            .response::<UsageReport>(200)
            .closed()
            .handler(handlers::usage::report),
    )
}

fn deletion(routes: Routes) -> Routes {
    routes.row(
        delete("/v1/orchestrator/runs/{id}")
            .access(Access::User)
            .summary("Runs", "Deletes a run that has ended, with its tasks and their output.")
            .response::<Deleted>(200)
            .errors(&[NotFound, Conflict])
            .in_turn()
            .closed()
            .handler(handlers::runs::remove),
    )
}

fn changes(routes: Routes) -> Routes {
    const TAG: &str = "Runs";
    const PEND: &str = "Waits until the run changes or has ended, and returns what changed.";
    routes
        .row(
            post("/v1/orchestrator/runs/{id}/pend")
                .access(Access::User)
                .summary(TAG, PEND)
                .query::<handlers::runs::PendQuery>()
                .optional_body::<Pend>()
                .response::<Pended>(200)
                .errors(&[NotFound, InvalidCursor])
                .closed()
                .handler(handlers::runs::pend),
        )
        .row(
            get("/v1/orchestrator/runs/{id}/pend")
                .access(Access::User)
                .summary(TAG, PEND)
                .query::<handlers::runs::PendQuery>()
                .response::<Pended>(200)
                .errors(&[NotFound, InvalidCursor])
                .closed()
                .handler(handlers::runs::pend),
        )
        .row(
            get("/v1/orchestrator/runs/{id}/events")
                .access(Access::User)
                .summary(TAG, "Streams the run's changes until it has ended; an event's id is the run's version.")
                .query::<handlers::events::EventQuery>()
                .events::<RunEvent>()
                .no_content()
                .last_event_id()
                .errors(&[NotFound, InvalidCursor])
                .handler(handlers::events::stream),
        )
        .row(
            get("/v1/orchestrator/runs/{id}/tasks/{taskId}/output")
                .access(Access::User)
                .summary(TAG, "Reads the output of a task's attempt, whole, in part (`Range`) or live (`follow`).")
                .query::<handlers::outputs::OutputQuery>()
                .response_as(200, "text/plain")
                .response_as(206, "text/plain")
                .header("Range", Required::False, "One range of bytes (RFC 9110, section 14.2).")
                .errors(&[NotFound, RangeNotSatisfiable])
                .handler(handlers::outputs::read),
        )
}

fn leases(routes: Routes) -> Routes {
    const TAG: &str = "Runners";
    routes
        .row(
            post("/v1/orchestrator/leases")
                .access(Access::Machine)
                .summary(TAG, "Leases tasks to the machine. Waits when none is ready.")
                .body::<LeaseRequest>()
                .response::<Leases>(200)
                .handler(handlers::leases::request),
        )
        .row(
            post("/v1/orchestrator/leases/{id}/heartbeat")
                .access(Access::Machine)
                .summary(
                    TAG,
                    "Extends the lease of a running attempt. The response says whether the attempt should stop.",
                )
                .body::<LeaseHeartbeat>()
                .response::<LeaseBeat>(200)
                .errors(&[NotFound, LeaseLost])
                .handler(handlers::leases::heartbeat),
        )
        .row(
            post("/v1/orchestrator/leases/{id}/output")
                .access(Access::Machine)
                .summary(TAG, "Appends a piece of the attempt's output.")
                .body::<LeaseOutput>()
                // A piece has at most 1 MiB; every character of it may be escaped.
                .max_body(8 << 20)
                .response::<LeaseOutputTaken>(200)
                .errors(&[NotFound, LeaseLost, Conflict])
                .handler(handlers::leases::output),
        )
        .row(
            post("/v1/orchestrator/leases/{id}/finish")
                .access(Access::Machine)
                .summary(TAG, "Reports how the attempt ended. It is safe to repeat the report.")
                .body::<LeaseFinish>()
                .max_body(256 << 10)
                .response::<LeaseFinished>(200)
                .errors(&[NotFound, LeaseLost])
                .handler(handlers::leases::finish),
        )
}

fn task_changes(routes: Routes) -> Routes {
    const TAG: &str = "Runs";
    routes
        .row(
            get("/v1/orchestrator/runs/{id}/tasks/{taskId}/diff")
                .access(Access::User)
                .summary(TAG, "Reads what the last attempt of a task changed, as a unified diff.")
                .response_as(200, "text/plain")
                .errors(&[NotFound])
                .handler(handlers::changes::read_diff),
        )
        .row(
            post("/v1/orchestrator/runs/{id}/tasks/{taskId}/apply")
                .access(Access::User)
                .summary(TAG, "Lets the task's machine merge what is in the task's worktree into the working tree.")
                .query::<handlers::changes::WaitQuery>()
                .optional_body::<ChangesOrder>()
                .max_body(16 << 10)
                .response::<Task>(200)
                .errors(&[NotFound, Conflict])
                .closed()
                .handler(handlers::changes::apply),
        )
        .row(
            post("/v1/orchestrator/runs/{id}/tasks/{taskId}/discard")
                .access(Access::User)
                .summary(TAG, "Lets the task's machine remove the task's worktree and its branch.")
                .query::<handlers::changes::WaitQuery>()
                .optional_body::<ChangesOrder>()
                .max_body(16 << 10)
                .response::<Task>(200)
                .errors(&[NotFound, Conflict])
                .closed()
                .handler(handlers::changes::discard),
        )
}

fn orders(routes: Routes) -> Routes {
    const TAG: &str = "Runners";
    routes
        .row(
            post("/v1/orchestrator/leases/{id}/diff")
                .access(Access::Machine)
                .summary(TAG, "Stores a part of what the attempt changed, before its end is reported.")
                .body::<LeaseDiff>()
                .max_body(2 << 20)
                .response::<LeaseDiffTaken>(200)
                .errors(&[NotFound, LeaseLost])
                .handler(handlers::changes::put_diff),
        )
        .row(
            post("/v1/orchestrator/orders/{id}/result")
                .access(Access::Machine)
                .summary(TAG, "Reports what came of an order. It is safe to repeat the report.")
                .body::<OrderResult>()
                // 256 paths of 1,024 characters.
                .max_body(2 << 20)
                .response::<OrderResultTaken>(200)
                .errors(&[NotFound])
                .handler(handlers::changes::order_result),
        )
}
