//! Signatures: Standard Webhooks for most forms, flexiq's own for flexiq's.

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use standardwebhooks::Webhook;

use crate::config::Secret;

/// A secret that cannot sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SignError {
    /// Nothing to sign with.
    #[error("the signing secret is empty")]
    Empty,
    /// Not what Standard Webhooks asks for.
    #[error("the signing secret is not `whsec_` and base64")]
    Malformed,
}

/// The value of `webhook-signature`: one `v1,…` for each secret, in their order, separated by a space. `seconds` is
/// the value of `webhook-timestamp`.
pub(super) fn standard(secrets: &[Secret], id: &str, seconds: i64, body: &[u8]) -> Result<String, SignError> {
    let mut signatures = Vec::with_capacity(secrets.len());
    for secret in secrets {
        if secret.reveal().trim_start_matches("whsec_").is_empty() {
            return Err(SignError::Empty);
        }
        let webhook = Webhook::new(secret.reveal()).map_err(|_| SignError::Malformed)?;
        signatures.push(webhook.sign(id, seconds, body).map_err(|_| SignError::Malformed)?);
    }
    Ok(signatures.join(" "))
}

/// The value of `X-Flexiq-Signature`.
pub(super) fn flexiq(secret: &Secret, body: &[u8]) -> Result<String, SignError> {
    if secret.reveal().is_empty() {
        return Err(SignError::Empty);
    }
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.reveal().as_bytes()).expect("HMAC takes a key of any length");
    mac.update(body);
    let digest = mac.finalize().into_bytes();
    Ok(digest.iter().fold("sha256=".to_owned(), |hex, byte| hex + &format!("{byte:02x}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    fn secrets(texts: &[&str]) -> Vec<Secret> {
        texts.iter().map(|text| Secret::new(*text)).collect()
    }

    #[test]
    fn a_known_message_has_its_known_signature() {
        // Computed with an independent HMAC-SHA256 over `id.timestamp.body`.
        let signed =
            standard(&secrets(&[SECRET]), "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(signed.as_deref(), Ok("v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="));
    }

    #[test]
    fn every_secret_signs_in_its_order() {
        let (old, body) = ("whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=", b"{}");
        let one = |secret| standard(&secrets(&[secret]), "e", 7, body).unwrap();
        assert_eq!(standard(&secrets(&[SECRET, old]), "e", 7, body).unwrap(), format!("{} {}", one(SECRET), one(old)));
    }

    #[test]
    fn flexiqs_signature_is_the_hex_hmac_of_the_body() {
        // RFC 4231, test case 2.
        let signed = flexiq(&Secret::new("Jefe"), b"what do ya want for nothing?");
        let known = "sha256=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(signed.as_deref(), Ok(known));
    }

    #[test]
    fn a_secret_that_cannot_sign_is_refused() {
        assert_eq!(standard(&secrets(&["whsec_"]), "e", 7, b"{}"), Err(SignError::Empty));
        assert_eq!(standard(&secrets(&["whsec_not base64!"]), "e", 7, b"{}"), Err(SignError::Malformed));
        assert_eq!(flexiq(&Secret::new(""), b"{}"), Err(SignError::Empty));
    }
}
