//! Whether others reach a server at an address.

use std::time::Duration;

use ensemble_account::Account;
use ensemble_client::{Client, Credential, Error as ClientError};
use ensemble_types::problem::Code;
use tokio::time::timeout;

use crate::error::{Error, Result};

const ANSWERS_WITHIN: Duration = Duration::from_secs(30);

/// Whether a phone can use the server of the account at the address of this client: https with a certificate that browsers trust, this very
/// server, and sign-ins there.
pub async fn check(me: &Account, client: Client) -> Result<Client> {
    let origin = client.origin().to_owned();
    if !origin.starts_with("https://") && !client.is_on_loopback() {
        return Err(Error::sentence(format!(
            "{origin} is not https, and a browser has no cryptography there. `ensemble phone` without an address shows the ways to https."
        )));
    }
    let late = |_| Error::sentence(format!("{origin} did not answer within {} s.", ANSWERS_WITHIN.as_secs()));
    timeout(ANSWERS_WITHIN, client.version()).await.map_err(late)?.map_err(|error| {
        if error.is(Code::MisdirectedRequest) { unknown(&origin, &error) } else { unreached(&origin, &error) }
    })?;
    let signed_in = client.with_credential(Credential::Device(me.key.clone()));
    match timeout(ANSWERS_WITHIN, signed_in.sign_in()).await.map_err(late)? {
        Ok(token) if token.user_id == me.id => Ok(signed_in),
        Ok(_) => Err(other(&origin, me)),
        Err(error) if error.is(Code::UserNotFound) => Err(other(&origin, me)),
        Err(error @ (ClientError::Problem(_) | ClientError::WrongOrigin { .. })) => Err(unknown(&origin, &error)),
        Err(error) => Err(unreached(&origin, &error)),
    }
}

fn other(origin: &str, me: &Account) -> Error {
    Error::sentence(format!(
        "{origin} is another server than {}: it does not have your account. Nothing was sent to it but a signature for its own address.",
        me.client.origin()
    ))
}

/// The server does not know that it is reached at this address.
fn unknown(origin: &str, error: &ClientError) -> Error {
    Error::sentence(format!(
        "{origin} answers, and takes no sign-ins for this address: {}. Start the server with its address: `ensemble up \
         --public-url {origin}`, or PUBLIC_BASE_URL={origin}.",
        error.to_string().trim_end_matches('.')
    ))
}

fn unreached(origin: &str, error: &ClientError) -> Error {
    let causes: Vec<String> = std::iter::successors(Some(error as &dyn std::error::Error), |error| error.source())
        .map(ToString::to_string)
        .collect();
    let why = causes.join(": ");
    let advice = if why.contains("ertificate") {
        "A phone would refuse this certificate, too: it must be of an authority that browsers know, for this name, and not expired."
    } else {
        "Is the way that leads there still running? `ensemble phone` without an address shows the ways."
    };
    Error::sentence(format!("{origin} cannot be used: {why}. {advice}"))
}
