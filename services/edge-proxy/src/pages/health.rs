//! Health of the edge. A service that is down does not make the edge unready: the other services still answer. A full disk under all of
//! them does: nothing can be stored.

use actix_web::HttpResponse;
use ensemble_chassis::{HandlerResult, State};
use ensemble_types::problem::{Code, Problem};
use rustix::fs::statvfs;

use crate::EdgeProxy;

/// Whether less than 1 MiB is left. A file system that has no blocks at all does not say how much room it has.
fn is_full(block: u64, all: u64, left: u64) -> bool {
    all > 0 && block.saturating_mul(left) < 1 << 20
}

pub(crate) async fn alive() -> HandlerResult<HttpResponse> {
    Ok(HttpResponse::Ok().content_type("text/plain").body("alive\n"))
}

pub(crate) async fn ready(edge: State<EdgeProxy>) -> HandlerResult<HttpResponse> {
    if edge.drain.is_draining() {
        return Err(Problem::new(Code::Unavailable, "This replica is about to stop.").into());
    }
    let disk = edge.config.data_folder.as_deref().and_then(|folder| statvfs(folder).ok());
    if disk.is_some_and(|disk| is_full(disk.f_frsize, disk.f_blocks, disk.f_bavail)) {
        return Err(Problem::new(Code::Unavailable, "The disk of the server is full, so nothing can be stored.").into());
    }
    Ok(HttpResponse::Ok().content_type("text/plain").body("ready\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_full_when_a_database_can_hardly_grow() {
        for (disk, full) in [
            ((4_096, 1_000_000, 0), true),
            ((4_096, 1_000_000, 255), true),
            ((4_096, 1_000_000, 256), false),
            ((4_096, 0, 0), false),
            ((u64::MAX, 2, 2), false),
        ] {
            assert_eq!(is_full(disk.0, disk.1, disk.2), full, "{disk:?}");
        }
    }
}
