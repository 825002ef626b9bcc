//! A run with all its tasks as an answer. A large one goes out a part at a time, as its reader takes it.

use std::sync::Arc;

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::{CONTENT_TYPE, HeaderValue};
use bytes::Bytes;
use ensemble_chassis::State;
use ensemble_store_kit::StoreError;
use ensemble_types::runs::Task;
use futures_util::{StreamExt, stream};
use serde::Serialize;

use crate::Orchestrator;
use crate::error::Error;
use crate::store::{Opened, Store, Whole};

pub(super) fn answer(
    orchestrator: &State<Orchestrator>,
    (whole, tasks): Opened,
    status: StatusCode,
) -> Result<HttpResponse, Error> {
    let mut rest = Rest { store: orchestrator.store.clone(), whole: Arc::new(whole), told: 0 };
    let mut first = json(&rest.whole.run)?;
    first.pop();
    first.extend_from_slice(b",\"tasks\":[");
    rest.tell(&mut first, &tasks)?;
    let mut answer = HttpResponse::build(status);
    answer.insert_header((CONTENT_TYPE, HeaderValue::from_static("application/json")));
    if rest.is_told() {
        return Ok(answer.body(first));
    }
    let first = stream::once(async { Ok(Bytes::from(first)) });
    Ok(answer.streaming(first.chain(stream::try_unfold(rest, Rest::next))))
}

/// The tasks that have not been told yet.
struct Rest {
    store: Store,
    whole: Arc<Whole>,
    told: u32,
}

impl Rest {
    async fn next(mut self) -> Result<Option<(Bytes, Self)>, std::io::Error> {
        if self.is_told() {
            return Ok(None);
        }
        let tasks = self.store.more_tasks(Arc::clone(&self.whole), self.told).await.map_err(std::io::Error::other)?;
        let mut part = Vec::new();
        self.tell(&mut part, &tasks).map_err(std::io::Error::other)?;
        Ok(Some((part.into(), self)))
    }

    /// Writes tasks, and the end of the run behind the last one.
    fn tell(&mut self, part: &mut Vec<u8>, tasks: &[Task]) -> Result<(), StoreError> {
        for task in tasks {
            if self.told > 0 {
                part.push(b',');
            }
            part.append(&mut json(task)?);
            self.told += 1;
        }
        if self.is_told() {
            part.extend_from_slice(b"]}");
        } else if tasks.is_empty() {
            return Err(StoreError::bad_row("read more of a run", "tasks are missing"));
        }
        Ok(())
    }

    fn is_told(&self) -> bool {
        self.told >= self.whole.run.summary.total
    }
}

fn json(value: &impl Serialize) -> Result<Vec<u8>, StoreError> {
    serde_json::to_vec(value).map_err(|error| StoreError::bad_row("write a run as JSON", error))
}
