//! gzip whose bytes are a function of its input: the frame is ours, the level is fixed, and the compressor does the same
//! on every processor (it has no hash that depends on instructions).

use zlib_rs::{DeflateConfig, InflateConfig, ReturnCode, compress_bound, compress_slice, crc32, decompress_slice};

use super::OciError;

/// Deflate, no flags, no time, no hint about speed, and no operating system.
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
/// What most tools use. Another one gives other bytes, so another digest of everything.
const LEVEL: i32 = 6;
/// Without a frame of the compressor's own.
const RAW: i32 = -15;

/// Compresses bytes as `gzip` would.
///
/// # Errors
/// When the compressor gives up, which it has no reason to.
pub fn gzip(bytes: &[u8]) -> Result<Vec<u8>, OciError> {
    let config = DeflateConfig { window_bits: RAW, ..DeflateConfig::new(LEVEL) };
    let mut room = vec![0; compress_bound(bytes.len())];
    let (packed, code) = compress_slice(&mut room, bytes, config);
    if code != ReturnCode::Ok {
        return Err(OciError::Compress { bytes: bytes.len() });
    }
    let mut all = Vec::with_capacity(HEADER.len() + packed.len() + 8);
    all.extend_from_slice(&HEADER);
    all.extend_from_slice(packed);
    all.extend_from_slice(&crc32::crc32(0, bytes).to_le_bytes());
    // Modulo 2^32, as the format wants it.
    all.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    Ok(all)
}

/// What [`gzip`] made these of; nothing where they are no gzip of one member, or come to more than `most` bytes.
pub fn gunzip(packed: &[u8], most: usize) -> Option<Vec<u8>> {
    // The frame ends with the length, which the room that is given is cut to: nobody who writes a wrong one gets more.
    let (_, length) = packed.split_last_chunk::<4>()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok().filter(|length| *length <= most)?;
    // With the frame of gzip, whose checksum is compared.
    let config = InflateConfig { window_bits: 16 + 15 };
    let mut room = vec![0; length.max(1)];
    let (bytes, code) = decompress_slice(&mut room, packed, config);
    (code == ReturnCode::Ok && bytes.len() == length).then(|| bytes.to_vec())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_too_much_cut_off_or_changed_is_not_unpacked() {
        let packed = gzip(b"123456789").unwrap();
        assert_eq!(gunzip(&packed, 9).as_deref(), Some(&b"123456789"[..]));
        assert_eq!(gunzip(&packed, 8), None);
        for end in 0..packed.len() {
            assert_eq!(gunzip(&packed[..end], 1 << 20), None, "{end}");
        }
        for length in [8, 10] {
            let mut changed = packed.clone();
            let at = changed.len() - 4;
            changed[at] = length;
            assert_eq!(gunzip(&changed, 1 << 20), None, "{length}");
        }
        assert_eq!(gunzip(b"", 9), None);
        assert_eq!(gunzip(&gzip(b"").unwrap(), 0), Some(Vec::new()));
    }

    #[test]
    fn the_header_names_no_time_and_no_system() {
        assert_eq!(gzip(b"").unwrap(), [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let packed = gzip(b"123456789").unwrap();
        assert_eq!(packed[..10], HEADER);
        // The checksum that every description of this CRC has as its example, then the length.
        assert_eq!(packed[packed.len() - 8..], [0x26, 0x39, 0xf4, 0xcb, 9, 0, 0, 0]);
    }

    #[test]
    fn what_repeats_gets_small() {
        let bytes = b"the same line\n".repeat(10_000);
        let packed = gzip(&bytes).unwrap();
        assert!(packed.len() < bytes.len() / 100, "{}", packed.len());
        assert_eq!(gunzip(&packed, bytes.len()).unwrap(), bytes);
    }

    proptest! {
        #[test]
        fn what_is_packed_unpacks_to_the_same_and_packs_to_the_same(bytes in prop::collection::vec(any::<u8>(), 0..5000)) {
            let packed = gzip(&bytes).unwrap();
            prop_assert_eq!(&packed, &gzip(&bytes).unwrap());
            prop_assert_eq!(gunzip(&packed, bytes.len()), Some(bytes));
        }
    }
}
