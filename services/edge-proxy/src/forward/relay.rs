//! One request to one service.

use std::rc::Rc;
use std::time::Duration;

use actix_http::{Method, Request};
use ensemble_chassis::process::telemetry;
use tracing::Span;

use super::front::{Front, Seen, framing};
use crate::domain::head_scanner::Framing;
use crate::domain::route_table::{Patience, Upstream, is_repeatable, timeout};
use crate::upstream::answer_head::{AnswerFraming, AnswerHead};
use crate::upstream::exchange::{Answer, Sending};
use crate::upstream::failure::Failure;
use crate::upstream::request_head::{self, Envelope};

/// How long a long-poll may go on after the edge began to close: long enough for a service that is closing, too, to
/// answer it.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

pub(super) struct Relayed {
    pub(super) head: AnswerHead,
    /// `None` where the answer carries no body by its nature (HEAD, 204, 304).
    pub(super) answer: Option<Answer>,
}

/// Sends `request` and waits for the head of the answer.
///
/// # Errors
/// Nothing was sent, or there was no usable answer.
pub(super) async fn relay(
    front: &Front,
    mut request: Request,
    upstream: Upstream,
    seen: &Seen,
) -> Result<Relayed, Failure> {
    let framing = framing(request.head());
    let is_head = request.head().method == Method::HEAD;
    let is_read = is_head || request.head().method == Method::GET;
    let may_repeat = framing == Framing::None && is_repeatable(is_read, request.head().uri.path());
    let timeout = timeout(request.head().uri.path());
    let span = Span::current();
    let traceparent = if span.is_disabled() { None } else { telemetry::traceparent_header(&span) };
    let mut payload = request.take_payload();
    let pool = front.pools.of(upstream);
    let envelope = Envelope {
        host: front.edge.authority(upstream),
        client: seen.client,
        scheme: if seen.is_https { "https" } else { "http" },
        request_id: &seen.id,
        framing,
        traceparent,
        no_new_account: upstream == Upstream::Identity && !front.edge.limiter().may_make_account(seen.client),
    };
    let mut is_second_try = false;
    loop {
        let loan = pool.borrow(is_second_try).await?;
        let mut connection = loan.connection;
        request_head::write(&mut connection.outbound, request.head(), &envelope);
        let payload = std::mem::replace(&mut payload, actix_http::Payload::None);
        let mut sending = Sending::new(connection, payload, framing, is_head);
        match wait(front, &mut sending, timeout).await {
            Ok(head) => return Ok(relayed(front, sending, head, Rc::clone(pool), is_head)),
            // A connection that had been idle may have been closed by the service just before the request arrived.
            Err(failure)
                if loan.is_used
                    && may_repeat
                    && !is_second_try
                    && sending.was_silent()
                    && failure.is_silent_death() =>
            {
                is_second_try = true;
            }
            Err(failure) => return Err(failure),
        }
    }
}

async fn wait(front: &Front, sending: &mut Sending, timeout: Patience) -> Result<AnswerHead, Failure> {
    let limits = front.edge.timeout();
    match timeout {
        Patience::Ordinary => sending.head(limits.ordinary).await,
        Patience::LongPoll => {
            let closing = async {
                front.edge.drain().closing().await;
                tokio::time::sleep(LAST_ANSWERS).await;
            };
            tokio::select! {
                head = sending.head(limits.long_poll) => head,
                () = closing => Err(Failure::Closing),
            }
        }
    }
}

fn relayed(
    front: &Front,
    sending: Sending,
    mut head: AnswerHead,
    pool: Rc<crate::upstream::pool::Pool>,
    is_head: bool,
) -> Relayed {
    // A service that says how long its answer is has no reason to stop within it; a stream may be silent.
    let stall = matches!(head.framing, AnswerFraming::Length(_)).then_some(front.edge.timeout().stall);
    let mut answer = sending.into_answer(&head, pool, stall);
    let has_no_body = head.framing == AnswerFraming::None;
    if has_no_body {
        answer.finish();
    }
    // The length of a body that is not there belongs to HEAD alone; after 304 it would be taken for a promise.
    head.length = head.length.filter(|length| is_head || *length == 0);
    let is_absent = is_head || has_no_body;
    Relayed { head, answer: (!is_absent).then_some(answer) }
}
