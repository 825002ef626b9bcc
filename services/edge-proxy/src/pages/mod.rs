//! What the edge answers for itself. Everything else belongs to a service: see [`crate::domain::route_table`].

mod docs;
mod health;
mod version;
pub(crate) mod web;

use ensemble_chassis::{Access, Routes, Tag, get};
use ensemble_types::problem::Code;

use version::Version;

const SERVER: Tag = Tag("Server", "The server itself.");

pub(crate) fn routes() -> Routes {
    Routes::new()
        .row(
            get("/v1/version")
                .access(Access::Public)
                .operation(SERVER, "getVersion", "Which build answers, and which versions of the interface.")
                .about("Needs no token. Call it to find out whether an address is that of an Ensemble server.")
                .response::<Version>(200)
                .handler(version::version),
        )
        .row(
            get("/openapi.json")
                .access(Access::Public)
                .operation(SERVER, "getDocument", "This document.")
                .about("OpenAPI 3.1, made from the same tables that the routes are made from.")
                .response_as(200, "application/json", "An OpenAPI document.")
                .etag()
                .handler(docs::document),
        )
        .row(
            get("/")
                .access(Access::Public)
                .response_as(200, "text/html", "A page.")
                .response_as(307, "text/html", "A page.")
                .handler(web::home),
        )
        .row(get("/docs").access(Access::Public).response_as(307, "text/html", "A page.").handler(docs::to_page))
        .row(get("/docs/").access(Access::Public).response_as(200, "text/html", "A page.").handler(docs::page))
        .row(
            get("/docs/{file}")
                .access(Access::Public)
                .response_as(200, "*/*", "A page.")
                .errors(&[Code::NotFound])
                .handler(docs::page_file),
        )
        .row(
            get("/share/{token}")
                .access(Access::Public)
                .response_as(200, "text/html", "A page.")
                .errors(&[Code::NotFound])
                .handler(web::shared),
        )
        .row(
            get("/openapi-3.0.json")
                .access(Access::Public)
                .operation(SERVER, "getOlderDocument", "This document for tools that stop at OpenAPI 3.0.")
                .about(
                    "Made from the other one. It says a little less: nothing of the JSON in signed texts, for example.",
                )
                .response_as(200, "application/json", "An OpenAPI document.")
                .etag()
                .handler(docs::older_document),
        )
        .row(
            get("/healthz")
                .access(Access::Public)
                .operation(SERVER, "checkHealth", "Whether the edge lives.")
                .about("200 while the process answers. For the program that restarts it.")
                .response_as(200, "text/plain", "`alive`")
                .handler(health::alive),
        )
        .row(
            get("/readyz")
                .access(Access::Public)
                .operation(SERVER, "checkReadiness", "Whether the edge wants requests.")
                .about(
                    "503 while the server is about to stop, or its disk is full. A service behind the edge \
                     that is away does not count.",
                )
                .response_as(200, "text/plain", "`ready`")
                .errors(&[Code::Unavailable])
                .handler(health::ready),
        )
}
