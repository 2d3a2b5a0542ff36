//! Certificates for TLS: an authority of the test's own, and what it signs.

use std::{net::IpAddr, path::PathBuf};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SanType};
use tempfile::TempDir;

/// An authority, and a folder with everything as PEM files.
#[derive(Debug)]
pub(crate) struct Authority {
    folder: TempDir,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key.
#[derive(Clone, Debug)]
pub(crate) struct Certificate {
    /// PEM file.
    pub(crate) cert: PathBuf,
    /// PEM file.
    pub(crate) key: PathBuf,
}

impl Authority {
    /// A new one that nobody knows.
    pub(crate) fn new() -> Authority {
        let folder = tempfile::Builder::new().prefix("sexton-").tempdir().expect("a temporary folder can be made");
        let mut params = CertificateParams::new(Vec::new()).expect("no names are good names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, format!("authority {:08x}", fastrand::u32(..)));
        let key = KeyPair::generate().expect("a key can be made");
        let cert = params.self_signed(&key).expect("an authority can be made");
        std::fs::write(folder.path().join("ca.pem"), cert.pem()).expect("it can be written");
        Authority { folder, issuer: Issuer::new(params, key) }
    }

    /// Its own certificate.
    pub(crate) fn ca(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// Signs a certificate for these names and addresses; `file` is what its files are called. What was there is
    /// replaced.
    pub(crate) fn sign(&self, file: &str, names: &[&str]) -> Certificate {
        let mut params = CertificateParams::new(Vec::new()).expect("no names are good names");
        let name = |name: &&str| match name.parse::<IpAddr>() {
            Ok(address) => SanType::IpAddress(address),
            Err(_) => SanType::DnsName((*name).try_into().expect("a name of ASCII")),
        };
        params.subject_alt_names = names.iter().map(name).collect();
        let key = KeyPair::generate().expect("a key can be made");
        let cert = params.signed_by(&key, &self.issuer).expect("a certificate can be made");
        let path = |ending: &str| self.folder.path().join(format!("{file}{ending}"));
        let files = Certificate { cert: path(".pem"), key: path("-key.pem") };
        std::fs::write(&files.cert, cert.pem()).expect("it can be written");
        std::fs::write(&files.key, key.serialize_pem()).expect("it can be written");
        files
    }
}
