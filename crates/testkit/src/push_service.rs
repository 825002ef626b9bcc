//! A push service for tests (RFC 8030): it keeps what it gets, opens it as a browser would, and gives the answers that a test chooses.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use anyhow::{Context, Result, anyhow, ensure};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use p256::ecdsa::signature::Verifier;
use p256::ecdsa::{Signature, VerifyingKey};
use p256::elliptic_curve::sec1::ToEncodedPoint;
use serde_json::{Value, json};
use web_push_native::{Auth, decrypt};

/// Cheap to clone.
#[derive(Clone)]
pub struct PushService {
    origin: String,
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    received: Mutex<Vec<Received>>,
    answers: Mutex<HashMap<String, PushAnswer>>,
}

/// How an endpoint answers: with a status, or not at all.
#[derive(Clone, Copy, Debug)]
pub enum PushAnswer {
    Status(u16),
    /// The status, with `Retry-After` in seconds.
    Later(u16, u32),
    /// To the same place, by 307.
    Redirect,
    Never,
}

struct Received {
    path: String,
    headers: HashMap<String, String>,
    body: Vec<u8>,
}

/// A browser that has subscribed.
#[derive(Clone)]
pub struct Subscriber {
    path: String,
    secret: p256::SecretKey,
    auth: [u8; 16],
    service: PushService,
}

/// A notification as the browser gets it.
#[derive(Clone, Debug)]
pub struct Pushed {
    pub payload: Value,
    pub headers: HashMap<String, String>,
}

impl PushService {
    /// Serves until the process ends. Call it on the runtime of the test.
    pub async fn start() -> Self {
        let inner = Arc::<Inner>::default();
        let data = web::Data::from(Arc::clone(&inner));
        let server = HttpServer::new(move || App::new().app_data(data.clone()).default_service(web::to(take)))
            .workers(1)
            .disable_signals()
            .bind(("127.0.0.1", 0))
            .unwrap_or_else(|error| panic!("no push service: {error}"));
        let address = server.addrs().first().copied().unwrap_or_else(|| panic!("no address"));
        tokio::spawn(server.run());
        Self { origin: format!("http://{address}"), inner }
    }

    /// What `PUSH_TRUSTED_ORIGINS` names.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// A browser that subscribes here, under a name of its own.
    pub fn subscriber(&self, name: &str) -> Subscriber {
        let secret = p256::SecretKey::random(&mut p256::elliptic_curve::rand_core::OsRng);
        let auth: [u8; 16] = rand::random();
        Subscriber { path: format!("/{name}"), secret, auth, service: self.clone() }
    }

    fn lock<'a, T>(&self, mutex: &'a Mutex<T>) -> MutexGuard<'a, T> {
        mutex.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Subscriber {
    /// What the browser gives: the body of `pushSubscription`.
    pub fn subscription(&self) -> Value {
        let public = self.secret.public_key().to_encoded_point(false);
        json!({
            "endpoint": format!("{}{}", self.service.origin, self.path),
            "keys": { "p256dh": URL_SAFE_NO_PAD.encode(public.as_bytes()), "auth": URL_SAFE_NO_PAD.encode(self.auth) },
        })
    }

    /// From now on the endpoint answers so. It is 201 until then.
    pub fn answer(&self, answer: PushAnswer) {
        self.service.lock(&self.service.inner.answers).insert(self.path.clone(), answer);
    }

    /// How many calls came for this browser.
    pub fn calls(&self) -> usize {
        let received = self.service.lock(&self.service.inner.received);
        received.iter().filter(|one| one.path == self.path).count()
    }

    /// The notifications that came for this browser, opened, each with a good signature of the server (RFC 8292).
    pub fn pushed(&self) -> Vec<Pushed> {
        let received = self.service.lock(&self.service.inner.received);
        let of_browser = received.iter().filter(|one| one.path == self.path);
        of_browser.map(|one| self.open(one).unwrap_or_else(|error| panic!("a bad notification: {error:#}"))).collect()
    }

    fn open(&self, received: &Received) -> Result<Pushed> {
        let header = |name: &str| received.headers.get(name).with_context(|| format!("no {name}"));
        check_vapid(header("authorization")?, &self.service.origin)?;
        ensure!(header("content-encoding")? == "aes128gcm", "another encoding");
        let auth = Auth::clone_from_slice(&self.auth);
        let text = decrypt(received.body.clone(), &self.secret, &auth).map_err(|error| anyhow!("{error}"))?;
        Ok(Pushed { payload: serde_json::from_slice(&text)?, headers: received.headers.clone() })
    }
}

/// `vapid t=<token>, k=<key>`, signed with ES256, for this push service, and good for at most 24 hours.
fn check_vapid(header: &str, audience: &str) -> Result<()> {
    let parts = header.strip_prefix("vapid t=").and_then(|rest| rest.split_once(", k="));
    let (token, key) = parts.context("not the scheme vapid")?;
    let (signed, signature) = token.rsplit_once('.').context("no signature")?;
    let key = VerifyingKey::from_sec1_bytes(&URL_SAFE_NO_PAD.decode(key)?)?;
    key.verify(signed.as_bytes(), &Signature::from_slice(&URL_SAFE_NO_PAD.decode(signature)?)?)?;
    let (header, claims) = signed.split_once('.').context("no claims")?;
    let json = |text: &str| anyhow::Ok(serde_json::from_slice::<Value>(&URL_SAFE_NO_PAD.decode(text)?)?);
    ensure!(json(header)?.get("alg") == Some(&json!("ES256")), "another algorithm");
    let claims = json(claims)?;
    ensure!(claims.get("aud") == Some(&json!(audience)), "for another push service: {claims}");
    let expires = claims.get("exp").and_then(Value::as_i64).context("no exp")?;
    let left = expires - ensemble_chassis::Clock::system().now().unix_seconds();
    ensure!((1..=24 * 60 * 60).contains(&left), "good for {left} s");
    Ok(())
}

async fn take(request: HttpRequest, body: web::Bytes, inner: web::Data<Inner>) -> HttpResponse {
    let path = request.path().to_owned();
    let text = |value: &actix_web::http::header::HeaderValue| value.to_str().unwrap_or_default().to_owned();
    let headers = request.headers().iter().map(|(name, value)| (name.to_string(), text(value))).collect();
    let received = Received { path: path.clone(), headers, body: body.to_vec() };
    inner.received.lock().unwrap_or_else(PoisonError::into_inner).push(received);
    let answer = inner.answers.lock().unwrap_or_else(PoisonError::into_inner).get(&path).copied();
    let status = |status| StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    match answer.unwrap_or(PushAnswer::Status(201)) {
        PushAnswer::Status(code) => HttpResponse::build(status(code)).finish(),
        PushAnswer::Later(code, after) => {
            HttpResponse::build(status(code)).insert_header(("retry-after", after.to_string())).finish()
        }
        PushAnswer::Redirect => HttpResponse::TemporaryRedirect().insert_header(("location", path)).finish(),
        PushAnswer::Never => {
            // The caller gives up long before.
            tokio::time::sleep(Duration::from_secs(600)).await;
            HttpResponse::Ok().finish()
        }
    }
}
