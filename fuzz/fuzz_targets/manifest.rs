//! Manifests and metadata of releases: what is read stays within the caps, and is never read under another digest.
#![no_main]
use forge_core::digest::Digest;
use forge_core::oci::{Annotations, Descriptor};
use forge_core::release::{Limits, Manifest, ReleaseMetadata, media_type};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let limits = Limits::default();
    if let Ok(manifest) = Manifest::read(bytes, &Digest::of(bytes), &limits) {
        assert!(!manifest.resources.is_empty());
        assert!(manifest.resources.len() < limits.layers);
        for environment in manifest.resources.keys() {
            assert!(manifest.layer(environment).is_ok());
        }
    }
    assert!(Manifest::read(bytes, &Digest::of(b"another"), &limits).is_err());
    let descriptor = Descriptor {
        media_type: media_type::METADATA.to_owned(),
        digest: Digest::of(bytes),
        size: bytes.len() as u64,
        architecture: None,
        artifact_type: None,
        annotations: Annotations::new(),
    };
    if let Ok(metadata) = ReleaseMetadata::read(bytes, &descriptor, &limits) {
        let written = metadata.bytes();
        let again = Descriptor { digest: Digest::of(&written), size: written.len() as u64, ..descriptor };
        assert_eq!(ReleaseMetadata::read(&written, &again, &limits).expect("what we write we read").bytes(), written);
    }
});
