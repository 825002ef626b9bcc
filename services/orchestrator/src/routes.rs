//! The table of the public routes.

use ensemble_chassis::{Access, Required, Routes, Tag, delete, get, post};
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

const RUNS: Tag = Tag("Runs", "Tasks for agents without a conversation, which can depend on each other.");
const RUNNERS: Tag = Tag("Runners", "What the program on a machine calls to take tasks and to report on them.");

pub(crate) fn table() -> Routes {
    orders(task_changes(leases(usage(follow_ups(runs(Routes::new()))))))
}

fn runs(routes: Routes) -> Routes {
    let routes = routes
        .row(
            post("/v1/orchestrator/runs")
                .access(Access::User)
                .operation(RUNS, "createRun", "Submits a run of 1 to 10,000 tasks that can depend on each other.")
                .about(
                    "A task names the tasks that it waits for by their `taskKey`, or by their position as \
                     text. The answer has the ids and refs that the service gave.",
                )
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
                .operation(RUNS, "listRuns", "Lists your runs, newest first, without their tasks.")
                .about("`status` also takes `active` and `terminal`.")
                .query::<handlers::runs::RunQuery>()
                .response::<RunPage>(200)
                .errors(&[InvalidCursor])
                .closed()
                .handler(handlers::runs::list),
        )
        .row(
            get("/v1/orchestrator/runs/{id}")
                .access(Access::User)
                .operation(RUNS, "getRun", "Reads a run with all its tasks, in the order they were submitted.")
                .about("By its id or its ref.")
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
                .operation(RUNS, "cancelRun", "Cancels the queued tasks and asks the runners of the others to stop.")
                .about(
                    "A run that has ended is answered as it is. Tasks that run end within their lease, \
                     whether or not their runner answers.",
                )
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
                .operation(RUNS, "retryRun", "Queues all tasks again that ended without completing.")
                .about(
                    "Tasks that have completed keep their result. Where there is no task to try again, 409 \
                     CONFLICT.",
                )
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
            .operation(
                RUNS,
                "continueTask",
                "Sends another message to the agent of a task that has ended; the agent continues its conversation.",
            )
            .about(
                "The task must have ended, and its last attempt must have left a conversation. It goes \
                     back to the same machine.",
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
            .operation(RUNS, "getUsage", "Adds up tokens and costs of your tasks, by day, machine or provider.")
            .about("Adds up what the agents have reported. Days are those of UTC.")
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
            .operation(RUNS, "deleteRun", "Deletes a run that has ended, with its tasks and their output.")
            .about("A run that has not ended is 409 CONFLICT: cancel it first.")
            .response::<Deleted>(200)
            .errors(&[NotFound, Conflict])
            .in_turn()
            .closed()
            .handler(handlers::runs::remove),
    )
}

fn changes(routes: Routes) -> Routes {
    const PEND: &str = "Waits until the run changes or has ended, and returns what changed.";
    routes
        .row(
            post("/v1/orchestrator/runs/{id}/pend")
                .access(Access::User)
                .operation(RUNS, "waitForRun", PEND)
                .about(
                    "`change` waits until the version of the run is another one than `cursor`. `terminal` \
                     waits for the end and ignores the cursor. When the time is up, `changed` is false.",
                )
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
                .operation(RUNS, "getRunChange", PEND)
                .about("The same as by POST, for programs that can only read.")
                .query::<handlers::runs::PendQuery>()
                .response::<Pended>(200)
                .errors(&[NotFound, InvalidCursor])
                .closed()
                .handler(handlers::runs::pend),
        )
        .row(
            get("/v1/orchestrator/runs/{id}/events")
                .access(Access::User)
                .operation(
                    RUNS,
                    "followRun",
                    "Streams the run's changes until it has ended; an event's id is the run's version.",
                )
                .about(
                    "A reader that connects again with `Last-Event-ID` gets what has changed since that \
                     version, as it is now.",
                )
                .query::<handlers::events::EventQuery>()
                .events::<RunEvent>()
                .also_by_post("followRunByPost")
                .no_content()
                .last_event_id()
                .errors(&[NotFound, InvalidCursor])
                .handler(handlers::events::stream),
        )
        .row(
            get("/v1/orchestrator/runs/{id}/tasks/{taskId}/output")
                .access(Access::User)
                .operation(
                    RUNS,
                    "getTaskOutput",
                    "Reads the output of a task's attempt, whole, in part (`Range`) or live (`follow`).",
                )
                .about("Text in UTF-8. Without `attempt`, that of the latest attempt.")
                .query::<handlers::outputs::OutputQuery>()
                .also_by_post("getTaskOutputByPost")
                .response_as(200, "text/plain", "The output as text.")
                .response_as(206, "text/plain", "The bytes that the range asks for.")
                .header("Range", Required::False, "One range of bytes (RFC 9110, section 14.2).")
                .errors(&[NotFound, RangeNotSatisfiable])
                .handler(handlers::outputs::read),
        )
}

fn leases(routes: Routes) -> Routes {
    routes
        .row(
            post("/v1/orchestrator/leases")
                .access(Access::Machine)
                .operation(RUNNERS, "requestLeases", "Leases tasks to the machine. Waits when none is ready.")
                .about(
                    "A task that becomes ready reaches a waiting runner at once. A lease lives for 30 s and \
                     every heartbeat prolongs it.",
                )
                .body::<LeaseRequest>()
                .response::<Leases>(200)
                .handler(handlers::leases::request),
        )
        .row(
            post("/v1/orchestrator/leases/{id}/heartbeat")
                .access(Access::Machine)
                .operation(
                    RUNNERS,
                    "sendLeaseHeartbeat",
                    "Extends the lease of a running attempt. The response says whether the attempt should stop.",
                )
                .about(
                    "Send the first one when the agent was started, and then one every ten seconds. An old \
                     fence is 409 LEASE_LOST.",
                )
                .body::<LeaseHeartbeat>()
                .response::<LeaseBeat>(200)
                .errors(&[NotFound, LeaseLost])
                .handler(handlers::leases::heartbeat),
        )
        .row(
            post("/v1/orchestrator/leases/{id}/output")
                .access(Access::Machine)
                .operation(RUNNERS, "appendLeaseOutput", "Appends a piece of the attempt's output.")
                .about(
                    "`offset` counts the bytes of UTF-8 of the attempt. What overlaps is cut off; a gap is \
                     409 CONFLICT with `expectedOffset`.",
                )
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
                .operation(RUNNERS, "finishLease", "Reports how the attempt ended. It is safe to repeat the report.")
                .about("A repeat is answered as the first report was.")
                .body::<LeaseFinish>()
                .max_body(256 << 10)
                .response::<LeaseFinished>(200)
                .errors(&[NotFound, LeaseLost])
                .handler(handlers::leases::finish),
        )
}

fn task_changes(routes: Routes) -> Routes {
    routes
        .row(
            get("/v1/orchestrator/runs/{id}/tasks/{taskId}/diff")
                .access(Access::User)
                .operation(RUNS, "getTaskDiff", "Reads what the last attempt of a task changed, as a unified diff.")
                .about("404 where the task has no changes, or ran outside of a worktree.")
                .response_as(200, "text/plain", "A unified diff.")
                .errors(&[NotFound])
                .handler(handlers::changes::read_diff),
        )
        .row(
            post("/v1/orchestrator/runs/{id}/tasks/{taskId}/apply")
                .access(Access::User)
                .operation(
                    RUNS,
                    "applyTask",
                    "Lets the task's machine merge what is in the task's worktree into the working tree.",
                )
                .about(
                    "A machine that demands signed orders refuses those without a signature. With `waitMs` \
                     the call waits for what the machine reports.",
                )
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
                .operation(RUNS, "discardTask", "Lets the task's machine remove the task's worktree and its branch.")
                .about(
                    "A machine that demands signed orders refuses those without a signature. With `waitMs` \
                     the call waits for what the machine reports.",
                )
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
    routes
        .row(
            post("/v1/orchestrator/leases/{id}/diff")
                .access(Access::Machine)
                .operation(
                    RUNNERS,
                    "sendLeaseDiff",
                    "Stores a part of what the attempt changed, before its end is reported.",
                )
                .about("Parts come in order, the first with offset 0.")
                .body::<LeaseDiff>()
                .max_body(2 << 20)
                .response::<LeaseDiffTaken>(200)
                .errors(&[NotFound, LeaseLost])
                .handler(handlers::changes::put_diff),
        )
        .row(
            post("/v1/orchestrator/orders/{id}/result")
                .access(Access::Machine)
                .operation(
                    RUNNERS,
                    "sendOrderResult",
                    "Reports what came of an order. It is safe to repeat the report.",
                )
                .about("Only for the machine that got the order.")
                .body::<OrderResult>()
                // 256 paths of 1,024 characters.
                .max_body(2 << 20)
                .response::<OrderResultTaken>(200)
                .errors(&[NotFound])
                .handler(handlers::changes::order_result),
        )
}
