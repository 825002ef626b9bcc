//! The token of a voice session's agent: what it says, and that no other token is taken for it.

use ensemble_types::ids::GatewaySessionId;

use super::*;

fn claims() -> VoiceToolClaims {
    let at = |seconds| Timestamp::from_unix_seconds(NOW + seconds);
    VoiceToolClaims::new(UserId::generate(), GatewaySessionId::generate(), at(0), at(600))
}

fn verify(service: &Service, token: &str, seconds: i64) -> Result<VoiceToolClaims, BadToken> {
    VoiceToolClaims::verify(token, &service.keys.current().unwrap(), Timestamp::from_unix_seconds(NOW + seconds))
}

#[test]
fn it_names_its_user_and_its_voice_session_until_it_expires() {
    let service = Service::new(None);
    let made = claims();
    let token = made.sign(KID, &service.key).unwrap();
    let read = verify(&service, &token, 600).unwrap();
    assert_eq!((read.sub, read.voice_session, read.aud.as_str()), (made.sub, made.voice_session, "voice-tools"));
    assert!(matches!(verify(&service, &token, 601), Err(BadToken::Expired)));
    // The clock of who signed it may be half a minute ahead.
    assert!(verify(&service, &token, -30).is_ok());
    assert!(matches!(verify(&service, &token, -31), Err(BadToken::TooEarly)));
}

#[test]
fn no_other_token_is_taken_for_it_nor_it_for_another() {
    let service = Service::new(None);
    let made = claims();
    let token = made.sign(KID, &service.key).unwrap();
    assert!(!service.accepts(&token), "it is no access token");
    let payload = serde_json::to_value(&made).unwrap();
    let header = json!({"alg": "EdDSA", "typ": "voice-tools+jwt", "kid": KID});
    assert!(verify(&service, &service.raw(&header, &payload), 0).is_ok(), "the control");
    let with_claim = |claim: &str, value: Value| {
        let mut payload = payload.clone();
        payload[claim] = value;
        service.raw(&header, &payload)
    };
    let as_audience = |aud: &str| with_claim("aud", json!(aud));
    for (name, bad) in [
        ("a user's token", sign(&user_claims(), KID, &service.key).unwrap()),
        ("an access token's type", service.raw(&good_header(), &payload)),
        ("no audience of tools", as_audience(AUDIENCE_USER)),
        ("two audiences", with_claim("aud", json!([AUDIENCE_USER, AUDIENCE_VOICE_TOOLS]))),
        ("another issuer", with_claim("iss", json!("another"))),
        ("no voice session", with_claim("voiceSessionId", Value::Null)),
        ("another key", made.sign(KID, &SigningKey::from_bytes(&[8; 32])).unwrap()),
        ("an unknown key", made.sign("key-2", &service.key).unwrap()),
        ("cut off", token.rsplit_once('.').unwrap().0.to_owned()),
        ("too long", "a".repeat(5_000)),
    ] {
        assert!(verify(&service, &bad, 0).is_err(), "{name}");
    }
    for claim in ["sub", "voiceSessionId", "exp", "iat", "jti", "aud", "iss"] {
        let mut payload = payload.clone();
        payload.as_object_mut().unwrap().remove(claim);
        assert!(verify(&service, &service.raw(&header, &payload), 0).is_err(), "without {claim}");
    }
}
