//! Layers of releases: the first byte says whether the rest is packed already. Whatever it is, paths stay inside, nothing stands
//! twice, caps hold, and documents write and read back.
#![no_main]
use std::collections::BTreeSet;

use forge_core::digest::Digest;
use forge_core::oci::{Descriptor, gzip};
use forge_core::release::{Limits, documents, media_type, read_layer, unpack};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((first, rest)) = bytes.split_first() else { return };
    let packed = if first & 1 == 0 { rest.to_vec() } else { gzip(rest).unwrap_or_default() };
    let limits = Limits { extracted: 1 << 20, file: 1 << 18, entries: 100, ..Limits::default() };
    let descriptor = Descriptor::of(media_type::RESOURCES, &packed);
    let mut seen = BTreeSet::new();
    let mut total = 0_u64;
    let unpacked = unpack(&mut packed.as_slice(), &descriptor, &limits, &mut |path, content| {
        assert!(!path.starts_with('/') && path.split('/').all(|part| !matches!(part, "" | "." | "..")), "{path:?}");
        assert!(seen.insert(path.to_owned()), "{path:?} twice");
        assert!(content.len() <= limits.file);
        total += content.len() as u64;
        Ok(())
    });
    assert!(total <= limits.extracted);
    assert!(seen.len() <= limits.entries);
    // The documents, as everybody reads them who uses a layer.
    let read = read_layer(&mut packed.as_slice(), &descriptor, &limits, &mut |document, text| {
        // It may be longer than it was, what stood on one line has a line for each value, and YAML may count levels otherwise.
        let roomy = Limits { depth: limits.depth + 8, ..Limits::default() };
        let again = documents("again.yaml", text.as_bytes(), &roomy);
        let again = again.unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(again.len(), 1, "{text}");
        assert_eq!(again[0].value, document.value, "{text}");
        Ok(())
    });
    assert!(read.is_err() || unpacked.is_ok());
    if let Ok(unpacked) = unpacked {
        assert!(unpacked <= limits.extracted);
        // Other bytes under the same name are never taken.
        let other = Descriptor { digest: Digest::of(b"another"), ..descriptor };
        assert!(unpack(&mut packed.as_slice(), &other, &limits, &mut |_, _| Ok(())).is_err());
    }
});
