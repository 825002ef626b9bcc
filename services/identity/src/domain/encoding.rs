//! Bytes as text: base64url without padding when written (RFC 4648, section 5), any base64 when read.

use base64::Engine;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, URL_SAFE_NO_PAD};

const ANY_PADDING: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);

pub(crate) fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Exactly `N` bytes, in either alphabet, padded or not.
pub(super) fn decode<const N: usize>(text: &str) -> Option<[u8; N]> {
    let alphabet = if text.contains(['+', '/']) { &STANDARD } else { &URL_SAFE };
    GeneralPurpose::new(alphabet, ANY_PADDING).decode(text).ok()?.try_into().ok()
}

/// Exactly `N` bytes in the one form that [`encode`] writes.
pub(super) fn decode_canonical<const N: usize>(text: &str) -> Option<[u8; N]> {
    URL_SAFE_NO_PAD.decode(text).ok()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_alphabets_are_read_padded_or_not() {
        let bytes = [0xfb_u8, 0xff, 0xbf, 0x01];
        for text in ["-_-_AQ", "-_-_AQ==", "+/+/AQ", "+/+/AQ=="] {
            assert_eq!(decode::<4>(text), Some(bytes), "{text}");
        }
        for text in ["", "-_-_", "-_+/AQ", "-_-_AQA", "-_-_AR", "ä"] {
            assert_eq!(decode::<4>(text), None, "{text}");
        }
        assert_eq!(decode_canonical::<4>("-_-_AQ"), Some(bytes));
        assert_eq!(decode_canonical::<4>("-_-_AQ=="), None);
    }
}
