//! Private keys in PKCS#8 PEM.

use ledger::bytes::hash::Hash;
use ledger::bytes::key::{LocalKey, Message, PublicKey, Signer as _};

use crate::engine::{Checked, Outcome, Target, hold};

const WORDS: &[&str] = &[
    "-----BEGIN PRIVATE KEY-----\n",
    "-----END PRIVATE KEY-----\n",
    "-----BEGIN ENCRYPTED PRIVATE KEY-----\n",
    "-----BEGIN EC PRIVATE KEY-----\n",
    "-----",
    "\n",
    "\r\n",
    "MC4CAQAwBQYDK2VwBCIEI",
    "MFECAQEwBQYDK2VwBCIEI",
    "MC4CAQAwBQYDK2VuBCIEI",
    "gSEA",
    "BCIEI",
    "AAAA",
    "AAA=",
    "AA==",
    "=",
    "Proc-Type: 4,ENCRYPTED\n",
];

#[test]
fn key_file() {
    let written = crate::test_key().to_pem().unwrap().clone().into_bytes();
    // `openssl genpkey -algorithm ed25519`.
    let openssl = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIHP1uaLukJbLFpZeEeqN8t7kXsQmXlHkcFuViLh9SnAs\n-----END PRIVATE KEY-----\n";
    crate::run(Target {
        name: "key_file",
        valid: vec![written, openssl.as_bytes().to_vec()],
        words: WORDS,
        shape: |_, _| None,
        check,
    });
}

fn check(bytes: &[u8]) -> Checked {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return Outcome::refused("not text");
    };
    let key = match LocalKey::from_pem(text) {
        Ok(key) => key,
        Err(error) => return Outcome::refused(&error.to_string()),
    };
    let public = key.public();
    hold!(public.id().0 == Hash::of(&public.to_bytes()), "another id");
    let checked = PublicKey::from_bytes(&public.to_bytes());
    hold!(
        checked.as_ref() == Ok(public),
        "a key that is refused elsewhere: {checked:?}"
    );
    let signature = key
        .sign(Message::Record(b"{}"))
        .map_err(|e| e.to_string())?;
    hold!(
        public.verifies(Message::Record(b"{}"), &signature),
        "its signature does not verify"
    );
    let written = key
        .to_pem()
        .map_err(|e| format!("accepted, not written: {e}"))?;
    let again = LocalKey::from_pem(&written).map_err(|e| format!("written and refused: {e}"))?;
    hold!(
        again.public() == public,
        "written and read again it is another key"
    );
    let twice = again.to_pem().map_err(|e| e.to_string())?;
    hold!(*twice == *written, "written twice, written differently");
    Ok(Outcome::accepted(if *written == *text {
        "as written"
    } else {
        "in another form"
    }))
}
