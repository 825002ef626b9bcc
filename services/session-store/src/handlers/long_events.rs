//! Long events of streams: encoded once, kept within a bound for all streams together, sent piece by piece.
//!
//! A stream whose reader does not read holds a key and a position, not the event. An event that had to leave is encoded again
//! from the stored message. One that cannot be (a session may have changed) ends its streams, whose clients come back.

use bytes::Bytes;
use ensemble_types::ids::{SessionId, UserId};
use moka::policy::EvictionPolicy;
use moka::sync::Cache;

use crate::domain::stream::SessionStamp;

/// Events up to this length are sent in one piece.
pub(crate) const PIECE: usize = 16 << 10;
/// The most bytes of long events that are kept. A message has at most 1 MiB.
const KEPT_BYTES: u64 = 16 << 20;

/// Which event; all its readers get the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LongEvent {
    Message {
        session: SessionId,
        seq: i64,
        is_public: bool,
    },
    /// A session as one reader sees it, `None` for readers with a public link.
    Session {
        session: SessionId,
        reader: Option<UserId>,
        stamp: SessionStamp,
    },
}

/// The long events of a service. Cheap to clone.
#[derive(Clone)]
pub(crate) struct LongEvents(Cache<LongEvent, Bytes>);

impl LongEvents {
    pub(crate) fn new() -> Self {
        let weight = |_: &LongEvent, bytes: &Bytes| u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let policy = EvictionPolicy::lru();
        Self(Cache::builder().max_capacity(KEPT_BYTES).weigher(weight).eviction_policy(policy).build())
    }

    /// Keeps an event, or takes the one that is kept already.
    pub(super) fn keep(&self, event: LongEvent, bytes: Bytes) -> Bytes {
        self.0.get_with(event, || bytes)
    }

    pub(super) fn get(&self, event: &LongEvent) -> Option<Bytes> {
        self.0.get(event)
    }
}

/// How much of a long event a stream has sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sending {
    pub(super) event: LongEvent,
    length: usize,
    sent: usize,
}

impl Sending {
    pub(super) fn new(event: LongEvent, bytes: &Bytes) -> Self {
        Self { event, length: bytes.len(), sent: 0 }
    }

    /// The next piece, and whether more follow. `None` when these are not the bytes that it began with.
    pub(super) fn piece(&mut self, bytes: &Bytes) -> Option<(Bytes, bool)> {
        let end = (self.sent + PIECE).min(self.length);
        let piece = (bytes.len() == self.length).then(|| bytes.slice(self.sent..end))?;
        self.sent = end;
        Some((piece, end < self.length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(seq: i64) -> LongEvent {
        LongEvent::Message { session: SessionId::generate(), seq, is_public: false }
    }

    #[test]
    fn what_is_kept_stays_within_its_bound() {
        let events = LongEvents::new();
        for seq in 0..100 {
            events.keep(message(seq), Bytes::from(vec![b'x'; 1 << 20]));
        }
        events.0.run_pending_tasks();
        assert!(events.0.weighted_size() <= KEPT_BYTES);
        assert!(events.0.entry_count() > 0);
    }

    #[test]
    fn the_pieces_are_the_event() {
        let bytes = Bytes::from((0..u8::MAX).cycle().take(3 * PIECE + 7).collect::<Vec<u8>>());
        let mut sending = Sending::new(message(1), &bytes);
        assert!(sending.piece(&bytes.slice(1..)).is_none(), "other bytes");
        let mut sent = Vec::new();
        loop {
            let (piece, goes_on) = sending.piece(&bytes).unwrap();
            sent.extend_from_slice(&piece);
            if !goes_on {
                break;
            }
        }
        assert_eq!(sent, bytes);
    }
}
