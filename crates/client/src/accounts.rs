//! The caller's account, other users, and machine tokens.

use ensemble_types::accounts::{
    Account, CreateMachineToken, CreatedMachineToken, MachineToken, MachineTokenPage, PublicUser, UpdateAccount,
};
use ensemble_types::ids::{TokenId, UserId};
use ensemble_types::text::{Blob, Text};
use futures_util::Stream;

use crate::account_key::AccountKey;
use crate::error::{Error, Result};
use crate::pages;
use crate::retry::Repeat;
use crate::seal::BoxKeyPair;
use crate::transport::Client;

impl Client {
    pub async fn account(&self) -> Result<Account> {
        self.get(&["v1", "account"]).send().await
    }

    pub async fn update_account(&self, update: &UpdateAccount) -> Result<Account> {
        self.patch(&["v1", "account"], Repeat::Harmless).json(update).send().await
    }

    pub async fn set_display_name(&self, name: &str) -> Result<Account> {
        let name = Text::new(name).map_err(|error| Error::Argument(format!("the name {error}")))?;
        self.update_account(&UpdateAccount { display_name: Some(name), ..UpdateAccount::default() }).await
    }

    /// Publishes this account's content key unless it is published already, so that others can seal keys to the
    /// account.
    pub async fn publish_content_key(&self, key: &AccountKey) -> Result<Account> {
        let account = self.account().await?;
        let pair = BoxKeyPair::of(key).map_err(|error| Error::Argument(error.to_string()))?;
        let public = pair.public();
        if account.content_public_key.as_deref() == Some(public.to_text().as_str()) {
            return Ok(account);
        }
        let too_long = |_| Error::Argument("a key is too long".to_owned());
        let update = UpdateAccount {
            content_public_key: Some(Blob::new(public.to_text()).map_err(too_long)?),
            content_public_key_signature: Some(Blob::new(public.signed_by(key)).map_err(too_long)?),
            ..UpdateAccount::default()
        };
        self.update_account(&update).await
    }

    /// A user's public profile. Check it with [`crate::seal::BoxPublicKey::of_user`] before you seal anything to
    /// it.
    pub async fn user(&self, id: UserId) -> Result<PublicUser> {
        self.get(&["v1", "users", &id.to_string()]).send().await
    }

    /// Creates a token that can only act as the runner of one machine. The service shows it only in this response.
    pub async fn create_machine_token(&self, request: &CreateMachineToken) -> Result<CreatedMachineToken> {
        self.post(&["v1", "auth", "tokens"], Repeat::Harmful).json(request).send().await
    }

    pub async fn machine_token_page(&self, limit: Option<u32>, cursor: Option<&str>) -> Result<MachineTokenPage> {
        self.get(&["v1", "auth", "tokens"]).query("limit", limit).query("cursor", cursor).send().await
    }

    /// All machine tokens that have not been revoked.
    pub fn machine_tokens(&self) -> impl Stream<Item = Result<MachineToken>> + Send {
        let client = self.clone();
        pages::walk(move |cursor| {
            let client = client.clone();
            async move {
                let page = client.machine_token_page(None, cursor.as_deref()).await?;
                Ok((page.tokens, page.next_cursor))
            }
        })
    }

    /// Revokes a token; it stops working everywhere within ten seconds.
    pub async fn revoke_token(&self, id: TokenId) -> Result<()> {
        self.delete(&["v1", "auth", "tokens", &id.to_string()]).await
    }
}
