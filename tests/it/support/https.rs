//! TLS in front of a receiver, with certificates of an authority of the test's own.

use std::{net::SocketAddr, sync::Arc};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig, crypto,
        pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
    },
};

/// Vouches for certificates.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// What is unusual about a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Age {
    /// It is good now.
    Good,
    /// It is too old.
    Expired,
    /// It is for later.
    NotYet,
}

impl Authority {
    /// Of this name.
    pub(crate) fn new(name: &str) -> Authority {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Authority(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Its own certificate.
    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// A server's configuration with a certificate for this name.
    fn server(&self, name: &str, age: Age) -> ServerConfig {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.not_before, params.not_after) = match age {
            Age::Good => (date_time_ymd(2020, 1, 1), date_time_ymd(2099, 1, 1)),
            Age::Expired => (date_time_ymd(2020, 1, 1), date_time_ymd(2020, 2, 1)),
            Age::NotYet => (date_time_ymd(2098, 1, 1), date_time_ymd(2099, 1, 1)),
        };
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        ServerConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap()
    }
}

/// Takes TLS connections on a port of the loopback and hands what is inside on.
#[derive(Debug)]
pub(crate) struct Front {
    address: SocketAddr,
    accepting: JoinHandle<()>,
}

impl Front {
    /// In front of this address, with a certificate for this name.
    pub(crate) async fn start(of: SocketAddr, authority: &Authority, name: &str, age: Age) -> Front {
        let acceptor = TlsAcceptor::from(Arc::new(authority.server(name, age)));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let accepting = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                connections.spawn(async move {
                    // A client that does not like the certificate hangs up.
                    let Ok(mut outside) = acceptor.accept(stream).await else { return };
                    let mut inside = TcpStream::connect(of).await.unwrap();
                    let _ = tokio::io::copy_bidirectional(&mut outside, &mut inside).await;
                });
            }
        });
        Front { address, accepting }
    }

    /// Its port.
    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}
