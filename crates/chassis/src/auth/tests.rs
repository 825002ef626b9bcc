//! Which tokens are accepted, until when, and what each kind of route asks for.

mod devices;
mod voice_tools;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use actix_web::HttpRequest;
use actix_web::test::TestRequest;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::{Signer, SigningKey, VerifyingKey};
use ensemble_types::ids::{MachineId, TokenId, UserId};
use ensemble_types::problem::{Code, Problem};
use ensemble_types::time::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::Clock;

const KID: &str = "key-1";
const NOW: i64 = 1_774_483_200;

/// A service's view of callers, with keys and a clock that the test sets.
struct Service {
    key: SigningKey,
    keys: Arc<FixedKeys>,
    now: Arc<AtomicI64>,
    context: AuthContext,
}

/// Refuses every key with 429.
struct Closed;

impl Gate for Closed {
    fn check(&self, _: &HttpRequest) -> Result<(), Problem> {
        Err(Problem::new(Code::RateLimited, "Too many wrong keys."))
    }
}

struct Open;

impl Gate for Open {
    fn check(&self, _: &HttpRequest) -> Result<(), Problem> {
        Ok(())
    }
}

impl Service {
    fn new(gate: Option<Arc<dyn Gate>>) -> Self {
        let key = SigningKey::from_bytes(&[7; 32]);
        let keys = Arc::new(FixedKeys::new(KeySet::new([(KID.to_owned(), key.verifying_key())], [])));
        let now = Arc::new(AtomicI64::new(NOW));
        let read = Arc::clone(&now);
        let clock = Clock::from_fn(move || Timestamp::from_unix_seconds(read.load(Ordering::SeqCst)));
        let context = AuthContext::new(Arc::clone(&keys) as Arc<dyn KeySource>, gate, clock);
        Self { key, keys, now, context }
    }

    /// Signs a header and a payload as they are.
    fn raw(&self, header: &Value, payload: &Value) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(header), part(payload));
        let signature = URL_SAFE_NO_PAD.encode(self.key.sign(signed.as_bytes()).to_bytes());
        format!("{signed}.{signature}")
    }

    fn with_header(&self, field: &str, value: Value) -> String {
        let mut header = good_header();
        header[field] = value;
        self.raw(&header, &good_payload())
    }

    fn with_claim(&self, claim: &str, value: Value) -> String {
        let mut payload = good_payload();
        payload[claim] = value;
        self.raw(&good_header(), &payload)
    }

    fn accepts(&self, token: &str) -> bool {
        self.context.identify(token).is_some()
    }

    fn at(&self, seconds: i64) -> &Self {
        self.now.store(NOW + seconds, Ordering::SeqCst);
        self
    }
}

fn good_header() -> Value {
    json!({"alg": "EdDSA", "typ": "at+jwt", "kid": KID})
}

fn good_payload() -> Value {
    serde_json::to_value(user_claims()).unwrap()
}

fn user_claims() -> Claims {
    Claims {
        iss: ISSUER.to_owned(),
        aud: AUDIENCE_USER.to_owned(),
        sub: UserId::generate(),
        jti: TokenId::generate(),
        iat: NOW,
        exp: NOW + 600,
        scope: SCOPE_USER.to_owned(),
        machine_id: None,
        device: Some(DeviceKey([5; 32])),
    }
}

fn machine_claims() -> Claims {
    Claims {
        aud: AUDIENCE_MACHINE.to_owned(),
        scope: SCOPE_MACHINE.to_owned(),
        machine_id: Some(MachineId::generate()),
        ..user_claims()
    }
}

fn with_bearer(token: &str) -> HttpRequest {
    TestRequest::get().insert_header(("authorization", format!("Bearer {token}"))).to_http_request()
}

#[test]
fn a_token_says_whose_it_is() {
    let service = Service::new(None);
    let (user, machine) = (user_claims(), machine_claims());
    for claims in [user, machine] {
        let token = sign(&claims, KID, &service.key).unwrap();
        let expected = Caller {
            user: claims.sub,
            machine: claims.machine_id,
            device: Some(DeviceKey([5; 32])),
            is_recovery: false,
            token: claims.jti,
            expires_at: Timestamp::from_unix_seconds(NOW + 600),
        };
        assert_eq!(service.context.caller(&with_bearer(&token)).unwrap(), expected);
        assert_eq!(service.context.identify(&token), Some(expected), "the second time from the cache");
    }
}

#[test]
fn a_token_is_valid_from_its_first_second_to_its_last_give_or_take_30() {
    for claim in [None, Some("nbf")] {
        let service = Service::new(None);
        let token = match claim {
            // With an earlier `iat` it is `nbf` that counts, and the later of the two in any case.
            Some(claim) => {
                let mut payload = good_payload();
                payload["iat"] = json!(NOW - 300);
                payload[claim] = json!(NOW);
                service.raw(&good_header(), &payload)
            }
            None => service.raw(&good_header(), &good_payload()),
        };
        assert!(!service.at(-31).accepts(&token), "{claim:?}");
        assert!(service.at(-30).accepts(&token), "{claim:?}");
        assert!(service.at(630).accepts(&token), "{claim:?}");
        assert!(!service.at(631).accepts(&token), "{claim:?}");
    }
    let service = Service::new(None);
    let early_nbf = service.with_claim("nbf", json!(NOW - 300));
    assert!(!service.at(-31).accepts(&early_nbf), "`iat` is later");
    assert!(!service.at(631).accepts(&service.with_claim("nbf", json!(NOW))), "expired when it is first read");
}

#[test]
fn a_revoked_token_is_refused_also_when_it_is_cached() {
    let service = Service::new(None);
    let (kept, revoked) = (user_claims(), user_claims());
    let text = |claims| sign(claims, KID, &service.key).unwrap();
    assert!(service.accepts(&text(&revoked)));
    let mut changes = service.keys.changes();
    service.keys.replace(KeySet::new([(KID.to_owned(), service.key.verifying_key())], [revoked.jti]));
    assert!(changes.has_changed().unwrap(), "long answers check their callers again");
    changes.mark_unchanged();
    assert!(!service.accepts(&text(&revoked)) && service.accepts(&text(&kept)));
    service.keys.replace(KeySet::new([], []));
    assert!(!service.accepts(&text(&kept)), "its key is not published any more");
}

#[test]
fn only_our_own_header_is_accepted() {
    let service = Service::new(None);
    assert!(service.accepts(&service.raw(&good_header(), &good_payload())));
    for (field, value) in [
        ("alg", json!("HS256")),
        ("alg", json!("none")),
        ("typ", json!("JWT")),
        ("typ", Value::Null),
        ("kid", json!("key-2")),
        ("kid", Value::Null),
        ("jku", json!("https://example.com/keys")),
        ("jwk", json!({"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"})),
        ("x5u", json!("https://example.com/chain")),
        ("x5c", json!(["MIIB"])),
        ("crit", json!(["exp"])),
    ] {
        assert!(!service.accepts(&service.with_header(field, value.clone())), "{field}: {value}");
    }
}

#[test]
fn only_coherent_claims_are_accepted() {
    let service = Service::new(None);
    assert!(service.accepts(&service.with_claim("exp", json!(NOW))), "a life of no second is a life");
    for (claim, value) in [
        ("iss", json!("another")),
        ("aud", json!(AUDIENCE_MACHINE)),
        ("aud", json!("other")),
        ("scope", json!(SCOPE_MACHINE)),
        ("scope", json!("root")),
        ("machineId", json!(MachineId::generate())),
        ("exp", json!(NOW - 1)),
        ("exp", Value::Null),
        ("sub", json!("no-id")),
        ("device", json!("AAAA")),
        ("device", json!(7)),
        ("nbf", Value::Null),
        ("nbf", json!("soon")),
    ] {
        assert!(!service.accepts(&service.with_claim(claim, value.clone())), "{claim}: {value}");
    }
    let good = machine_claims();
    for claims in [
        Claims { machine_id: None, ..good.clone() },
        Claims { aud: AUDIENCE_USER.to_owned(), ..good.clone() },
        Claims { scope: SCOPE_USER.to_owned(), ..good },
    ] {
        assert!(!service.accepts(&sign(&claims, KID, &service.key).unwrap()), "{claims:?}");
    }
}

#[test]
fn a_signature_is_by_the_named_key_over_these_very_bytes() {
    let service = Service::new(None);
    let other = SigningKey::from_bytes(&[8; 32]);
    assert!(!service.accepts(&sign(&user_claims(), KID, &other).unwrap()));
    let token = service.raw(&good_header(), &good_payload());
    let (signed, signature) = token.rsplit_once('.').unwrap();
    let (header, _) = signed.split_once('.').unwrap();
    let another = URL_SAFE_NO_PAD.encode(good_payload().to_string());
    for bad in [format!("{header}.{another}.{signature}"), format!("{signed}."), signed.to_owned(), String::new()] {
        assert!(!service.accepts(&bad), "{bad}");
    }
}

/// With the neutral element as key and as first half of the signature, a check that is not strict accepts any message.
#[test]
fn signatures_by_weak_keys_are_refused() {
    let mut neutral = [0; 32];
    neutral[0] = 1;
    let weak = VerifyingKey::from_bytes(&neutral).unwrap();
    assert!(weak.is_weak());
    let service = Service::new(None);
    service.keys.replace(KeySet::new([(KID.to_owned(), weak)], []));
    let token = service.raw(&good_header(), &good_payload());
    let (signed, _) = token.rsplit_once('.').unwrap();
    let signature = [neutral, [0; 32]].concat();
    assert!(!service.accepts(&format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))));
}

#[test]
fn a_token_has_at_most_4096_bytes() {
    let service = Service::new(None);
    let padded = |header_bytes: usize, payload_bytes: usize| {
        let (mut header, mut payload) = (good_header(), good_payload());
        header["cty"] = json!("c".repeat(header_bytes));
        payload["note"] = json!("n".repeat(payload_bytes));
        service.raw(&header, &payload)
    };
    // Three bytes are four characters, so that both parts are needed to reach any length.
    let of_length = |length: usize| {
        let about = (length - padded(0, 0).len()) * 3 / 4;
        let sizes = (about - 8..about).flat_map(|header| (0..4).map(move |payload| (header, payload)));
        sizes.map(|(header, payload)| padded(header, payload)).find(|token| token.len() == length).unwrap()
    };
    assert!(service.accepts(&of_length(4_096)));
    assert!(!service.accepts(&of_length(4_097)));
}

#[test]
fn routes_ask_for_kinds_of_callers() {
    let service = Service::new(None);
    let user = with_bearer(&sign(&user_claims(), KID, &service.key).unwrap());
    let machine = with_bearer(&sign(&machine_claims(), KID, &service.key).unwrap());
    let anonymous = TestRequest::get().to_http_request();
    let wrong = with_bearer("x");
    let code = |access, request: &HttpRequest| match service.context.admit(access, request) {
        Ok(caller) => Ok(caller.is_some()),
        Err(problem) => Err(problem.code),
    };
    for (access, of_user, of_machine) in [
        (Access::User, Ok(true), Err(Code::Forbidden)),
        (Access::UserOrMachine, Ok(true), Ok(true)),
        (Access::Machine, Err(Code::Forbidden), Ok(true)),
        (Access::UserOrRecovery, Ok(true), Err(Code::Forbidden)),
        (Access::AnyToken, Ok(true), Ok(true)),
    ] {
        assert_eq!((code(access, &user), code(access, &machine)), (of_user, of_machine), "{access:?}");
        assert_eq!(code(access, &anonymous), Err(Code::Unauthenticated), "{access:?}");
        assert_eq!(code(access, &wrong), Err(Code::Unauthenticated), "{access:?}");
    }
    for access in [Access::Public, Access::VoiceAgent, Access::Webhook] {
        for request in [&user, &machine, &anonymous, &wrong] {
            assert_eq!(code(access, request), Ok(false), "{access:?}");
        }
    }
}

#[test]
fn a_route_with_a_voice_key_asks_the_gate() {
    let request = TestRequest::get().to_http_request();
    for access in [Access::VoiceKey, Access::VoicePerson] {
        let admit = |gate| Service::new(gate).context.admit(access, &request).map_err(|problem| problem.code);
        assert_eq!(admit(Some(Arc::new(Open) as Arc<dyn Gate>)), Ok(None));
        assert_eq!(admit(Some(Arc::new(Closed))), Err(Code::RateLimited));
        assert_eq!(admit(None), Err(Code::Unauthenticated), "without a gate every call is refused");
    }
}

#[test]
fn the_bearer_is_read_from_one_header() {
    for (values, token) in [
        (&["Bearer abc"][..], Some("abc")),
        (&["bearer abc"], Some("abc")),
        (&["Bearer  abc"], Some("abc")),
        (&["Bearer "], None),
        (&["Bearer"], None),
        (&["Basic abc"], None),
        (&["abc"], None),
        (&["Bearer abc", "Bearer abc"], None),
        (&[], None),
    ] {
        let request =
            values.iter().fold(TestRequest::get(), |request, value| request.append_header(("authorization", *value)));
        assert_eq!(bearer(&request.to_http_request()), token, "{values:?}");
    }
}

#[test]
fn a_service_without_keys_cannot_identify_anybody() {
    struct NoKeys;
    impl KeySource for NoKeys {
        fn current(&self) -> Result<Arc<KeySet>, KeysUnavailable> {
            Err(KeysUnavailable)
        }
        fn changes(&self) -> tokio::sync::watch::Receiver<()> {
            tokio::sync::watch::channel(()).1
        }
    }
    let context = AuthContext::new(Arc::new(NoKeys), None, Clock::system());
    let problem = context.caller(&with_bearer("x")).unwrap_err();
    assert_eq!(problem.code, Code::Unavailable);
    assert!(context.identify("x").is_none());
    let code = |request: &HttpRequest| caller_of(request).unwrap_err().code;
    assert_eq!(code(&TestRequest::get().to_http_request()), Code::Internal, "no context at all");
    let data = actix_web::web::Data::new(context);
    assert_eq!(code(&TestRequest::get().app_data(data).to_http_request()), Code::Unauthenticated);
}
