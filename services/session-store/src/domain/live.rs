//! Live frames: how many there may be, and who may read one.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use ensemble_types::ids::UserId;
use ensemble_types::live::{LiveFrame, LiveFrames};
use ensemble_types::shares::ShareLevel;

use super::Invalid;
use super::access::{Access, Actor, Ownership, Refusal};

/// The most frames of one call.
const MAX_FRAMES: usize = 64;
/// The most frames of a session within [`WINDOW`].
const MOST: usize = 5;
const WINDOW: Duration = Duration::from_secs(1);

/// A reader who is later than this gets the next frame instead, which says the same and more.
pub(crate) const FRESH_FOR: Duration = Duration::from_secs(1);

/// The frames of one call.
pub(crate) fn frames(body: LiveFrames) -> Result<Vec<LiveFrame>, Invalid> {
    let found = body.frames.len();
    if !(1..=MAX_FRAMES).contains(&found) {
        return Err(Invalid::new("/frames", format!("must hold 1 to {MAX_FRAMES} frames, not {found}")));
    }
    Ok(body.frames)
}

/// When the last frames of a session were passed on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace([Option<Instant>; MOST]);

impl Pace {
    /// Whether a frame that comes now may be passed on. Counts it if so.
    pub(crate) fn admits(&mut self, now: Instant) -> bool {
        let oldest = self.0.iter_mut().min_by_key(|at| **at);
        match oldest {
            Some(slot) if slot.is_none_or(|at| now.saturating_duration_since(at) >= WINDOW) => {
                *slot = Some(now);
                true
            }
            _ => false,
        }
    }
}

/// Who could read a session when its frame had arrived.
#[derive(Debug)]
pub(crate) struct Readers {
    pub(crate) owner: UserId,
    pub(crate) host: Option<String>,
    pub(crate) levels: HashMap<UserId, ShareLevel>,
}

impl Readers {
    /// The caller's access at that time.
    pub(crate) fn access(&self, caller: &Actor) -> Result<Access, Refusal> {
        let session = Ownership { owner: self.owner, host: self.host.as_deref() };
        Access::of(session, caller, self.levels.get(&caller.user).copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_frames_pass_within_any_second() {
        let (mut pace, start) = (Pace::default(), Instant::now());
        let mut at = |ms: u64| pace.admits(start + Duration::from_millis(ms));
        for early in [0, 10, 20, 30, 400] {
            assert!(at(early), "{early}");
        }
        assert!(!at(401) && !at(999));
        assert!(at(1_000), "a second after the first");
        assert!(!at(1_005) && at(1_010));
        assert!(at(5_000));
    }

    #[test]
    fn a_call_has_1_to_64_frames() {
        let call = |count: usize| {
            let frame = r#"{"sessionId":"01890a5d-ac96-774b-bcce-b302099a8057","content":"c"}"#;
            let json = format!(r#"{{"frames":[{}]}}"#, vec![frame; count].join(","));
            frames(serde_json::from_str(&json).unwrap()).map(|frames| frames.len()).map_err(|invalid| invalid.pointer)
        };
        assert_eq!((call(1), call(64)), (Ok(1), Ok(64)));
        assert_eq!((call(0), call(65)), (Err("/frames".to_owned()), Err("/frames".to_owned())));
    }
}
