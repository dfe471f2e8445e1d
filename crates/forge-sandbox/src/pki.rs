//! One authority, the certificates it signs, service-account keys, and a token for each identity of the control plane.
//!
//! Everything is made at once and published by one rename: a sandbox has all of it or none.

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SanType,
};

use crate::range::Range;

/// What could not be made.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// A key or certificate.
    #[error("failed to make the certificate of `{name}`: {source}")]
    Certificate {
        /// Whose.
        name: &'static str,
        /// Why.
        source: rcgen::Error,
    },
    /// A file.
    #[error("failed to write `{path}`: {source}")]
    Write {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// Whose kubeconfig a person has, who may do everything.
pub const ADMIN: &str = "sandbox-admin";

/// Who authenticates by token: name of the file, user, groups.
const IDENTITIES: [(&str, &str, &str); 7] = [
    ("admin", ADMIN, "system:masters"),
    ("kube-controller-manager", "system:kube-controller-manager", ""),
    ("kube-scheduler", "system:kube-scheduler", ""),
    ("kubelet", "system:node:sandbox", "system:nodes"),
    ("kube-proxy", "system:kube-proxy", ""),
    ("provisioner", "sandbox-provisioner", ""),
    ("kwok", "sandbox-kwok", ""),
];

/// Makes the folder `pki` and a kubeconfig for each identity, unless they are there.
pub fn ensure(folder: &Path, range: Range) -> Result<(), PkiError> {
    if folder.exists() {
        return Ok(());
    }
    let draft = folder.with_extension("draft");
    let _ = fs::remove_dir_all(&draft);
    make(&draft, range)?;
    fs::rename(&draft, folder).map_err(|source| PkiError::Write { path: folder.to_owned(), source })
}

fn make(folder: &Path, range: Range) -> Result<(), PkiError> {
    fs::create_dir_all(folder).map_err(|source| PkiError::Write { path: folder.to_owned(), source })?;
    let authority = authority(folder, "ca", "forge-sandbox")?;
    let front = authority_for_proxies(folder)?;
    let node = range.node();
    let server = [
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        "localhost",
    ];
    sign(
        folder,
        &authority,
        "apiserver",
        ("kube-apiserver", ""),
        &server,
        &[node, range.kubernetes(), Ipv4Addr::LOCALHOST],
    )?;
    sign(
        folder,
        &authority,
        "kubelet",
        ("system:node:sandbox", "system:nodes"),
        &["sandbox"],
        &[node, Ipv4Addr::LOCALHOST],
    )?;
    sign(folder, &authority, "controllers", ("controllers", ""), &["localhost"], &[node, Ipv4Addr::LOCALHOST])?;
    sign(
        folder,
        &authority,
        "apiserver-kubelet-client",
        ("kube-apiserver-kubelet-client", "system:masters"),
        &[],
        &[],
    )?;
    sign(folder, &front, "front-proxy-client", ("front-proxy-client", ""), &[], &[])?;

    let accounts = KeyPair::generate().map_err(|source| PkiError::Certificate { name: "service accounts", source })?;
    write(folder, "sa.key", &accounts.serialize_pem())?;
    write(folder, "sa.pub", &accounts.public_key_pem())?;

    let mut tokens = String::new();
    for (name, user, groups) in IDENTITIES {
        let token = secret().map_err(|source| PkiError::Write { path: folder.join("tokens.csv"), source })?;
        tokens.push_str(&format!("{token},{user},{user},\"{groups}\"\n"));
        let config = kubeconfig(&format!("https://{node}:6443"), &authority.0, &token);
        write(folder, &format!("{name}.kubeconfig"), &config)?;
    }
    write(folder, "tokens.csv", &tokens)?;
    let password = secret().map_err(|source| PkiError::Write { path: folder.join("git-users"), source })?;
    write(folder, "git-users", &format!("{GIT_USER}:{password}\n"))
}

/// The user that may push to the Git server.
pub const GIT_USER: &str = "forge";

/// The password that goes with [`GIT_USER`].
pub fn git_password(folder: &Path) -> Option<String> {
    let users = fs::read_to_string(folder.join("git-users")).ok()?;
    users.trim_end().split_once(':').map(|(_, password)| password.to_owned())
}

type Authority = (String, Issuer<'static, KeyPair>);

fn authority(folder: &Path, file: &str, name: &'static str) -> Result<Authority, PkiError> {
    let failed = |source| PkiError::Certificate { name, source };
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    named(&mut params, name, "");
    let key = KeyPair::generate().map_err(failed)?;
    let certificate = params.self_signed(&key).map_err(failed)?.pem();
    write(folder, &format!("{file}.crt"), &certificate)?;
    write(folder, &format!("{file}.key"), &key.serialize_pem())?;
    Ok((certificate, Issuer::new(params, key)))
}

/// Aggregated API servers trust the API server by another authority than clients: who may speak for a user must not follow
/// from being one.
fn authority_for_proxies(folder: &Path) -> Result<Authority, PkiError> {
    authority(folder, "front-proxy-ca", "forge-sandbox-front-proxy")
}

fn sign(
    folder: &Path,
    authority: &Authority,
    name: &'static str,
    (common, organisation): (&str, &str),
    names: &[&str],
    addresses: &[Ipv4Addr],
) -> Result<(), PkiError> {
    let failed = |source| PkiError::Certificate { name, source };
    let mut params =
        CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).map_err(failed)?;
    params.subject_alt_names.extend(addresses.iter().map(|address| SanType::IpAddress(IpAddr::V4(*address))));
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    named(&mut params, common, organisation);
    let key = KeyPair::generate().map_err(failed)?;
    let certificate = params.signed_by(&key, &authority.1).map_err(failed)?;
    write(folder, &format!("{name}.crt"), &certificate.pem())?;
    write(folder, &format!("{name}.key"), &key.serialize_pem())
}

fn named(params: &mut CertificateParams, common: &str, organisation: &str) {
    params.distinguished_name.push(DnType::CommonName, common);
    if !organisation.is_empty() {
        params.distinguished_name.push(DnType::OrganizationName, organisation);
    }
    // A sandbox lives for hours; a machine whose clock is off must still believe it.
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(2049, 12, 31);
}

/// Written for its owner alone.
fn write(folder: &Path, name: &str, text: &str) -> Result<(), PkiError> {
    let path = folder.join(name);
    let failed = |source| PkiError::Write { path: path.clone(), source };
    let mut file =
        fs::File::options().write(true).create(true).truncate(true).mode(0o600).open(&path).map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)
}

/// 128 bits from the kernel, in hexadecimal.
fn secret() -> std::io::Result<String> {
    let mut bytes = [0; 16];
    fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn kubeconfig(server: &str, authority: &str, token: &str) -> String {
    let config = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "sandbox",
        "clusters": [{"name": "sandbox", "cluster": {"server": server, "certificate-authority-data": base64(authority)}}],
        "users": [{"name": "sandbox", "user": {"token": token}}],
        "contexts": [{"name": "sandbox", "context": {"cluster": "sandbox", "user": "sandbox"}}],
    });
    format!("{config:#}\n")
}

/// The standard alphabet with padding: kubeconfigs want it, and nothing else here does.
fn base64(text: &str) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(text.len().div_ceil(3) * 4);
    for chunk in text.as_bytes().chunks(3) {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or(0));
        let group = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4 {
            let sextet = (group >> (18 - 6 * at)) as usize & 63;
            let letter = if at > chunk.len() { '=' } else { char::from(*ALPHABET.get(sextet).unwrap_or(&b'=')) };
            out.push(letter);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn base64_is_the_standard_one() {
        assert_eq!(
            ["", "f", "fo", "foo", "foob", "fooba", "foobar"].map(base64),
            ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"]
        );
    }

    #[test]
    fn everything_is_made_once_and_only_its_owner_reads_it() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("pki");
        let range = Range::candidates("x").next().unwrap();
        ensure(&folder, range).unwrap();
        let before = fs::read_to_string(folder.join("admin.kubeconfig")).unwrap();
        ensure(&folder, range).unwrap();
        assert_eq!(fs::read_to_string(folder.join("admin.kubeconfig")).unwrap(), before);
        for entry in fs::read_dir(&folder).unwrap() {
            assert_eq!(entry.unwrap().metadata().unwrap().permissions().mode() & 0o077, 0);
        }
        assert_eq!(git_password(&folder).unwrap().len(), 32);
    }
}
