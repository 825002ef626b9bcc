//! Signing in: request a challenge, sign it with the dialled origin, receive a token (section "Accounts" of the
//! interface).

use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ensemble_types::accounts::{Challenge, SignIn, SignedIn};
use ensemble_types::ids::TokenId;
use ensemble_types::problem::Code;
use ensemble_types::text::{Blob, Text};
use ensemble_types::time::Timestamp;
use futures_util::future::BoxFuture;
use reqwest::header;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;

use crate::call::LONGEST_RECORD;
use crate::credential::{Credential, Token};
use crate::error::{Error, Result};
use crate::retry::Repeat;
use crate::transport::Client;
use ensemble_protocol::AccountKey;

impl Client {
    /// Signs in with this client's account key and returns a token that is not about to expire.
    pub async fn sign_in(&self) -> Result<Token> {
        if let Some(token) = self.fresh_token() {
            return Ok(token);
        }
        // A task of its own: a caller that is not polled for a while, because its program waits for something else, would keep
        // all others from signing in.
        let client = self.clone();
        match tokio::spawn(async move { client.sign_in_alone().await }).await {
            Ok(signed_in) => signed_in,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Err(Error::Argument("the program is about to end".to_owned())),
            },
        }
    }

    async fn sign_in_alone(&self) -> Result<Token> {
        let Some((key, create)) = self.0.credential.key() else {
            return Err(Error::NoCredential("an account key"));
        };
        let _one = self.0.signing_in.lock().await;
        if let Some(token) = self.fresh_token() {
            return Ok(token);
        }
        let token = self.exchange(key, create).await?;
        *self.token() = Some(token.clone());
        Ok(token)
    }

    fn fresh_token(&self) -> Option<Token> {
        self.token().clone().filter(Token::is_fresh)
    }

    fn token(&self) -> MutexGuard<'_, Option<Token>> {
        self.0.token.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Revokes this client's current token, if there is one.
    pub async fn sign_out(&self) -> Result<()> {
        let Some(token) = self.token().take() else { return Ok(()) };
        let id = token_id(token.expose()).ok_or_else(|| Error::Argument("the token has no id".to_owned()))?;
        self.with_credential(Credential::Bearer(token.token)).revoke_token(id).await
    }

    /// The addresses at which the server takes sign-ins: those at which people reach it.
    pub async fn public_origins(&self) -> Result<Vec<String>> {
        Ok(self.challenge().await?.public_origins)
    }

    async fn challenge(&self) -> Result<Challenge> {
        let call = self.post(&["v1", "auth", "challenge"], Repeat::Harmless).anonymous();
        call.at_most(LONGEST_RECORD).send().await
    }

    async fn exchange(&self, key: &AccountKey, create: bool) -> Result<Token> {
        // A challenge can be used once. When the response is lost, the next attempt needs a new challenge.
        let mut tries = 0;
        loop {
            let challenge = self.challenge().await?;
            let accepted = challenge.public_origins;
            let request = SignIn {
                public_key: fit(key.public_key())?,
                signature: fit(key.sign_challenge(self.origin(), &challenge.challenge))?,
                challenge: fit(challenge.challenge)?,
                origin: Text::new(self.origin()).map_err(|error| Error::Argument(format!("the origin {error}")))?,
                create,
                invite: self.0.credential.admission().cloned(),
            };
            tries += 1;
            let call = self.post(&["v1", "auth"], Repeat::Harmful).anonymous().json(&request);
            match call.at_most(LONGEST_RECORD).send_whole().await {
                Ok(answer) => {
                    let signed_in: SignedIn = serde_json::from_slice(&answer.body)
                        .map_err(|source| Error::InvalidResponse { call: "POST /v1/auth".to_owned(), source })?;
                    let date = answer.headers.get(header::DATE).and_then(|date| date.to_str().ok());
                    return Ok(token(signed_in, date));
                }
                Err(error) if tries < 3 && crate::retry::again(&error, Repeat::Harmless).is_some() => {
                    tokio::time::sleep(self.0.retry.pause(tries, None)).await;
                }
                Err(error) => return Err(self.refused(error, accepted)),
            }
        }
    }

    /// Names the cause when the service refused a sign-in because of the origin that it was for.
    fn refused(&self, error: Error, accepted: Vec<String>) -> Error {
        let origin = self.origin();
        let is_cause =
            error.is(Code::Unauthenticated) && !accepted.is_empty() && accepted.iter().all(|own| own != origin);
        if is_cause { Error::WrongOrigin { origin: origin.to_owned(), accepted } } else { error }
    }
}

impl Client {
    /// The bearer token, if any. The future is boxed because signing in is itself a call (one without a bearer token).
    pub(crate) fn bearer(&self) -> BoxFuture<'_, Result<Option<SecretString>>> {
        Box::pin(async move {
            match &self.0.credential {
                Credential::Anonymous => Ok(None),
                Credential::Bearer(token) => Ok(Some(token.clone())),
                Credential::Account(_) | Credential::Invited(..) | Credential::Device(_) => {
                    self.sign_in().await.map(|token| Some(token.token))
                }
            }
        })
    }

    /// Drops the cached token, so that the next call signs in again.
    pub(crate) fn renew(&self) {
        if self.0.credential.key().is_some() {
            *self.token() = None;
        }
    }

    /// Drops the cached token if it is the refused one. Returns whether a new one can be requested.
    pub(crate) fn forget(&self, refused: Option<&SecretString>) -> bool {
        let (Some(_), Some(refused)) = (self.0.credential.key(), refused) else {
            return false;
        };
        let mut kept = self.token();
        if kept.as_ref().is_some_and(|token| token.expose() == refused.expose_secret()) {
            *kept = None;
        }
        true
    }
}

/// Computes the renewal time from the lifetime and the server's own clock (RFC 9110, section 6.6.1), so that a wrong
/// local clock does not matter.
fn token(signed_in: SignedIn, date: Option<&str>) -> Token {
    let now = date.and_then(|date| OffsetDateTime::parse(date, &Rfc2822).ok());
    let remaining = match now {
        Some(now) => signed_in.expires_at.since(Timestamp::from_unix_seconds(now.unix_timestamp())),
        None => Duration::from_secs(60),
    };
    Token::stored(signed_in.token.into(), signed_in.user_id, signed_in.expires_at, remaining)
}

/// The `jti` of a token (RFC 7519, section 4.1.7). The client needs no other claim.
fn token_id(token: &str) -> Option<TokenId> {
    #[derive(Deserialize)]
    struct Claims {
        jti: TokenId,
    }
    let claims = URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
    serde_json::from_slice::<Claims>(&claims).ok().map(|claims| claims.jti)
}

fn fit<const MIN: usize, const MAX: usize>(text: String) -> Result<Blob<MIN, MAX>> {
    Blob::new(text).map_err(|error| Error::Argument(format!("a part of the sign-in {error}")))
}
