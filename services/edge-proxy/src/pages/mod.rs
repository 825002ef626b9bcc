//! What the edge answers for itself. Everything else belongs to a service: see [`crate::domain::route_table`].

mod docs;
mod health;
pub(crate) mod share;
mod version;
pub(crate) mod web;

use ensemble_chassis::{Access, Routes, get};
use ensemble_types::problem::Code;

use version::Version;

pub(crate) fn routes() -> Routes {
    Routes::new()
        .row(
            get("/v1/version")
                .access(Access::Public)
                .summary("edge", "Which build answers, and which versions of the interface.")
                .response::<Version>(200)
                .handler(version::version),
        )
        .row(
            get("/openapi.json")
                .access(Access::Public)
                .summary("edge", "This document.")
                .response_as(200, "application/json")
                .etag()
                .handler(docs::document),
        )
        .row(
            get("/")
                .access(Access::Public)
                .summary("edge", "The web app for browsers (`Accept: text/html`); leads programs to the documentation.")
                .response_as(200, "text/html")
                .response_as(307, "text/html")
                .handler(web::home),
        )
        .row(
            get("/docs")
                .access(Access::Public)
                .summary("edge", "Leads to the documentation.")
                .response_as(307, "text/html")
                .handler(docs::to_page),
        )
        .row(
            get("/docs/")
                .access(Access::Public)
                .summary("edge", "The documentation, to read and try.")
                .response_as(200, "text/html")
                .handler(docs::page),
        )
        .row(
            get("/docs/{file}")
                .access(Access::Public)
                .summary("edge", "A file of the documentation page.")
                .response_as(200, "*/*")
                .errors(&[Code::NotFound])
                .handler(docs::page_file),
        )
        .row(
            get("/share/{token}")
                .access(Access::Public)
                .summary("edge", "The page behind a public link.")
                .response_as(200, "text/html")
                .handler(share::page),
        )
        .row(
            get("/healthz")
                .access(Access::Public)
                .summary("edge", "Whether the edge lives.")
                .response_as(200, "text/plain")
                .handler(health::alive),
        )
        .row(
            get("/readyz")
                .access(Access::Public)
                .summary("edge", "Whether the edge wants requests.")
                .response_as(200, "text/plain")
                .errors(&[Code::Unavailable])
                .handler(health::ready),
        )
}
