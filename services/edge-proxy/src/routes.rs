//! The edge's own routes. Everything else belongs to a service: see [`crate::domain::route_table`].

use ensemble_chassis::{Routes, Who, get};
use ensemble_types::problem::Code;

use crate::handlers::version::Version;
use crate::handlers::{docs, health, share, version};

pub fn routes() -> Routes {
    Routes::new()
        .row(
            get("/v1/version")
                .who(Who::Anyone)
                .says("edge", "Which build answers, and which versions of the interface.")
                .gives::<Version>(200)
                .to(version::version),
        )
        .row(
            get("/openapi.json")
                .who(Who::Anyone)
                .says("edge", "This document.")
                .gives_as(200, "application/json")
                .to(docs::document),
        )
        .row(
            get("/")
                .who(Who::Anyone)
                .says("edge", "Leads to the documentation.")
                .gives_as(308, "text/html")
                .to(docs::to_page),
        )
        .row(
            get("/docs")
                .who(Who::Anyone)
                .says("edge", "Leads to the documentation.")
                .gives_as(308, "text/html")
                .to(docs::to_page),
        )
        .row(
            get("/docs/")
                .who(Who::Anyone)
                .says("edge", "The documentation, to read and try.")
                .gives_as(200, "text/html")
                .to(docs::page),
        )
        .row(
            get("/docs/{file}")
                .who(Who::Anyone)
                .says("edge", "A file of the documentation page.")
                .gives_as(200, "*/*")
                .errors(&[Code::NotFound])
                .to(docs::page_file),
        )
        .row(
            get("/share/{token}")
                .who(Who::Anyone)
                .says("edge", "The page behind a public link.")
                .gives_as(200, "text/html")
                .to(share::page),
        )
        .row(
            get("/healthz")
                .who(Who::Anyone)
                .says("edge", "Whether the edge lives.")
                .gives_as(200, "text/plain")
                .to(health::alive),
        )
        .row(
            get("/readyz")
                .who(Who::Anyone)
                .says("edge", "Whether the edge wants requests.")
                .gives_as(200, "text/plain")
                .errors(&[Code::Unavailable])
                .to(health::ready),
        )
}
