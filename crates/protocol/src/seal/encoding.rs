//! Bytes as text: written as base64url without padding, read in any base64 variant.

use base64::Engine;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, URL_SAFE_NO_PAD};

use super::{Result, SealError};

const LENIENT: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);

pub(crate) fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

pub(crate) fn decode(text: &str) -> Result<Vec<u8>> {
    let alphabet = if text.contains(['+', '/']) { &STANDARD } else { &URL_SAFE };
    GeneralPurpose::new(alphabet, LENIENT).decode(text).map_err(|_| SealError::Format)
}

pub(crate) fn decode_array<const N: usize>(text: &str) -> Result<[u8; N]> {
    decode(text)?.try_into().map_err(|_| SealError::Format)
}
