//! A server of the operator's that receives events of sessions. The reference implementation of Standard Webhooks checks them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use actix_web::http::StatusCode;
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use futures_util::stream;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct Receiver {
    pub(crate) origin: String,
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    calls: Mutex<Vec<Call>>,
    answers: Mutex<HashMap<String, Answers>>,
}

/// How an endpoint answers. 204 unless a test sets another answer.
#[derive(Clone, Copy)]
pub(crate) enum Answers {
    Status(u16),
    /// To `/elsewhere`, by 307.
    Redirects,
    /// With a body that does not end.
    Endlessly,
    Never,
}

#[derive(Clone)]
pub(crate) struct Call {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Receiver {
    pub(crate) fn start() -> Self {
        let inner = Arc::<Inner>::default();
        let data = web::Data::from(Arc::clone(&inner));
        let server = HttpServer::new(move || App::new().app_data(data.clone()).default_service(web::to(take)))
            .workers(1)
            .disable_signals()
            .bind(("127.0.0.1", 0))
            .unwrap();
        let origin = format!("http://{}", server.addrs()[0]);
        tokio::spawn(server.run());
        Self { origin, inner }
    }

    pub(crate) fn answer(&self, path: &str, answers: Answers) {
        self.inner.answers.lock().unwrap().insert(path.to_owned(), answers);
    }

    pub(crate) fn calls(&self, path: &str) -> Vec<Call> {
        self.inner.calls.lock().unwrap().iter().filter(|call| call.path == path).cloned().collect()
    }

    /// What an endpoint received about this session. Each has a valid signature by this secret.
    pub(crate) fn received(&self, path: &str, session: &str, secret: &str) -> Vec<Value> {
        let calls = self.calls(path).into_iter().map(|call| call.verified(secret));
        calls.filter(|body| body["data"]["gatewaySessionId"] == session).collect()
    }
}

impl Call {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers[name].to_str().unwrap()
    }

    pub(crate) fn is_signed_by(&self, secret: &str) -> bool {
        let webhook = standardwebhooks::Webhook::new(secret).unwrap();
        webhook.verify(self.body.as_bytes(), &self.headers).is_ok()
    }

    fn verified(&self, secret: &str) -> Value {
        assert!(self.is_signed_by(secret), "a bad signature: {:?}", self.headers);
        serde_json::from_str(&self.body).unwrap()
    }
}

async fn take(request: HttpRequest, body: String, inner: web::Data<Inner>) -> HttpResponse {
    let path = request.path().to_owned();
    let copy = |(name, value): (&actix_web::http::header::HeaderName, &actix_web::http::header::HeaderValue)| {
        let name: HeaderName = name.as_str().parse().unwrap();
        (name, HeaderValue::from_bytes(value.as_bytes()).unwrap())
    };
    let headers = request.headers().iter().map(copy).collect();
    inner.calls.lock().unwrap().push(Call { path: path.clone(), headers, body });
    let answers = inner.answers.lock().unwrap().get(&path).copied();
    match answers.unwrap_or(Answers::Status(204)) {
        Answers::Status(code) => HttpResponse::build(StatusCode::from_u16(code).unwrap()).finish(),
        Answers::Redirects => HttpResponse::TemporaryRedirect().insert_header(("location", "/elsewhere")).finish(),
        Answers::Endlessly => {
            let piece = web::Bytes::from(vec![b'x'; 65_536]);
            HttpResponse::Ok().streaming(stream::repeat_with(move || Ok::<_, actix_web::Error>(piece.clone())))
        }
        Answers::Never => {
            // The caller gives up.
            std::future::pending().await
        }
    }
}
