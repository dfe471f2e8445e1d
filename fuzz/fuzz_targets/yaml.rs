//! The YAML reader in both dialects: never panics, stays within its limits, and what it reads writes and reads back.
#![no_main]
use forge_core::yaml::{Dialect, Limits, decode_text, read, write};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = decode_text(bytes) else { return };
    for dialect in [Dialect::Strict, Dialect::Kubernetes] {
        let stream = read(text, dialect, Limits::EMBEDDED);
        if !stream.problems.is_empty() {
            continue;
        }
        for document in &stream.documents {
            let json = document.to_json();
            let again = write(&json);
            let back = read(&again, Dialect::Kubernetes, Limits::FILE);
            assert!(back.problems.is_empty(), "{again}");
            let read_back = back.documents.first().map_or(serde_json::Value::Null, |d| d.to_json());
            assert_eq!(read_back, json, "{again}");
        }
    }
});
