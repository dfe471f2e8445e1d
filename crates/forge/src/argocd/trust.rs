//! Trust in the certificate that Argo CD shows inside the cluster. By default Argo CD signs it itself, for the name
//! `argocd-server`, which the Service of a Helm release need not have: nobody vouches for it but Argo CD's own Secret,
//! from where bootstrap takes it. Verification is never off: who shows another certificate is not Argo CD.

use std::sync::Arc;

use base64::Engine as _;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ClientBuilder, ConfigExt as _};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, RootCertStore, SignatureScheme};

/// The certificates of a PEM text, once each, and nothing else that it may hold; nothing where there are none.
pub(crate) fn certificates(pem: &str) -> Option<String> {
    let mut found: Vec<CertificateDer<'static>> = Vec::new();
    for certificate in parsed(pem).ok()? {
        if !found.contains(&certificate) {
            found.push(certificate);
        }
    }
    let text: String = found.iter().map(|certificate| written(certificate)).collect();
    (!text.is_empty()).then_some(text)
}

fn parsed(pem: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    certificates.map_err(|error| error.to_string())
}

fn written(certificate: &[u8]) -> String {
    let encoded = base64::engine::general_purpose::STANDARD.encode(certificate);
    let lines = encoded.as_bytes().chunks(64).map(|line| format!("{}\n", String::from_utf8_lossy(line)));
    format!("-----BEGIN CERTIFICATE-----\n{}-----END CERTIFICATE-----\n", lines.collect::<String>())
}

/// A client that trusts these certificates and no others.
///
/// # Errors
/// When they cannot be read, or there are none.
pub(super) fn client(config: &kube::Config, pem: &str) -> Result<kube::Client, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = Arc::new(Known::new(pem, provider.clone())?);
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_connect_timeout(config.connect_timeout);
    let https = hyper_rustls::HttpsConnector::from((http, tls));
    let service: Client<_, Body> = Client::builder(TokioExecutor::new()).build(https);
    Ok(ClientBuilder::new(service, config.default_namespace.clone()).with_layer(&config.base_uri_layer()).build())
}

/// Trusts what one of these certificates issued for the name in the address, and each of them itself under any name:
/// who can use it has Argo CD's key.
#[derive(Debug)]
struct Known {
    certificates: Vec<CertificateDer<'static>>,
    issuers: Arc<WebPkiServerVerifier>,
}

impl Known {
    fn new(pem: &str, provider: Arc<CryptoProvider>) -> Result<Self, String> {
        let certificates = parsed(pem)?;
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(certificates.iter().cloned());
        let issuers = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build();
        Ok(Self { certificates, issuers: issuers.map_err(|error| error.to_string())? })
    }
}

/// What does not matter about a certificate that is known byte for byte: for which name, by whom and for what it was
/// issued. Its time does, and is looked at before any of these.
fn is_about_form(error: &CertificateError) -> bool {
    matches!(
        error,
        CertificateError::NotValidForName
            | CertificateError::NotValidForNameContext { .. }
            | CertificateError::UnknownIssuer
            | CertificateError::InvalidPurpose
            | CertificateError::InvalidPurposeContext { .. }
            // Among others: it may sign certificates, which most that people sign themselves may.
            | CertificateError::Other(_)
    )
}

impl ServerCertVerifier for Known {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match self.issuers.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            Err(rustls::Error::InvalidCertificate(error))
                if is_about_form(&error) && self.certificates.iter().any(|known| known[..] == end_entity[..]) =>
            {
                Ok(ServerCertVerified::assertion())
            }
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.issuers.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.issuers.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.issuers.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use rcgen::{
        BasicConstraints, Certificate, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
        Issuer, KeyPair,
    };
    use secrecy::SecretString;

    use super::super::ArgoCd;
    use super::*;

    /// As Argo CD makes it: self-signed, no authority, for the names of a Service that may be called otherwise.
    fn of_argo_cd() -> CertificateParams {
        let names = ["localhost", "argocd-server", "argocd-server.argocd.svc"].map(str::to_owned);
        let mut params = CertificateParams::new(names).unwrap();
        params.is_ca = IsCa::ExplicitNoCa;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params
    }

    fn self_signed(params: &CertificateParams) -> Certificate {
        params.self_signed(&KeyPair::generate().unwrap()).unwrap()
    }

    fn known(pem: &str) -> Known {
        Known::new(pem, Arc::new(rustls::crypto::ring::default_provider())).unwrap()
    }

    fn trusts(known: &Known, shown: &Certificate, name: &str) -> Result<(), rustls::Error> {
        let name = ServerName::try_from(name.to_owned()).unwrap();
        known.verify_server_cert(shown.der(), &[], &name, &[], UnixTime::now()).map(|_| ())
    }

    #[test]
    fn the_certificate_of_argo_cd_is_trusted_under_any_name_and_no_other_is() {
        let own = self_signed(&of_argo_cd());
        let known = known(&own.pem());
        for name in ["argocd-server.argocd.svc", "argo-cd-argocd-server.argocd.svc", "10.0.0.1"] {
            assert_eq!(trusts(&known, &own, name), Ok(()), "{name}");
        }
        let other = self_signed(&of_argo_cd());
        assert!(trusts(&known, &other, "argocd-server.argocd.svc").is_err());
    }

    #[test]
    fn one_that_people_signed_themselves_may_be_an_authority() {
        let mut params = of_argo_cd();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let own = self_signed(&params);
        assert_eq!(trusts(&known(&own.pem()), &own, "argocd-server.argocd.svc"), Ok(()));
    }

    #[test]
    fn what_an_authority_issued_is_trusted_for_the_name_in_the_address_only() {
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "authority");
        let key = KeyPair::generate().unwrap();
        let authority = params.self_signed(&key).unwrap();
        let issuer = Issuer::new(params, key);
        let issued = of_argo_cd().signed_by(&KeyPair::generate().unwrap(), &issuer).unwrap();
        let by_authority = known(&authority.pem());
        assert_eq!(trusts(&by_authority, &issued, "argocd-server.argocd.svc"), Ok(()));
        assert!(trusts(&by_authority, &issued, "somebody.else.svc").is_err());
        // Known itself, it is Argo CD's whatever the Service is called, and whoever issued it.
        assert_eq!(trusts(&known(&issued.pem()), &issued, "somebody.else.svc"), Ok(()));
    }

    #[test]
    fn one_that_has_expired_is_not_trusted_although_it_is_known() {
        let mut params = of_argo_cd();
        params.not_before = rcgen::date_time_ymd(2001, 1, 1);
        params.not_after = rcgen::date_time_ymd(2002, 1, 1);
        for is_ca in [IsCa::ExplicitNoCa, IsCa::Ca(BasicConstraints::Unconstrained)] {
            params.is_ca = is_ca;
            let own = self_signed(&params);
            for name in ["argocd-server", "another"] {
                assert!(trusts(&known(&own.pem()), &own, name).is_err(), "{name}");
            }
        }
    }

    #[test]
    fn of_a_text_only_its_certificates_are_kept_once_each() {
        let (key, own) = (KeyPair::generate().unwrap(), self_signed(&of_argo_cd()));
        let text = format!("{}{}\n{}", own.pem(), key.serialize_pem(), own.pem());
        let kept = certificates(&text).unwrap();
        assert_eq!(parsed(&kept).unwrap(), [own.der().clone()]);
        assert!(!kept.contains("PRIVATE"));
        assert_eq!(certificates(&key.serialize_pem()), None);
        assert_eq!(certificates("-----BEGIN CERTIFICATE-----\nnot base64!\n-----END CERTIFICATE-----\n"), None);
        assert!(Known::new("", Arc::new(rustls::crypto::ring::default_provider())).is_err());
    }

    /// Answers every request over TLS with the name of an account; gives its address.
    fn served(certificate: &Certificate, key: &KeyPair) -> String {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let key = rustls::pki_types::PrivateKeyDer::Pkcs8(key.serialize_der().into());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key);
        let config = Arc::new(config.unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let connection = rustls::ServerConnection::new(config.clone()).unwrap();
                let mut stream = rustls::StreamOwned::new(connection, stream);
                // A handshake that the client gives up ends the reading; then there is nobody to answer.
                if stream.read(&mut [0; 4096]).is_ok_and(|length| length > 0) {
                    let body = r#"{"username":"forge"}"#;
                    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close";
                    let _ = write!(stream, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
                    let _ = stream.flush();
                }
            }
        });
        format!("https://{address}")
    }

    #[tokio::test]
    async fn argo_cd_is_asked_over_tls_when_its_certificate_is_known_and_not_otherwise() {
        let key = KeyPair::generate().unwrap();
        let own = of_argo_cd().self_signed(&key).unwrap();
        let address = served(&own, &key);
        let ask = async |pem: &str| {
            let argocd = ArgoCd::at(&address, SecretString::from("t".to_owned()), Some(pem)).unwrap();
            argocd.who().await
        };
        assert_eq!(ask(&own.pem()).await.unwrap().as_deref(), Some("forge"));
        let refused = ask(&self_signed(&of_argo_cd()).pem()).await.unwrap_err().to_string();
        assert!(refused.contains("certificate"), "{refused}");
    }
}
