//! Ed25519 keys (RFC 8032): who signs, what may be signed, and the one strict way to check.
//!
//! A signature counts if and only if `VerifyingKey::verify_strict` accepts it; small-order keys are
//! refused when they are loaded. A ledger key signs exactly the families of [`Message`], which differ in
//! their first bytes, so that no signature of one family can be shown as another.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ed25519_dalek::pkcs8::{
    DecodePrivateKey as _, EncodePrivateKey as _, KeypairBytes, spki::der::pem::LineEnding,
};
use ed25519_dalek::{Signer as _, SigningKey, VerifyingKey};
use serde::de::{self, Deserialize, Deserializer};
use serde::ser::{Serialize, Serializer};

use super::hash::Hash;

/// First bytes of a signed record.
pub const RECORD_PREFIX: &[u8] = b"containment-ledger/record/v1\n";
/// First bytes of a proof that a new key is held.
pub const POSSESSION_PREFIX: &[u8] = b"containment-ledger/possession/v1\n";

/// SHA-256 of a public key's 32 bytes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub struct KeyId(pub Hash);

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for KeyId {
    type Err = super::hash::HexError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

/// Exactly `N` bytes in padded standard base64 (RFC 4648 §4); the text must be what encoding gives back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Base64<const N: usize>(pub [u8; N]);

/// A text that is not the base64 of so many bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected {bytes} bytes in padded base64, found {found:?}")]
pub struct Base64Error {
    bytes: usize,
    found: String,
}

impl<const N: usize> FromStr for Base64<N> {
    type Err = Base64Error;

    fn from_str(text: &str) -> Result<Self, Base64Error> {
        let error = || Base64Error {
            bytes: N,
            found: text.chars().take(120).collect(),
        };
        let bytes: [u8; N] = BASE64
            .decode(text)
            .map_err(|_| error())?
            .try_into()
            .map_err(|_| error())?;
        if BASE64.encode(bytes) == text {
            Ok(Self(bytes))
        } else {
            Err(error())
        }
    }
}

impl<const N: usize> fmt::Display for Base64<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&BASE64.encode(self.0))
    }
}

impl<const N: usize> Serialize for Base64<N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de, const N: usize> Deserialize<'de> for Base64<N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

/// The 64 bytes of an Ed25519 signature; written as 88 characters of base64.
pub type Signature = Base64<64>;

/// Why 32 bytes are not a key that may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PublicKeyError {
    /// Not the encoding of a curve point.
    #[error("the 32 bytes are not an Ed25519 public key")]
    NotAPoint,
    /// A point of small order: signatures that verify for every message exist.
    #[error("the public key has small order, anybody could sign for it")]
    Weak,
}

/// A public key that is a point of the curve and not of small order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublicKey {
    key: VerifyingKey,
    id: KeyId,
}

impl PublicKey {
    /// Checks and takes the 32 bytes of RFC 8032 §5.1.5.
    ///
    /// # Errors
    /// Not a point, or of small order.
    pub fn from_bytes(bytes: &[u8; 32]) -> Result<Self, PublicKeyError> {
        let key = VerifyingKey::from_bytes(bytes).map_err(|_| PublicKeyError::NotAPoint)?;
        if key.is_weak() {
            return Err(PublicKeyError::Weak);
        }
        Ok(Self {
            key,
            id: KeyId(Hash::of(bytes)),
        })
    }

    /// SHA-256 of the key's bytes.
    #[must_use]
    pub const fn id(&self) -> KeyId {
        self.id
    }

    /// The 32 bytes.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; 32] {
        self.key.to_bytes()
    }

    /// Whether `signature` is this key's over `message`, strictly.
    #[must_use]
    pub fn verifies(&self, message: Message<'_>, signature: &Signature) -> bool {
        self.verifies_bytes(&message.to_bytes(), signature)
    }

    /// As [`Self::verifies`], for a message that is at hand as bytes (notes signed by others).
    #[must_use]
    pub fn verifies_bytes(&self, message: &[u8], signature: &Signature) -> bool {
        self.key
            .verify_strict(message, &ed25519_dalek::Signature::from_bytes(&signature.0))
            .is_ok()
    }
}

/// Everything a ledger key ever signs.
#[derive(Clone, Copy, Debug)]
pub enum Message<'a> {
    /// The exact bytes of a line's `record` object.
    Record(&'a [u8]),
    /// That a new key is held by whoever rotates to it (TRUST.md §4).
    Possession {
        /// The ledger's id.
        ledger: &'a Hash,
        /// Sequence of the `key` record.
        sequence: u64,
        /// `previous` of the `key` record.
        previous: &'a Hash,
        /// Id of the new key.
        key: &'a KeyId,
    },
    /// The text of a checkpoint (C2SP tlog-checkpoint).
    Checkpoint(&'a str),
}

impl Message<'_> {
    /// The bytes that are signed.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Record(record) => [RECORD_PREFIX, record].concat(),
            Self::Possession {
                ledger,
                sequence,
                previous,
                key,
            } => [
                POSSESSION_PREFIX,
                format!("{ledger}\n{sequence}\n{previous}\n{key}\n").as_bytes(),
            ]
            .concat(),
            Self::Checkpoint(text) => text.as_bytes().to_vec(),
        }
    }
}

/// Why a signature could not be made.
#[derive(Debug, thiserror::Error)]
pub enum SignError {
    /// The holder of the key (an agent) did not answer or refused.
    #[error("the key's holder did not sign")]
    Unavailable(#[source] std::io::Error),
}

/// Something that signs with one key: a file's key here, an agent elsewhere.
pub trait Signer {
    /// The key that [`Self::sign`] signs with.
    fn public(&self) -> &PublicKey;

    /// Signs one of the families of [`Message`].
    ///
    /// # Errors
    /// The key's holder is not reachable or refuses.
    fn sign(&self, message: Message<'_>) -> Result<Signature, SignError>;
}

/// Why a private key could not be used.
#[derive(Debug, thiserror::Error)]
pub enum PrivateKeyError {
    /// Not an Ed25519 key in PKCS#8 PEM (RFC 5958, RFC 8410).
    #[error("not an Ed25519 private key in PKCS#8 PEM")]
    Form,
    /// The key is of small order.
    #[error(transparent)]
    Public(#[from] PublicKeyError),
    /// The system gave no random bytes.
    #[error("the system gave no random bytes")]
    Random,
}

/// A private key held in this process; its memory is cleared when it is dropped.
pub struct LocalKey {
    secret: SigningKey,
    public: PublicKey,
}

impl LocalKey {
    /// A new key from the system's random source.
    ///
    /// # Errors
    /// The system gave no random bytes.
    pub fn generate() -> Result<Self, PrivateKeyError> {
        Self::from_seed(&random_bytes()?)
    }

    /// The key of an RFC 8032 seed.
    ///
    /// # Errors
    /// The public key would be of small order.
    pub fn from_seed(seed: &[u8; 32]) -> Result<Self, PrivateKeyError> {
        let secret = SigningKey::from_bytes(seed);
        let public = PublicKey::from_bytes(&secret.verifying_key().to_bytes())?;
        Ok(Self { secret, public })
    }

    /// Reads PKCS#8 PEM, without the public key (version 1) or with it (version 2, RFC 5958).
    ///
    /// # Errors
    /// Not a PEM text with one Ed25519 private key.
    pub fn from_pem(text: &str) -> Result<Self, PrivateKeyError> {
        let secret = SigningKey::from_pkcs8_pem(text).map_err(|_| PrivateKeyError::Form)?;
        let public = PublicKey::from_bytes(&secret.verifying_key().to_bytes())?;
        Ok(Self { secret, public })
    }

    /// Writes PKCS#8 PEM as RFC 8410 §7 shows it first: version 1, the seed alone. OpenSSL and what builds
    /// on it refuse version 2.
    ///
    /// # Errors
    /// The key cannot be encoded.
    pub fn to_pem(&self) -> Result<impl std::ops::Deref<Target = String> + use<>, PrivateKeyError> {
        // Clears its seed when it is dropped.
        let seed = KeypairBytes {
            secret_key: self.secret.to_bytes(),
            public_key: None,
        };
        seed.to_pkcs8_pem(LineEnding::LF)
            .map_err(|_| PrivateKeyError::Form)
    }
}

impl fmt::Debug for LocalKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LocalKey({})", self.public.id)
    }
}

impl Signer for LocalKey {
    fn public(&self) -> &PublicKey {
        &self.public
    }

    fn sign(&self, message: Message<'_>) -> Result<Signature, SignError> {
        Ok(Base64(self.secret.sign(&message.to_bytes()).to_bytes()))
    }
}

/// `N` bytes from the system's random source.
///
/// # Errors
/// The system gave none.
pub fn random_bytes<const N: usize>() -> Result<[u8; N], PrivateKeyError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|_| PrivateKeyError::Random)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seed(first: u8) -> [u8; 32] {
        std::array::from_fn(|i| first + i as u8)
    }

    #[test]
    fn small_order_keys_are_refused() {
        let mut identity = [0; 32];
        identity[0] = 1;
        assert_eq!(PublicKey::from_bytes(&identity), Err(PublicKeyError::Weak));
        assert_eq!(PublicKey::from_bytes(&[0; 32]), Err(PublicKeyError::Weak));
        let mut no_point = [0; 32];
        no_point[0] = 2;
        assert_eq!(
            PublicKey::from_bytes(&no_point),
            Err(PublicKeyError::NotAPoint)
        );
    }

    #[test]
    fn every_pair_of_families_differs_in_its_first_bytes() {
        let (hash, key) = (Hash::of(b""), KeyId(Hash::of(b"k")));
        let families = [
            Message::Record(b"{}").to_bytes(),
            Message::Possession {
                ledger: &hash,
                sequence: 1,
                previous: &hash,
                key: &key,
            }
            .to_bytes(),
            Message::Checkpoint("origin.example/x\n1\nroot\n").to_bytes(),
        ];
        for (i, a) in families.iter().enumerate() {
            for b in &families[i + 1..] {
                let shared = a.iter().zip(b).take_while(|(x, y)| x == y).count();
                assert!(shared < a.len().min(b.len()));
            }
        }
        // A record ends without a newline, a checkpoint and a possession never do.
        assert_ne!(families[0].last(), Some(&b'\n'));
        assert_eq!(families[1].last(), Some(&b'\n'));
        assert_eq!(families[2].last(), Some(&b'\n'));
    }

    #[test]
    fn keys_are_files_that_openssl_reads_and_writes() {
        // `openssl genpkey -algorithm ed25519`, and the last 32 bytes of `openssl pkey -pubout -outform der`.
        let text = "-----BEGIN PRIVATE KEY-----\n\
            MC4CAQAwBQYDK2VwBCIEIHP1uaLukJbLFpZeEeqN8t7kXsQmXlHkcFuViLh9SnAs\n\
            -----END PRIVATE KEY-----\n";
        let public = "50aee4d5a584105272085b751a5fae625b606d7822a94bc2432944ebe27bd5e2";
        let key = LocalKey::from_pem(text).unwrap();
        assert_eq!(crate::bytes::hash::to_hex(&key.public().to_bytes()), public);
        assert_eq!(*key.to_pem().unwrap(), text);

        let key = LocalKey::from_seed(&seed(0)).unwrap();
        let pem = key.to_pem().unwrap();
        let der = BASE64.decode(pem.lines().nth(1).unwrap()).unwrap();
        let (prefix, rest) = der.split_at(16);
        assert_eq!(
            crate::bytes::hash::to_hex(prefix),
            "302e020100300506032b657004220420"
        );
        assert_eq!(rest, seed(0));
        // Version 2, with the public key: what this program wrote before.
        let newer = key.secret.to_pkcs8_pem(LineEnding::LF).unwrap();
        assert_ne!(*newer, *pem);
        let again = LocalKey::from_pem(&newer).unwrap();
        assert_eq!(again.public(), key.public());
    }

    #[test]
    fn pem_and_signature_round_trip() {
        let key = LocalKey::from_seed(&seed(0)).unwrap();
        assert_eq!(
            key.public().id().to_string(),
            "56475aa75463474c0285df5dbf2bcab73da651358839e9b77481b2eab107708c"
        );
        let again = LocalKey::from_pem(&key.to_pem().unwrap()).unwrap();
        let signature = again.sign(Message::Record(b"{}")).unwrap();
        assert!(key.public().verifies(Message::Record(b"{}"), &signature));
        assert!(!key.public().verifies(Message::Record(b"{ }"), &signature));
        assert!(LocalKey::from_pem("-----BEGIN PRIVATE KEY-----\n").is_err());
        let text = signature.to_string();
        assert_eq!(text.len(), 88);
        assert_eq!(text.parse::<Signature>(), Ok(signature));
        // "==" leaves four unused bits, which must be zero.
        let mut loose = text.clone().into_bytes();
        loose[85] += 1;
        assert!(
            String::from_utf8(loose)
                .unwrap()
                .parse::<Signature>()
                .is_err()
        );
    }
}
