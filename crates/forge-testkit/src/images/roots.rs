//! The certificates that images trust. Not those of the machine that builds them: `Cargo.lock` says which, so they are
//! the same everywhere.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The crate that brings them.
pub const CRATE: &str = "webpki-root-certs";

/// All of them, as programs read them.
pub fn pem() -> String {
    let mut certificates: Vec<&[u8]> = webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter().map(AsRef::as_ref).collect();
    certificates.sort_unstable();
    let mut text = String::new();
    for certificate in certificates {
        text.push_str("-----BEGIN CERTIFICATE-----\n");
        for line in STANDARD.encode(certificate).as_bytes().chunks(64) {
            text.extend(line.iter().copied().map(char::from));
            text.push('\n');
        }
        text.push_str("-----END CERTIFICATE-----\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_root_is_there_once_and_in_lines_that_programs_read() {
        let text = pem();
        let blocks = text.matches("-----BEGIN CERTIFICATE-----\n").count();
        assert!(blocks > 100 && blocks == webpki_root_certs::TLS_SERVER_ROOT_CERTS.len(), "{blocks}");
        assert!(text.lines().all(|line| line.len() <= 64 && line.is_ascii()));
        let first: String = text.lines().skip(1).take_while(|line| !line.starts_with('-')).collect();
        assert_eq!(STANDARD.decode(first).unwrap().first(), Some(&0x30));
    }
}
