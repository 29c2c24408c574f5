//! How Redis Cluster shares keys out: <https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/>.

/// How many slots there are.
pub(super) const SLOTS: u16 = 16_384;

/// The slot of a key: the CRC of what stands between its first `{` and the next `}`, or of the whole key when
/// there is no such pair or nothing in it. Keys of one call must agree in it.
pub fn slot_of(key: &[u8]) -> u16 {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let inside = &key[open + 1..];
        let close = inside.iter().position(|byte| *byte == b'}')?;
        (close > 0).then(|| &inside[..close])
    });
    crc16(tag.unwrap_or(key)) % SLOTS
}

/// CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc: u16, _| {
            let shifted = crc << 1;
            if crc & 0x8000 == 0 { shifted } else { shifted ^ 0x1021 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        for (key, like) in [
            ("{user1000}.following", "user1000"),
            ("{user1000}.followers", "user1000"),
            ("foo{}{bar}", "foo{}{bar}"),
            ("foo{{bar}}zap", "{bar"),
            ("foo{bar}{zap}", "bar"),
            ("foo{bar", "foo{bar"),
        ] {
            assert_eq!(slot_of(key.as_bytes()), crc16(like.as_bytes()) % SLOTS, "{key}");
        }
        // What `CLUSTER KEYSLOT` of a server says.
        assert_eq!(slot_of(b"foo"), 12_182);
        assert_eq!(slot_of(b""), 0);
    }
}
