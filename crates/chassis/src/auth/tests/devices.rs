//! Tokens of removed devices, and those of recovery words.

use super::*;

#[test]
fn tokens_of_a_removed_device_are_refused_with_a_reason() {
    let service = Service::new(None);
    let (kept, removed) = (user_claims(), Claims { device: Some(DeviceKey([6; 32])), ..user_claims() });
    let text = |claims: &Claims| sign(claims, KID, &service.key).unwrap();
    let machine = text(&Claims { device: removed.device, ..machine_claims() });
    assert!(service.accepts(&text(&removed)) && service.accepts(&machine));
    let keys = KeySet::new([(KID.to_owned(), service.key.verifying_key())], []);
    service.keys.replace(keys.with_removed([DeviceKey([6; 32])]));
    assert!(service.accepts(&text(&kept)));
    for token in [text(&removed), machine] {
        let refused = service.context.caller(&with_bearer(&token)).unwrap_err();
        assert_eq!((refused.status, refused.code), (401, Code::DeviceRemoved));
    }
}

#[test]
fn recovery_words_reach_the_routes_that_name_them() {
    let service = Service::new(None);
    let claims = Claims { aud: AUDIENCE_RECOVERY.to_owned(), scope: SCOPE_RECOVERY.to_owned(), ..user_claims() };
    let text = sign(&claims, KID, &service.key).unwrap();
    let recovery = with_bearer(&text);
    let code = |access| service.context.admit(access, &recovery).map(|caller| caller.is_some()).map_err(|no| no.code);
    for access in [Access::User, Access::UserOrMachine, Access::Machine] {
        assert_eq!(code(access), Err(Code::Forbidden), "{access:?}");
    }
    for access in [Access::UserOrRecovery, Access::AnyToken] {
        assert_eq!(code(access), Ok(true), "{access:?}");
    }
    for incoherent in [
        Claims { device: None, ..claims.clone() },
        Claims { aud: AUDIENCE_USER.to_owned(), ..claims.clone() },
        Claims { machine_id: Some(MachineId::generate()), ..claims.clone() },
        Claims { scope: SCOPE_USER.to_owned(), ..claims },
    ] {
        assert!(!service.accepts(&sign(&incoherent, KID, &service.key).unwrap()), "{incoherent:?}");
    }
    let data = actix_web::web::Data::new(service.context);
    let header = ("authorization", format!("Bearer {text}"));
    let request = TestRequest::get().insert_header(header).app_data(data).to_http_request();
    assert_eq!(caller_of(&request).unwrap_err().code, Code::Forbidden);
}
