//! [`Verifier`]: judges the certificate that the other side shows.
//!
//! webpki checks chains, and refuses three forms of certificates that Go takes and that small set-ups have: a certificate
//! that is its own root, that of an authority, and one of X.509 version 1. This module judges these forms itself. It looks
//! for their issuer among the roots only, not among the certificates that the other side sent.

use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{
    CertificateDer, ServerName, SubjectPublicKeyInfoDer, TrustAnchor, UnixTime,
};
use rustls::server::ParsedCertificate;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, PeerMisbehaved,
    RootCertStore, SignatureScheme,
};
use webpki::RawPublicKeyEntity;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::{ExtendedKeyUsage, ParsedExtension};
use x509_parser::prelude::FromDer;
use x509_parser::public_key::PublicKey;
use x509_parser::x509::{SubjectPublicKeyInfo, X509Version};

/// The shortest RSA key that the cryptography library uses, in bits.
pub(crate) const RSA_BITS_MIN: usize = 2048;

/// Judges certificates by their issuers, names, times and purposes. Each peer must also own the key of its certificate.
#[derive(Debug)]
pub(crate) struct Verifier {
    algorithms: WebPkiSupportedAlgorithms,
    /// The authorities that are trusted. `None` accepts any certificate.
    roots: Option<Arc<RootCertStore>>,
    /// Checks the chains of clients. Only a server that has roots has it.
    clients: Option<Arc<dyn ClientCertVerifier>>,
}

impl Verifier {
    pub(crate) fn for_servers(
        algorithms: WebPkiSupportedAlgorithms,
        roots: Option<RootCertStore>,
    ) -> Verifier {
        Verifier {
            algorithms,
            roots: roots.map(Arc::new),
            clients: None,
        }
    }

    pub(crate) fn for_clients(
        algorithms: WebPkiSupportedAlgorithms,
        trusted: Option<(Arc<RootCertStore>, Arc<dyn ClientCertVerifier>)>,
    ) -> Verifier {
        let (roots, clients) = trusted.unzip();
        Verifier {
            algorithms,
            roots,
            clients,
        }
    }

    /// Judges a certificate of the forms that webpki refuses. Returns `None` for all others.
    fn judge(
        &self,
        roots: &RootCertStore,
        der: &CertificateDer<'_>,
        has_purpose: fn(&ExtendedKeyUsage<'_>) -> bool,
        now: UnixTime,
    ) -> Option<Result<(), Error>> {
        // webpki says what is wrong with a certificate that cannot be parsed.
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let is_root = is_among(roots, &certificate);
        let is_old = certificate.version() != X509Version::V3;
        if !is_root && !is_old && !certificate.is_ca() {
            return None;
        }
        let judged = check_time(&certificate, now)
            .and_then(|()| check_extensions(&certificate, has_purpose))
            // The owner of the key of a root could have signed any certificate, so the signature adds nothing.
            .and_then(|()| {
                if is_root {
                    Ok(())
                } else {
                    self.check_issuer(roots, &certificate)
                }
            });
        Some(judged)
    }

    /// Checks that a root has signed the certificate.
    fn check_issuer(
        &self,
        roots: &RootCertStore,
        certificate: &X509Certificate<'_>,
    ) -> Result<(), Error> {
        let issuer = certificate.issuer().as_raw();
        let mut error = CertificateError::UnknownIssuer;
        for root in &roots.roots {
            if in_sequence(&root.subject) != issuer {
                continue;
            }
            if root.name_constraints.is_some() {
                error = other(
                    "its issuer has name constraints, which are not checked for such a certificate",
                );
            } else if self.has_signed(root, certificate) {
                return Ok(());
            } else {
                error = CertificateError::BadSignature;
            }
        }
        Err(Error::InvalidCertificate(error))
    }

    fn has_signed(&self, root: &TrustAnchor<'_>, certificate: &X509Certificate<'_>) -> bool {
        let key = in_sequence(&root.subject_public_key_info);
        let key = SubjectPublicKeyInfoDer::from(key);
        let Ok(key) = RawPublicKeyEntity::try_from(&key) else {
            return false;
        };
        let signed: &[u8] = certificate.tbs_certificate.as_ref();
        let signature = certificate.signature_value.data.as_ref();
        let identifier = certificate.signature_algorithm.algorithm.as_bytes();
        // An algorithm identifier begins with the tag and the length of its object identifier.
        let of_signature = self.algorithms.all.iter().filter(|algorithm| {
            let named = algorithm.signature_alg_id();
            named.as_ref().get(2..2 + identifier.len()) == Some(identifier)
        });
        let mut verified =
            of_signature.map(|algorithm| key.verify_signature(*algorithm, signed, signature));
        verified.any(|result| result.is_ok())
    }

    /// Names a key that is too short as the cause of a failure, which the library calls a wrong signature.
    fn explained(&self, error: Error, certificates: &[&CertificateDer<'_>]) -> Error {
        let Error::InvalidCertificate(_) = &error else {
            return error;
        };
        let parsed = certificates
            .iter()
            .map(|der| X509Certificate::from_der(der));
        for (_, certificate) in parsed.flatten() {
            let subject = certificate.subject();
            if let Some(bits) = short_rsa_bits(certificate.public_key()) {
                return invalid(format!("the certificate of {subject} {}", too_short(bits)));
            }
            let roots = self.roots.iter().flat_map(|roots| &roots.roots);
            for root in
                roots.filter(|root| in_sequence(&root.subject) == certificate.issuer().as_raw())
            {
                let key = in_sequence(&root.subject_public_key_info);
                let key = SubjectPublicKeyInfo::from_der(&key);
                if let Some(bits) = key.ok().and_then(|(_, key)| short_rsa_bits(&key)) {
                    let issuer = certificate.issuer();
                    return invalid(format!("the authority {issuer} {}", too_short(bits)));
                }
            }
        }
        error
    }

    /// Checks that the peer owns the key of its certificate. The library's own functions do not read version 1.
    fn check_tls12(
        &self,
        message: &[u8],
        der: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let unadvertised = || PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme;
        let mut mapping = self.algorithms.mapping.iter();
        let (_, candidates) = mapping
            .find(|(scheme, _)| *scheme == signed.scheme)
            .ok_or_else(unadvertised)?;
        let key = public_key(der)?;
        let bad = |_| Error::InvalidCertificate(CertificateError::BadSignature);
        let key = RawPublicKeyEntity::try_from(&key).map_err(bad)?;
        // TLS 1.2 does not say which curve belongs to the hash.
        let mut verified = candidates
            .iter()
            .map(|algorithm| key.verify_signature(*algorithm, message, signed.signature()));
        if verified.any(|result| result.is_ok()) {
            Ok(HandshakeSignatureValid::assertion())
        } else {
            let error = Error::InvalidCertificate(CertificateError::BadSignature);
            Err(self.explained(error, &[der]))
        }
    }

    fn check_tls13(
        &self,
        message: &[u8],
        der: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let key = public_key(der)?;
        verify_tls13_signature_with_raw_key(message, &key, signed, &self.algorithms)
            .map_err(|error| self.explained(error, &[der]))
    }
}

/// The methods that both traits of verifiers have.
macro_rules! signature_checks {
    () => {
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            self.check_tls12(message, certificate, signed)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            self.check_tls13(message, certificate, signed)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.algorithms.supported_schemes()
        }
    };
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(roots) = &self.roots else {
            return Ok(ServerCertVerified::assertion());
        };
        let has_purpose = |usage: &ExtendedKeyUsage<'_>| usage.any || usage.server_auth;
        let judged = self.judge(roots, certificate, has_purpose, now);
        judged
            .unwrap_or_else(|| {
                let parsed = ParsedCertificate::try_from(certificate)?;
                let algorithms = self.algorithms.all;
                verify_server_cert_signed_by_trust_anchor(
                    &parsed,
                    roots,
                    intermediates,
                    now,
                    algorithms,
                )
            })
            .and_then(|()| check_name(certificate, name))
            .map_err(|error| self.explained(error, &with(certificate, intermediates)))?;
        Ok(ServerCertVerified::assertion())
    }

    signature_checks!();
}

impl ClientCertVerifier for Verifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        let clients = self.clients.as_ref();
        clients.map_or(&[], |clients| clients.root_hint_subjects())
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let (Some(roots), Some(clients)) = (&self.roots, &self.clients) else {
            return Ok(ClientCertVerified::assertion());
        };
        let has_purpose = |usage: &ExtendedKeyUsage<'_>| usage.any || usage.client_auth;
        match self.judge(roots, certificate, has_purpose, now) {
            Some(judged) => judged.map(|()| ClientCertVerified::assertion()),
            None => clients.verify_client_cert(certificate, intermediates, now),
        }
        .map_err(|error| self.explained(error, &with(certificate, intermediates)))
    }

    signature_checks!();
}

/// Returns the public key of a certificate of any version.
pub(crate) fn public_key(
    der: &CertificateDer<'_>,
) -> Result<SubjectPublicKeyInfoDer<'static>, Error> {
    let parsed = X509Certificate::from_der(der);
    let (_, certificate) =
        parsed.map_err(|_| Error::InvalidCertificate(CertificateError::BadEncoding))?;
    Ok(SubjectPublicKeyInfoDer::from(
        certificate.public_key().raw.to_vec(),
    ))
}

/// Returns the length of an RSA key that is too short, in bits.
pub(crate) fn short_rsa_bits(key: &SubjectPublicKeyInfo<'_>) -> Option<usize> {
    match key.parsed() {
        Ok(PublicKey::RSA(key)) => Some(key.key_size()).filter(|bits| *bits < RSA_BITS_MIN),
        _ => None,
    }
}

/// Says that an RSA key is too short. The subject goes before the text.
pub(crate) fn too_short(bits: usize) -> String {
    format!("has an RSA key of {bits} bits, and at least {RSA_BITS_MIN} are needed")
}

/// Returns true if a root has the certificate's name and key.
fn is_among(roots: &RootCertStore, certificate: &X509Certificate<'_>) -> bool {
    let (subject, key) = (certificate.subject().as_raw(), certificate.public_key().raw);
    roots.roots.iter().any(|root| {
        in_sequence(&root.subject) == subject && in_sequence(&root.subject_public_key_info) == key
    })
}

/// Returns the encoding of a sequence, of which a root has the content only.
fn in_sequence(content: &[u8]) -> Vec<u8> {
    DistinguishedName::in_sequence(content).as_ref().to_vec()
}

fn check_time(certificate: &X509Certificate<'_>, time: UnixTime) -> Result<(), Error> {
    let instant = |seconds: i64| {
        let seconds = u64::try_from(seconds).unwrap_or_default();
        UnixTime::since_unix_epoch(Duration::from_secs(seconds))
    };
    let validity = certificate.validity();
    let not_before = instant(validity.not_before.timestamp());
    let not_after = instant(validity.not_after.timestamp());
    if time < not_before {
        let error = CertificateError::NotValidYetContext { time, not_before };
        return Err(Error::InvalidCertificate(error));
    }
    if time > not_after {
        let error = CertificateError::ExpiredContext { time, not_after };
        return Err(Error::InvalidCertificate(error));
    }
    Ok(())
}

fn check_extensions(
    certificate: &X509Certificate<'_>,
    has_purpose: fn(&ExtendedKeyUsage<'_>) -> bool,
) -> Result<(), Error> {
    for extension in certificate.extensions() {
        let error = match extension.parsed_extension() {
            ParsedExtension::ExtendedKeyUsage(usage) if !has_purpose(usage) => {
                CertificateError::InvalidPurpose
            }
            ParsedExtension::UnsupportedExtension { .. } if extension.critical => {
                CertificateError::UnhandledCriticalExtension
            }
            ParsedExtension::ParseError { .. } => CertificateError::BadEncoding,
            _ => continue,
        };
        return Err(Error::InvalidCertificate(error));
    }
    Ok(())
}

/// Checks that the certificate is for `name`. Names are in an extension, which version 1 lacks. Like Go, this does not look
/// at the common name.
fn check_name(certificate: &CertificateDer<'_>, name: &ServerName<'_>) -> Result<(), Error> {
    match ParsedCertificate::try_from(certificate) {
        Ok(parsed) => verify_server_name(&parsed, name),
        Err(_) => Err(Error::InvalidCertificate(
            CertificateError::NotValidForNameContext {
                expected: name.to_owned(),
                presented: Vec::new(),
            },
        )),
    }
}

fn with<'a>(
    certificate: &'a CertificateDer<'a>,
    intermediates: &'a [CertificateDer<'a>],
) -> Vec<&'a CertificateDer<'a>> {
    std::iter::once(certificate).chain(intermediates).collect()
}

fn invalid(why: String) -> Error {
    Error::InvalidCertificate(other(why))
}

fn other(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> CertificateError {
    CertificateError::Other(OtherError(Arc::from(why.into())))
}
