//! Public links: the secret token in the address, the limits of a link, and view tokens, which let a viewer continue
//! without another use of the link.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ensemble_types::ids::SessionId;
use ensemble_types::links::CreateLink;
use ensemble_types::time::Timestamp;
use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};

use super::Invalid;

pub(crate) const MAX_USES: std::ops::RangeInclusive<i64> = 1..=1_000_000;
/// Lifetime of a view token, unless the link expires first. Using the token does not extend it.
pub(crate) const VIEWING: Duration = Duration::from_secs(15 * 60);

/// The same day of the next year is allowed, also when the year has 366 days.
const LONGEST_LIFE: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// The secret of a link: 256 random bits. Shown once; the database stores only [`LinkToken::hash`].
pub(crate) struct LinkToken([u8; 32]);

/// SHA-256 of a link's token. Links are looked up by it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct TokenHash(pub(crate) [u8; 32]);

/// Signs the view tokens of one link. Replacing the link replaces the key, which invalidates its view tokens.
#[derive(Clone, Copy)]
pub(crate) struct ViewKey(pub(crate) [u8; 32]);

/// A link that has not expired and whose session exists.
#[derive(Clone)]
pub(crate) struct PublicLink {
    pub(crate) session: SessionId,
    pub(crate) view_key: ViewKey,
    pub(crate) expires_at: Option<Timestamp>,
    pub(crate) max_uses: Option<i64>,
    pub(crate) uses: i64,
    pub(crate) encrypted_key: Option<String>,
}

/// The validated limits of a link.
#[derive(Clone, Debug)]
pub(crate) struct LinkTerms {
    pub(crate) expires_at: Option<Timestamp>,
    pub(crate) max_uses: Option<i64>,
    pub(crate) encrypted_key: Option<String>,
}

impl PublicLink {
    pub(crate) fn is_used_up(&self) -> bool {
        self.max_uses.is_some_and(|max| self.uses >= max)
    }

    pub(crate) fn remaining_uses(&self) -> Option<i64> {
        self.max_uses.map(|max| (max - self.uses).max(0))
    }

    /// When a viewing with this token must end, if the token is valid now.
    pub(crate) fn viewing_end(&self, view_token: &str, now: Timestamp) -> Option<Timestamp> {
        let token_end = self.view_key.verify(view_token, now)?;
        Some(self.expires_at.map_or(token_end, |link_end| link_end.min(token_end)))
    }
}

impl LinkTerms {
    pub(crate) fn new(request: CreateLink, now: Timestamp) -> Result<Self, Invalid> {
        if request.expires_at.is_some_and(|at| at <= now) {
            return Err(Invalid::new("/expiresAt", "must be in the future"));
        }
        if request.expires_at.is_some_and(|at| at > now.plus(LONGEST_LIFE)) {
            return Err(Invalid::new("/expiresAt", "must be at most one year (366 days) ahead"));
        }
        if request.max_uses.is_some_and(|uses| !MAX_USES.contains(&uses)) {
            return Err(Invalid::new("/maxUses", "must be a whole number from 1 to 1000000"));
        }
        let encrypted_key = request.encrypted_key.map(ensemble_types::sessions::SealedKey::into_string);
        Ok(Self { expires_at: request.expires_at, max_uses: request.max_uses, encrypted_key })
    }
}

impl LinkToken {
    pub(crate) fn generate() -> Self {
        Self(rand::random())
    }

    /// As it appears in the link's URL.
    pub(crate) fn text(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.0)
    }

    /// `None` when the text does not have the form of a token; callers treat it like an unknown link.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        URL_SAFE_NO_PAD.decode(text).ok()?.try_into().ok().map(Self)
    }

    pub(crate) fn hash(&self) -> TokenHash {
        TokenHash(Sha256::digest(self.0).into())
    }
}

impl ViewKey {
    pub(crate) fn generate() -> Self {
        Self(rand::random())
    }

    /// A token for a viewing that began at `viewed_at`: its expiry in microseconds, and a signature over it.
    pub(crate) fn sign(&self, viewed_at: Timestamp) -> String {
        let until = viewed_at.plus(VIEWING).micros().to_be_bytes();
        let mut token = until.to_vec();
        token.extend_from_slice(&self.mac(until).finalize().into_bytes());
        URL_SAFE_NO_PAD.encode(token)
    }

    /// The token's expiry, if this key signed it and it has not expired.
    pub(crate) fn verify(&self, token: &str, now: Timestamp) -> Option<Timestamp> {
        let bytes = URL_SAFE_NO_PAD.decode(token).ok()?;
        let (until, signature) = bytes.split_first_chunk::<8>()?;
        // Compares in constant time.
        self.mac(*until).verify_slice(signature).ok()?;
        Some(Timestamp::from_micros(i64::from_be_bytes(*until))).filter(|until| now < *until)
    }

    fn mac(&self, until: [u8; 8]) -> Hmac<Sha256> {
        // A key shorter than a block of the hash is padded with zeros (RFC 2104, section 2).
        let mut block = [0_u8; 64];
        for (slot, byte) in block.iter_mut().zip(self.0) {
            *slot = byte;
        }
        let mut mac = Hmac::<Sha256>::new(&block.into());
        mac.update(b"ensemble-view-v1");
        mac.update(&until);
        mac
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_token_is_valid_for_its_link_until_it_expires() {
        let (key, other) = (ViewKey::generate(), ViewKey::generate());
        let now = Timestamp::from_micros(1_000_000);
        let token = key.sign(now);
        assert_eq!(key.verify(&token, now), Some(now.plus(VIEWING)));
        assert_eq!(other.verify(&token, now), None);
        assert_eq!(key.verify(&token, now.plus(VIEWING)), None);
        for bad in ["", "AAAA", "%%%%", &token[1..], &format!("{token}A")] {
            assert_eq!(key.verify(bad, now), None, "{bad}");
        }
    }

    #[test]
    fn a_link_token_survives_its_text_form() {
        let token = LinkToken::generate();
        assert_eq!(token.text().len(), 43);
        assert!(LinkToken::parse(&token.text()).is_some_and(|parsed| parsed.hash() == token.hash()));
        for bad in ["", "short", &"A".repeat(44), &"=".repeat(43)] {
            assert!(LinkToken::parse(bad).is_none(), "{bad}");
        }
    }

    fn link(uses: i64, max_uses: Option<i64>, expires_at: Option<Timestamp>) -> PublicLink {
        let (session, view_key) = (SessionId::generate(), ViewKey::generate());
        PublicLink { session, view_key, expires_at, max_uses, uses, encrypted_key: None }
    }

    #[test]
    fn a_link_is_used_up_with_its_last_use() {
        for (uses, max_uses, used_up, remaining) in [
            (0, None, false, None),
            (9, None, false, None),
            (2, Some(5), false, Some(3)),
            (4, Some(5), false, Some(1)),
            (5, Some(5), true, Some(0)),
            (6, Some(5), true, Some(0)),
        ] {
            let link = link(uses, max_uses, None);
            assert_eq!((link.is_used_up(), link.remaining_uses()), (used_up, remaining), "{uses} of {max_uses:?}");
        }
    }

    #[test]
    fn a_viewing_ends_with_its_token_or_with_the_link() {
        let now = Timestamp::from_micros(1_000_000);
        let token_end = now.plus(VIEWING);
        let (earlier, later) = (token_end.minus(Duration::from_secs(1)), token_end.plus(Duration::from_secs(1)));
        for (link_end, end) in [(None, token_end), (Some(later), token_end), (Some(earlier), earlier)] {
            let link = link(0, None, link_end);
            assert_eq!(link.viewing_end(&link.view_key.sign(now), now), Some(end));
            assert_eq!(link.viewing_end(&ViewKey::generate().sign(now), now), None, "another link's token");
        }
    }

    #[test]
    fn the_limits_of_a_link_have_bounds() {
        let now = Timestamp::from_micros(1_000_000);
        let (micro, year) = (Duration::from_micros(1), Duration::from_secs(366 * 86_400));
        let refused = |expires_at, max_uses| {
            let request = CreateLink { expires_at, max_uses, encrypted_key: None };
            LinkTerms::new(request, now).err().map(|invalid| invalid.pointer)
        };
        for good in [now.plus(micro), now.plus(year)] {
            assert_eq!(refused(Some(good), None), None);
        }
        for bad in [now, now.minus(micro), now.plus(year).plus(micro)] {
            assert_eq!(refused(Some(bad), None).as_deref(), Some("/expiresAt"));
        }
        for good in [1, 1_000_000] {
            assert_eq!(refused(None, Some(good)), None, "{good}");
        }
        for bad in [i64::MIN, -1, 0, 1_000_001] {
            assert_eq!(refused(None, Some(bad)).as_deref(), Some("/maxUses"), "{bad}");
        }
        assert_eq!(refused(None, None), None);
    }

    #[test]
    fn a_view_token_lives_15_minutes() {
        let now = Timestamp::from_unix_seconds(1_000);
        let key = ViewKey::generate();
        assert_eq!(key.verify(&key.sign(now), now), Some(Timestamp::from_unix_seconds(1_900)));
    }

    #[test]
    fn secrets_are_not_repeated() {
        assert_ne!(LinkToken::generate().text(), LinkToken::generate().text());
        let now = Timestamp::from_micros(0);
        assert_ne!(ViewKey::generate().sign(now), ViewKey::generate().sign(now));
    }
}
