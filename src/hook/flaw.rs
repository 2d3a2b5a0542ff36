//! What is wrong with a connection, read out of whatever error it comes wrapped in.

use std::{error::Error, io};

use rustls::CertificateError;

/// Errors deep inside of others; more are none of ours.
const DEEPEST: usize = 16;

/// What is wrong with TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// The certificate is too old.
    Expired,
    /// The certificate is for later.
    NotYet,
    /// Nobody who is trusted vouches for it.
    Issuer,
    /// It is for another name.
    Name,
    /// It is not accepted for some other reason.
    Certificate(String),
    /// What answers does not speak TLS.
    NoTls,
    /// TLS fails before or beside the certificate.
    Handshake(String),
}

impl Flaw {
    /// The flaw that an error is about, if it is about TLS.
    pub(super) fn of(error: &(dyn Error + 'static)) -> Option<Flaw> {
        let mut next = Some(error);
        for _ in 0..DEEPEST {
            let error = next?;
            if let Some(tls) = error.downcast_ref::<rustls::Error>() {
                return Some(Flaw::from(tls));
            }
            next = within(error);
        }
        None
    }

    /// What is so, as the end of a sentence about a server.
    pub fn said(&self) -> String {
        match self {
            Flaw::Expired => "its certificate has expired".to_owned(),
            Flaw::NotYet => "its certificate is not valid yet, by this machine's clock".to_owned(),
            Flaw::Issuer => "its certificate is from an authority that is not trusted here".to_owned(),
            Flaw::Name => "its certificate is for another name".to_owned(),
            Flaw::Certificate(why) => format!("its certificate is not accepted: {why}"),
            Flaw::NoTls => "what answers there does not speak TLS".to_owned(),
            Flaw::Handshake(why) => format!("TLS fails: {why}"),
        }
    }
}

impl From<&rustls::Error> for Flaw {
    fn from(error: &rustls::Error) -> Flaw {
        match error {
            rustls::Error::InvalidCertificate(certificate) => match certificate {
                CertificateError::Expired | CertificateError::ExpiredContext { .. } => Flaw::Expired,
                CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => Flaw::NotYet,
                // The second is what an authority comes to whose key is new and whose name is old.
                CertificateError::UnknownIssuer | CertificateError::BadSignature => Flaw::Issuer,
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => Flaw::Name,
                CertificateError::Other(why) => Flaw::Certificate(why.to_string()),
                other => Flaw::Certificate(other.to_string()),
            },
            rustls::Error::InvalidMessage(_) => Flaw::NoTls,
            other => Flaw::Handshake(other.to_string()),
        }
    }
}

/// The kind of trouble of the network that an error is about, if it is about that.
pub(super) fn io_kind(error: &(dyn Error + 'static)) -> Option<io::ErrorKind> {
    let (mut next, mut kind) = (Some(error), None);
    for _ in 0..DEEPEST {
        let Some(error) = next else { break };
        // The innermost says most.
        kind = error.downcast_ref::<io::Error>().map(io::Error::kind).or(kind);
        next = within(error);
    }
    kind
}

/// What an error is wrapped around.
fn within<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e (dyn Error + 'static)> {
    // Of one that was made one of the network's, the cause is not what it is wrapped around.
    match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(inner) => Some(inner),
        None => error.source(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("around")]
    struct Around(#[source] Box<dyn Error + Send + Sync>);

    #[test]
    fn a_flaw_is_found_however_deep_it_lies() {
        let certificate = rustls::Error::InvalidCertificate;
        for (error, expected) in [
            (certificate(CertificateError::Expired), Flaw::Expired),
            (certificate(CertificateError::NotValidYet), Flaw::NotYet),
            (certificate(CertificateError::UnknownIssuer), Flaw::Issuer),
            (certificate(CertificateError::BadSignature), Flaw::Issuer),
            (certificate(CertificateError::NotValidForName), Flaw::Name),
            (certificate(CertificateError::Revoked), Flaw::Certificate("Revoked".to_owned())),
            (rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType), Flaw::NoTls),
            (rustls::Error::HandshakeNotComplete, Flaw::Handshake("handshake not complete".to_owned())),
        ] {
            assert_eq!(Flaw::of(&error), Some(expected.clone()));
            let wrapped = Around(Box::new(io::Error::other(io::Error::other(error))));
            assert_eq!(Flaw::of(&wrapped), Some(expected));
        }
        assert_eq!(Flaw::of(&io::Error::from(io::ErrorKind::ConnectionRefused)), None);
    }

    #[test]
    fn the_innermost_trouble_of_the_network_counts() {
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        for error in [refused(), io::Error::other(refused()), io::Error::other(Around(Box::new(refused())))] {
            assert_eq!(io_kind(&error), Some(io::ErrorKind::ConnectionRefused), "{error:?}");
        }
        assert_eq!(io_kind(&rustls::Error::HandshakeNotComplete), None);
    }
}
