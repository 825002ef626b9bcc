//! The internal listener: tokens with which voice agents read for their user.

use std::sync::Arc;

use ensemble_chassis::KeySource;
use ensemble_chassis::auth::{BadToken, VoiceToolClaims};
use ensemble_rpc::identity::{KeysClient, MintVoiceTokenRequest, VoiceTokens, VoiceTokensClient};
use ensemble_rpc::{KeyRefresh, RemoteKeys, RpcError};
use ensemble_testkit::on_both_databases;
use ensemble_testkit::peers::channel_to;
use ensemble_types::ids::{GatewaySessionId, UserId};
use ensemble_types::time::Timestamp;

use crate::Fixture;

const DAY: i64 = 86_400;

on_both_databases! {
    async fn a_voice_session_gets_a_token_for_its_user_and_itself(on: Backend) {
        let fixture = Fixture::new(on).await;
        let (_, _, user) = fixture.account().await;
        let channel = channel_to(&fixture.service.internal_url());
        let identity = VoiceTokensClient::new(channel.clone());
        let voice_session = GatewaySessionId::generate();
        let mint = |user_id: &str, voice_session_id: &str, expires_at: i64| {
            let (user_id, voice_session_id) = (user_id.to_owned(), voice_session_id.to_owned());
            identity.mint(MintVoiceTokenRequest { user_id, voice_session_id, expires_at })
        };
        let keys = RemoteKeys::follow(Arc::new(KeysClient::new(channel.clone())), KeyRefresh::default()).await;
        let keys = keys.current().unwrap();
        let now = ensemble_chassis::Clock::system().now();
        let in_an_hour = Timestamp::from_unix_seconds(now.unix_seconds() + 3_600);
        let token = mint(&user, &voice_session.to_string(), in_an_hour.micros()).await.unwrap().token;
        let claims = VoiceToolClaims::verify(&token, &keys, now).unwrap();
        assert_eq!((claims.sub.to_string(), claims.voice_session), (user.clone(), voice_session));
        assert_eq!(claims.exp, in_an_hour.unix_seconds());
        let over = Timestamp::from_unix_seconds(in_an_hour.unix_seconds() + 1);
        assert!(matches!(VoiceToolClaims::verify(&token, &keys, over), Err(BadToken::Expired)));
        // It is for the tools of its voice session and for nothing else.
        fixture.api.with_token(&token).get("/v1/account").await.problem(401, "UNAUTHENTICATED");
        // Nothing outlasts a day, whatever the gateway asks for.
        let token = mint(&user, &voice_session.to_string(), i64::MAX / 2).await.unwrap().token;
        let claims = VoiceToolClaims::verify(&token, &keys, now).unwrap();
        assert_eq!(claims.exp - claims.iat, DAY);
        let unknown = UserId::generate().to_string();
        assert!(matches!(mint(&unknown, &voice_session.to_string(), 0).await, Err(RpcError::NotFound(_))));
        for (user, voice_session) in [("x", voice_session.to_string().as_str()), (user.as_str(), "x")] {
            assert!(matches!(mint(user, voice_session, 0).await, Err(RpcError::Invalid(_))));
        }
    }
}
