//! Single byte ranges (RFC 9110, section 14.1.2).

/// The first and the last byte that `header`, the value of a `Range` field, selects of `length` bytes. `None` when the
/// header is malformed, has several ranges, or selects no byte.
pub fn byte_range(header: &str, length: u64) -> Option<(u64, u64)> {
    let (unit, set) = header.trim().split_once('=')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return None;
    }
    let (first, last) = set.trim().split_once('-')?;
    let end = length.checked_sub(1)?;
    if first.is_empty() {
        let suffix = number(last)?;
        return (suffix > 0).then(|| (length.saturating_sub(suffix), end));
    }
    let first = number(first)?;
    let last = if last.is_empty() { end } else { number(last)?.min(end) };
    (first <= last).then_some((first, last))
}

/// Digits only: no sign, no space, no list. A number that is too large becomes the largest number.
fn number(digits: &str) -> Option<u64> {
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| digits.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_limited_to_the_available_bytes() {
        for (header, length, expected) in [
            ("bytes=0-0", 10, Some((0, 0))),
            ("bytes=2-", 10, Some((2, 9))),
            ("Bytes=2-99", 10, Some((2, 9))),
            ("bytes=-3", 10, Some((7, 9))),
            ("bytes=-99", 10, Some((0, 9))),
            ("bytes=0-99999999999999999999999", 10, Some((0, 9))),
            ("bytes=-0", 10, None),
            ("bytes=10-", 10, None),
            ("bytes=5-4", 10, None),
            ("bytes=0-", 0, None),
            ("bytes=-1", 0, None),
            ("bytes=0-1,3-4", 10, None),
            ("bytes=+1-2", 10, None),
            ("bytes=a-b", 10, None),
            ("bytes=-", 10, None),
            ("bytes=1-x", 10, None),
            ("bytes=x-1", 10, None),
            ("bytes=-x", 10, None),
            ("bytes=9-9", 10, Some((9, 9))),
            ("bytes=-1", 10, Some((9, 9))),
            ("lines=0-1", 10, None),
            ("bytes", 10, None),
        ] {
            assert_eq!(byte_range(header, length), expected, "{header} of {length}");
        }
    }
}
