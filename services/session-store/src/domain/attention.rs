//! What a hosted session wants from its people: who may set it, and when it is another thing.

use ensemble_types::attention::{Attention, AttentionKind, SetAttention};
use ensemble_types::time::Timestamp;

use super::Invalid;
use super::access::Access;

const MOST_OPEN: u8 = 99;

/// A setting whose parts fit each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NewAttention {
    kind: AttentionKind,
    open: u8,
    id: Option<String>,
    /// The version that it replaces; without it any is replaced.
    pub(crate) expected: Option<i64>,
}

impl NewAttention {
    pub(crate) fn new(set: SetAttention, expected: Option<i64>) -> Result<Self, Invalid> {
        let SetAttention { kind, open, id } = set;
        if open > MOST_OPEN {
            return Err(Invalid::new("/attention/open", "must be 0 to 99"));
        }
        let waits = matches!(kind, AttentionKind::Permission | AttentionKind::Question);
        if waits != (open > 0) {
            return Err(Invalid::new("/attention/open", "is at least 1 of a permission or a question, and else 0"));
        }
        if (kind == AttentionKind::None) == id.is_some() {
            return Err(Invalid::new("/attention/id", "is needed, except with the kind none, which has none"));
        }
        let id = id.map(|id| id.into_string());
        let is_base64url = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if id.as_deref().is_some_and(|id| !id.bytes().all(is_base64url)) {
            return Err(Invalid::new("/attention/id", "must be base64url"));
        }
        Ok(Self { kind, open, id, expected })
    }

    /// What the session wants after this.
    ///
    /// # Errors
    /// A person sets something else than what ends when it was seen.
    pub(crate) fn after(&self, before: &Attention, access: &Access, now: Timestamp) -> Result<Attention, Invalid> {
        let is_seen = before.kind.ends_when_seen() && self.kind == AttentionKind::None;
        if *access != Access::Host && !(is_seen && self.expected.is_some()) {
            return Err(Invalid::new(
                "/attention",
                "is set by the session's machine; its owner can set finished and failed to none, with expectedVersion",
            ));
        }
        let is_same = before.kind == self.kind && before.id == self.id;
        let since = if is_same { before.since } else { Some(now).filter(|_| self.kind != AttentionKind::None) };
        Ok(Attention { kind: self.kind, open: self.open, since, id: self.id.clone() })
    }
}

#[cfg(test)]
mod tests {
    use ensemble_types::sessions::AccessLevel;

    use super::*;

    fn set(json: &str, expected: Option<i64>) -> Result<NewAttention, String> {
        NewAttention::new(serde_json::from_str(json).unwrap(), expected).map_err(|invalid| invalid.pointer)
    }

    const ASKS: &str = r#"{"kind":"permission","open":1,"id":"AAAAAAAAAAA"}"#;

    #[test]
    fn the_parts_fit_each_other() {
        assert!(set(ASKS, None).is_ok());
        for (json, pointer) in [
            (r#"{"kind":"permission","open":100,"id":"AAAAAAAAAAA"}"#, "/attention/open"),
            (r#"{"kind":"question","open":0,"id":"AAAAAAAAAAA"}"#, "/attention/open"),
            (r#"{"kind":"finished","open":1,"id":"AAAAAAAAAAA"}"#, "/attention/open"),
            (r#"{"kind":"none","open":1}"#, "/attention/open"),
            (r#"{"kind":"failed"}"#, "/attention/id"),
            (r#"{"kind":"failed","id":"+++++++++++"}"#, "/attention/id"),
            (r#"{"kind":"failed","id":"AAAAA AAAAA"}"#, "/attention/id"),
            (r#"{"kind":"none","id":"AAAAAAAAAAA"}"#, "/attention/id"),
        ] {
            assert_eq!(set(json, None), Err(pointer.to_owned()), "{json}");
        }
    }

    #[test]
    fn a_person_can_only_say_that_it_was_seen() {
        let owner = Access::Person(AccessLevel::Owner);
        let at = Timestamp::from_unix_seconds(9);
        let before = |kind| Attention { kind, open: 0, since: None, id: None };
        let none = |expected| set(r#"{"kind":"none"}"#, expected).unwrap();
        for kind in AttentionKind::ALL {
            let may = none(Some(1)).after(&before(kind), &owner, at).is_ok();
            assert_eq!(may, matches!(kind, AttentionKind::Finished | AttentionKind::Failed), "{kind:?}");
        }
        assert!(none(None).after(&before(AttentionKind::Finished), &owner, at).is_err(), "of any version");
        assert!(set(ASKS, Some(1)).unwrap().after(&before(AttentionKind::Finished), &owner, at).is_err());
    }

    #[test]
    fn the_same_thing_keeps_its_time() {
        let (first, later) = (Timestamp::from_unix_seconds(1), Timestamp::from_unix_seconds(2));
        let asks = set(ASKS, None).unwrap().after(&Attention::default(), &Access::Host, first).unwrap();
        assert_eq!(asks.since, Some(first));
        let more = set(r#"{"kind":"permission","open":2,"id":"AAAAAAAAAAA"}"#, None).unwrap();
        let more = more.after(&asks, &Access::Host, later).unwrap();
        assert_eq!((more.since, more.open), (Some(first), 2));
        let other = set(r#"{"kind":"permission","open":1,"id":"BBBBBBBBBBB"}"#, None).unwrap();
        assert_eq!(other.after(&more, &Access::Host, later).unwrap().since, Some(later));
        assert_eq!(set(r#"{"kind":"none"}"#, None).unwrap().after(&more, &Access::Host, later).unwrap().since, None);
    }
}
