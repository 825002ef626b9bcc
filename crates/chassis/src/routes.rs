//! The route table: one row describes one route completely.
//!
//! The rows produce the routing, the 401 and 403 of credentials, the 405, the OpenAPI document and the access-matrix test.

mod serve;

use std::collections::BTreeMap;
use std::sync::Arc;

use actix_web::http::Method;
use actix_web::{FromRequest, Handler, HttpMessage, HttpRequest, HttpResponse, Responder, Route, dev::Payload, web};
use ensemble_types::problem::Code;
use futures_util::future::LocalBoxFuture;
pub use utoipa::openapi::Required;
use utoipa::openapi::path::{Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::SchemaType;
use utoipa::openapi::{ObjectBuilder, Type};
use utoipa::{IntoParams, ToSchema};

use crate::auth::Access;
use crate::http::members::{Known, Members, name_ignored};
use crate::http::{ApiError, MaxBody, StreamParameters, expect_tag, problem_response, request_id};
use crate::openapi::SchemaRef;

pub(crate) use serve::no_such_route;
use serve::{Shape, answer, forbid_transforming, resource};

/// All the routes of a service.
#[derive(Default)]
pub struct Routes {
    rows: Vec<Row>,
}

/// One route.
pub struct Row {
    pub method: Method,
    /// With `{name}` for parameters.
    pub path: &'static str,
    pub access: Access,
    pub doc: RowDoc,
    /// The largest body in bytes; larger ones are refused before they are read.
    pub max_body: usize,
    /// Callers take turns; see [`RowBuilder::in_turn`].
    pub in_turn: bool,
    /// What is not known in a request is refused; see [`RowBuilder::closed`].
    pub closed: bool,
    /// See [`RowBuilder::secret`].
    pub secret: bool,
    /// See [`RowBuilder::etag`].
    pub etag: bool,
    /// See [`RowBuilder::also_by_post`].
    by_post: Option<&'static str>,
    run: Run,
}

/// The description of a route in the OpenAPI document.
#[derive(Clone, Default)]
pub struct RowDoc {
    /// The name of the operation in generated clients. A page has none.
    pub id: Option<&'static str>,
    pub summary: &'static str,
    /// What a caller has to know besides the summary.
    pub about: &'static str,
    pub tag: Tag,
    pub parameters: Vec<Parameter>,
    pub body: Option<SchemaRef>,
    pub body_optional: bool,
    /// Other names of members of the body.
    pub aliases: Vec<&'static str>,
    pub idempotent: bool,
    pub answers: Vec<Answer>,
    /// The answer has the header `X-Context-Version`.
    pub sends_context_version: bool,
    pub errors: Vec<Code>,
}

/// An answer that is no problem.
#[derive(Clone)]
pub struct Answer {
    pub status: u16,
    /// What it is. Empty: the first sentence of its schema.
    pub words: &'static str,
    pub media_type: Option<&'static str>,
    pub schema: Option<SchemaRef>,
}

/// A group of operations: its name, and what they are about.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tag(pub &'static str, pub &'static str);

type Run = Arc<dyn Fn(HttpRequest, Payload) -> LocalBoxFuture<'static, HttpResponse> + Send + Sync>;

/// A row that has no handler yet.
pub struct RowBuilder {
    method: Method,
    path: &'static str,
    access: Access,
    doc: RowDoc,
    max_body: usize,
    in_turn: bool,
    closed: bool,
    secret: bool,
    etag: bool,
    by_post: Option<&'static str>,
}

/// The largest body of a route that says nothing else.
const MAX_BODY: usize = 64 << 10;

pub fn get(path: &'static str) -> RowBuilder {
    RowBuilder::new(Method::GET, path)
}

pub fn post(path: &'static str) -> RowBuilder {
    RowBuilder::new(Method::POST, path)
}

pub fn patch(path: &'static str) -> RowBuilder {
    RowBuilder::new(Method::PATCH, path)
}

pub fn delete(path: &'static str) -> RowBuilder {
    RowBuilder::new(Method::DELETE, path)
}

impl Routes {
    pub fn new() -> Self {
        Self::default()
    }

    #[must_use]
    pub fn row(mut self, row: Row) -> Self {
        let by_post = row.by_post();
        self.rows.push(row);
        self.rows.extend(by_post);
        self
    }

    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Registers every row with an actix application.
    pub(crate) fn configure(&self, app: &mut web::ServiceConfig, no_match: Route) {
        let mut by_path: BTreeMap<&'static str, Vec<&Row>> = BTreeMap::new();
        for row in &self.rows {
            by_path.entry(row.path).or_default().push(row);
        }
        for (path, rows) in by_path {
            app.service(resource(path, &rows));
        }
        app.default_service(no_match);
    }
}

impl RowBuilder {
    fn answer(
        mut self,
        status: u16,
        words: &'static str,
        media_type: Option<&'static str>,
        schema: Option<SchemaRef>,
    ) -> Self {
        self.doc.answers.push(Answer { status, words, media_type, schema });
        self
    }

    fn new(method: Method, path: &'static str) -> Self {
        Self {
            method,
            path,
            access: Access::User,
            doc: RowDoc::default(),
            max_body: MAX_BODY,
            in_turn: false,
            closed: false,
            secret: false,
            etag: false,
            by_post: None,
        }
    }

    #[must_use]
    pub fn access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    /// The group of the operation, its id as a verb and a noun (`createSession`), and one sentence about it. A row without this is
    /// a page for people, and no operation of the document.
    #[must_use]
    pub fn operation(mut self, tag: Tag, id: &'static str, summary: &'static str) -> Self {
        (self.doc.tag, self.doc.id, self.doc.summary) = (tag, Some(id), summary);
        self
    }

    /// What a caller has to know besides the summary.
    #[must_use]
    pub fn about(mut self, words: &'static str) -> Self {
        self.doc.about = words;
        self
    }

    #[must_use]
    pub fn query<Q: IntoParams>(mut self) -> Self {
        self.doc.parameters.extend(Q::into_params(|| Some(ParameterIn::Query)));
        self
    }

    #[must_use]
    pub fn body<B: ToSchema>(mut self) -> Self {
        self.doc.body = Some(SchemaRef::of::<B>());
        self
    }

    /// The largest body in bytes; 64 KiB unless this is called.
    #[must_use]
    pub fn max_body(mut self, bytes: usize) -> Self {
        self.max_body = bytes;
        self
    }

    /// Callers take turns with such requests: the answer may be large, or the request locks much for a while, and others of
    /// the same caller that wait for the lock would each hold a database connection.
    #[must_use]
    pub fn in_turn(mut self) -> Self {
        self.in_turn = true;
        self
    }

    /// Members of the body and parameters of the query that are not known are refused, because one of them may have been meant
    /// as a limit, a right or an expiry. Without this they are ignored, and the answer names them in `Ignored-Members`.
    #[must_use]
    pub fn closed(mut self) -> Self {
        self.closed = true;
        self
    }

    /// The answer to GET holds a secret, so it is never compressed: its length would show an attacker who adds
    /// guesses to the answer how good they are (BREACH). Answers to other methods are not compressed in any case.
    #[must_use]
    pub fn secret(mut self) -> Self {
        self.secret = true;
        self
    }

    /// The answer has a strong `ETag`, and is 304 for a caller that has it already. One that is sent in parts has none.
    #[must_use]
    pub fn etag(mut self) -> Self {
        self.etag = true;
        self.header(
            "If-None-Match",
            Required::False,
            "The `ETag` of an answer that you have. While it is current: 304 without a body.",
        )
    }

    /// Another name of a member of the body, which the type knows as a `serde(alias)`.
    #[must_use]
    pub fn alias(mut self, name: &'static str) -> Self {
        self.doc.aliases.push(name);
        self
    }

    /// The body may be left out.
    #[must_use]
    pub fn optional_body<B: ToSchema>(mut self) -> Self {
        self.doc.body_optional = true;
        self.body::<B>()
    }

    /// The route accepts an `Idempotency-Key`.
    #[must_use]
    pub fn idempotent(mut self) -> Self {
        self.doc.idempotent = true;
        self
    }

    #[must_use]
    pub fn response<B: ToSchema>(self, status: u16) -> Self {
        self.answer(status, "", Some("application/json"), Some(SchemaRef::of::<B>()))
    }

    /// 204, when there is nothing to say and nothing to wait for.
    #[must_use]
    pub fn no_content(self) -> Self {
        self.answer(204, "You know the last of it already, and nothing more will come.", None, None)
    }

    /// A stream of events (Server-Sent Events). `E` has the name of an event in `event` and its JSON in `data`. The document has
    /// the schema of what stands after `data:`.
    #[must_use]
    pub fn events<E: ToSchema>(self) -> Self {
        self.answer(200, "Server-Sent Events.", Some("text/event-stream"), Some(SchemaRef::of::<E>().of_data()))
    }

    /// The route also takes POST, as an operation with this id, and its parameters in the query or as a JSON body. Some proxies hold back
    /// the answer to GET until it ends.
    #[must_use]
    pub fn also_by_post(mut self, id: &'static str) -> Self {
        self.by_post = Some(id);
        self
    }

    /// Readers may send the id of the last event that they know. A reader that knows the last of what is over gets 204.
    #[must_use]
    pub fn last_event_id(self) -> Self {
        self.header("Last-Event-ID", Required::False, "The id of the last event that you know. Empty is as absent.")
    }

    /// A header field that the route reads.
    #[must_use]
    pub fn header(mut self, name: &str, required: Required, description: &str) -> Self {
        let schema = ObjectBuilder::new().schema_type(SchemaType::Type(Type::String));
        let parameter = ParameterBuilder::new().name(name).parameter_in(ParameterIn::Header).required(required);
        self.doc.parameters.push(parameter.description(Some(description)).schema(Some(schema)).build());
        self
    }

    /// An answer that is not JSON: text, a page.
    #[must_use]
    pub fn response_as(self, status: u16, media_type: &'static str, words: &'static str) -> Self {
        self.answer(status, words, Some(media_type), None)
    }

    /// The answer says in `X-Context-Version` which version it is.
    #[must_use]
    pub fn context_version(mut self) -> Self {
        self.doc.sends_context_version = true;
        self
    }

    /// Problems besides those that every route can have (400, 401, 403 of credentials, 405, 408, 413, 415, 429, 5xx).
    #[must_use]
    pub fn errors(mut self, codes: &[Code]) -> Self {
        self.doc.errors.extend_from_slice(codes);
        self
    }

    pub fn handler<H, Args, R>(self, handler: H) -> Row
    where
        H: Handler<Args, Output = Result<R, ApiError>> + Send + Sync,
        Args: FromRequest + 'static,
        R: Responder + 'static,
    {
        let (access, max_body, in_turn, etag) = (self.access, self.max_body, self.in_turn, self.etag);
        let is_also_by_post = self.by_post.is_some();
        let may_be_compressed = self.method == Method::GET && !self.secret;
        let known = Arc::new(Known::of_row(&self.doc, self.closed));
        let run: Run = Arc::new(move |request, mut payload| {
            let handler = handler.clone();
            request.extensions_mut().insert(MaxBody(max_body));
            request.extensions_mut().insert(Arc::clone(&known));
            if etag {
                expect_tag(&request);
            }
            let known = Arc::clone(&known);
            Box::pin(async move {
                let has_parameters = is_also_by_post && *request.method() == Method::POST;
                let shape = Shape { access, in_turn, has_parameters };
                let answered = answer(handler, shape, &known, &request, &mut payload).await;
                let mut response = answered.unwrap_or_else(|problem| problem_response(problem, &request_id(&request)));
                if !may_be_compressed {
                    forbid_transforming(response.headers_mut());
                }
                name_ignored(&request, response.headers_mut());
                response
            })
        });
        let Self { method, path, doc, closed, secret, by_post, .. } = self;
        Row { method, path, access, doc, max_body, in_turn, closed, secret, etag, by_post, run }
    }
}

impl Row {
    /// The same route by POST, if it takes that.
    fn by_post(&self) -> Option<Self> {
        let id = self.by_post?;
        let about = "The same as by GET. The parameters may stand in the query or be members of the body.";
        let doc = RowDoc {
            id: Some(id),
            about,
            body: Some(SchemaRef::of::<StreamParameters>()),
            body_optional: true,
            ..self.doc.clone()
        };
        Some(Self { method: Method::POST, doc, by_post: None, run: Arc::clone(&self.run), ..*self })
    }

    /// The members that the body may have.
    #[doc(hidden)]
    pub fn members(&self) -> Members {
        Known::of_row(&self.doc, self.closed).body().clone()
    }
}
