//! Whether files for TLS hold what they must, found out without a connection.

use rustls::{
    Error, InconsistentKeys, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    sign::CertifiedKey,
};

/// What is wrong with a client's pair: which of the two files, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    /// The file of the certificate.
    Cert(&'static str),
    /// The file of the key.
    Key(&'static str),
}

const NO_CERTIFICATE: &str = "holds no certificate";

/// The certificates of a PEM file, at least one.
fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, &'static str> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let all = all.map_err(|_| "is no PEM file that can be read")?;
    if all.is_empty() { Err(NO_CERTIFICATE) } else { Ok(all) }
}

/// Whether a PEM file holds authorities' certificates; what is wrong with it if not.
pub(super) fn authorities(pem: &[u8]) -> Result<(), &'static str> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(pem)? {
        roots.add(certificate).map_err(|_| "holds a certificate that cannot be read")?;
    }
    Ok(())
}

/// Whether two PEM files hold a client's certificate and its key.
pub(super) fn pair(cert: &[u8], key: &[u8]) -> Result<(), Wrong> {
    let chain = certificates(cert).map_err(Wrong::Cert)?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| Wrong::Key("holds no private key"))?;
    match CertifiedKey::from_der(chain, key, &ring::default_provider()) {
        Ok(_) => Ok(()),
        Err(Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => {
            Err(Wrong::Key("holds the key of another certificate than \"cert\""))
        }
        Err(Error::InvalidCertificate(_)) => Err(Wrong::Cert("holds a certificate that cannot be read")),
        Err(_) => Err(Wrong::Key("holds a key of a kind that is not known here")),
    }
}

#[cfg(test)]
mod tests {
    use rcgen::generate_simple_self_signed;

    use super::*;

    #[test]
    fn each_file_must_hold_what_it_is_given_for() {
        let made = || {
            let made = generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
            (made.cert.pem(), made.signing_key.serialize_pem())
        };
        let ((cert, key), (_, other)) = (made(), made());
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for (pem, expected) in [
            (cert.as_str(), Ok(())),
            (&format!("{cert}{cert}"), Ok(())),
            (&key, Err(NO_CERTIFICATE)),
            ("", Err(NO_CERTIFICATE)),
            (broken, Err("holds a certificate that cannot be read")),
        ] {
            assert_eq!(authorities(pem.as_bytes()), expected, "{pem}");
        }
        for (cert, key, expected) in [
            (cert.as_str(), key.as_str(), Ok(())),
            (&cert, &other, Err(Wrong::Key("holds the key of another certificate than \"cert\""))),
            (&key, &key, Err(Wrong::Cert(NO_CERTIFICATE))),
            (&cert, &cert, Err(Wrong::Key("holds no private key"))),
            (broken, &key, Err(Wrong::Cert("holds a certificate that cannot be read"))),
        ] {
            assert_eq!(pair(cert.as_bytes(), key.as_bytes()), expected);
        }
    }
}
