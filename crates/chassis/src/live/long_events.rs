//! Long events of streams: encoded once, kept within a bound for all streams together, sent piece by piece.
//!
//! A stream whose reader does not read holds a key and a position, not the event. An event that had to leave the memory is
//! encoded again where that is possible. Otherwise the stream ends in the middle of it, and the client drops what it has of
//! it and comes back (WHATWG HTML, section 9.2.6).

use std::hash::Hash;
use std::time::Duration;

use bytes::Bytes;
use moka::policy::EvictionPolicy;
use moka::sync::Cache;

use super::Event;

/// Events up to this length are sent in one piece.
pub const PIECE: usize = 16 << 10;
/// The most bytes of long events that are kept.
const KEPT_BYTES: u64 = 16 << 20;
/// An event that no stream has sent for this long is forgotten: it may be of a session that was deleted.
const KEPT_FOR: Duration = Duration::from_secs(600);
/// A longer event would displace all others, or would not be kept at all. Its stream holds it.
const LONGEST_KEPT: usize = 4 << 20;

/// The long events of a service. All readers of the event with one key get the same bytes. Cheap to clone.
#[derive(Clone)]
pub struct LongEvents<K>(Cache<K, Bytes>);

/// An event that is ready to be sent.
pub enum Outgoing<K> {
    Short(Event),
    Long(Sending<K>),
}

/// How much of a long event a stream has sent.
#[derive(Clone, Debug)]
pub struct Sending<K> {
    pub key: K,
    own: Option<Bytes>,
    length: usize,
    sent: usize,
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> Default for LongEvents<K> {
    fn default() -> Self {
        let weight = |_: &K, bytes: &Bytes| u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let policy = EvictionPolicy::lru();
        let cache = Cache::builder().max_capacity(KEPT_BYTES).weigher(weight).eviction_policy(policy);
        Self(cache.time_to_idle(KEPT_FOR).build())
    }
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> LongEvents<K> {
    /// Keeps an event if it is long. `key` must name its content completely.
    pub fn outgoing(&self, key: impl FnOnce() -> K, event: Event) -> Outgoing<K> {
        if event.bytes.len() <= PIECE { Outgoing::Short(event) } else { self.long(key(), || event) }
    }

    /// An event that is known to be long. It is encoded only when it is not kept yet.
    pub fn long(&self, key: K, encode: impl FnOnce() -> Event) -> Outgoing<K> {
        let bytes = self.0.get_with(key.clone(), || encode().bytes);
        let length = bytes.len();
        let own = (length > LONGEST_KEPT).then(|| {
            self.0.invalidate(&key);
            bytes
        });
        Outgoing::Long(Sending { key, own, length, sent: 0 })
    }

    /// The next piece of an event. `None` when it is no longer kept, or when other bytes are.
    pub fn piece(&self, sending: &mut Sending<K>) -> Option<Event> {
        let kept = sending.own.clone().or_else(|| self.0.get(&sending.key));
        let bytes = kept.filter(|bytes| bytes.len() == sending.length)?;
        let end = (sending.sent + PIECE).min(sending.length);
        let piece = bytes.slice(sending.sent..end);
        sending.sent = end;
        Some(Event { bytes: piece, continues: end < sending.length })
    }

    /// Keeps an event, or takes the one that is kept already.
    pub fn keep(&self, key: &K, event: Event) -> Bytes {
        self.0.get_with(key.clone(), || event.bytes)
    }
}

impl<K> Sending<K> {
    pub fn is_sent(&self) -> bool {
        self.sent == self.length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(length: usize) -> Event {
        let bytes: Vec<u8> = (0..u8::MAX).cycle().take(length).collect();
        Event::from_bytes(bytes.into())
    }

    #[test]
    fn what_is_kept_stays_within_its_bound() {
        let events = LongEvents::default();
        for key in 0..100 {
            events.keep(&key, Event::from_bytes(vec![b'x'; 1 << 20].into()));
        }
        events.0.run_pending_tasks();
        assert!(events.0.weighted_size() <= KEPT_BYTES);
        assert!(events.0.entry_count() > 0);
        assert_eq!(events.0.policy().time_to_idle(), Some(KEPT_FOR), "deleted sessions leave the memory");
    }

    #[test]
    fn the_pieces_are_the_event() {
        let events = LongEvents::default();
        assert!(matches!(events.outgoing(|| 1, event(PIECE)), Outgoing::Short(_)));
        let Outgoing::Long(mut sending) = events.outgoing(|| 2, event(3 * PIECE + 7)) else { panic!("it is long") };
        let mut sent = Vec::new();
        while !sending.is_sent() {
            let piece = events.piece(&mut sending).unwrap();
            sent.extend_from_slice(&piece.bytes);
            assert_eq!(piece.continues, !sending.is_sent());
        }
        assert_eq!(sent, event(3 * PIECE + 7).bytes);
        let larger_than_all = usize::try_from(KEPT_BYTES).unwrap() + 1;
        let too_long = Event::from_bytes(vec![b'x'; larger_than_all].into());
        let Outgoing::Long(mut sending) = events.outgoing(|| 4, too_long) else { panic!("it is long") };
        let mut length = 0;
        while !sending.is_sent() {
            length += events.piece(&mut sending).expect("its stream holds it").bytes.len();
        }
        assert_eq!(length, larger_than_all);
        let Outgoing::Long(mut sending) = events.outgoing(|| 3, event(2 * PIECE)) else { panic!("it is long") };
        events.0.invalidate(&3);
        assert!(events.piece(&mut sending).is_none(), "it has left");
        events.keep(&3, event(2 * PIECE + 1));
        assert!(events.piece(&mut sending).is_none(), "other bytes");
    }
}
