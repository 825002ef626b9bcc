//! The body of a response with a run and all its tasks. A large one is sent in parts, as its reader takes them.

use std::sync::Arc;

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::{CONTENT_TYPE, HeaderValue};
use bytes::Bytes;
use ensemble_chassis::State;
use ensemble_store_kit::{Db, StoreError};
use ensemble_types::runs::Task;
use futures_util::{StreamExt, stream};
use serde::Serialize;

use crate::Orchestrator;
use crate::error::Error;
use crate::operations::runs::{FirstPage, PAGE, RunView, next_page};

pub(super) fn respond(
    service: &State<Orchestrator>,
    (view, tasks): FirstPage,
    status: StatusCode,
) -> Result<HttpResponse, Error> {
    let mut rest = Rest { db: service.db.clone(), view: Arc::new(view), sent: 0, page: PAGE };
    let mut first = json(&rest.view.run)?;
    first.pop();
    first.extend_from_slice(b",\"tasks\":[");
    rest.append(&mut first, &tasks)?;
    let mut response = HttpResponse::build(status);
    response.insert_header((CONTENT_TYPE, HeaderValue::from_static("application/json")));
    if rest.is_sent() {
        return Ok(response.body(first));
    }
    let first = stream::once(async { Ok(Bytes::from(first)) });
    Ok(response.streaming(first.chain(stream::try_unfold(rest, Rest::next))))
}

/// A part of the response ends here, in bytes: a reader that takes nothing costs no more than a part. Tasks that were read
/// and do not fit are read again.
const PART: usize = 128 << 10;

/// The tasks that have not been sent yet.
struct Rest {
    db: Db,
    view: Arc<RunView>,
    sent: u32,
    /// How many tasks are read next: about as many as fit into a part.
    page: u32,
}

impl Rest {
    async fn next(mut self) -> Result<Option<(Bytes, Self)>, std::io::Error> {
        if self.is_sent() {
            return Ok(None);
        }
        let tasks =
            next_page(&self.db, Arc::clone(&self.view), self.sent, self.page).await.map_err(std::io::Error::other)?;
        let mut part = Vec::new();
        self.append(&mut part, &tasks).map_err(std::io::Error::other)?;
        Ok(Some((part.into(), self)))
    }

    /// Appends as many tasks as fit, at least one, and the end of the run after the last one.
    fn append(&mut self, part: &mut Vec<u8>, tasks: &[Task]) -> Result<(), StoreError> {
        let before = self.sent;
        for task in tasks {
            if part.len() > PART && self.sent > before {
                break;
            }
            if self.sent > 0 {
                part.push(b',');
            }
            part.append(&mut json(task)?);
            self.sent += 1;
        }
        let fitted = self.sent - before;
        self.page = if part.len() > PART { fitted } else { fitted.saturating_mul(2) }.clamp(1, PAGE);
        if self.is_sent() {
            part.extend_from_slice(b"]}");
        } else if tasks.is_empty() {
            return Err(StoreError::bad_row("read more of a run", "tasks are missing"));
        }
        Ok(())
    }

    fn is_sent(&self) -> bool {
        self.sent >= self.view.run.summary.total
    }
}

fn json(value: &impl Serialize) -> Result<Vec<u8>, StoreError> {
    serde_json::to_vec(value).map_err(|error| StoreError::bad_row("write a run as JSON", error))
}
