use super::*;

const METHOD: Method<'_> = Method {
    destination: "a.b",
    path: "/x",
    interface: "c.d",
    member: "M",
    signature: "s",
};

/// The other side: takes the authentication, reads one message, says `answer`.
fn other_side(line: &'static str, answer: Vec<u8>) -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut buffer = [0; 4096];
        let read = stream.read(&mut buffer).unwrap();
        assert!(buffer[..read].starts_with(b"\0AUTH EXTERNAL "));
        stream.write_all(line.as_bytes()).unwrap();
        let mut said = Vec::new();
        while !said.ends_with(b"hello\0") {
            match stream.read(&mut buffer) {
                Ok(count) if count > 0 => said.extend(&buffer[..count]),
                _ => return,
            }
        }
        assert!(said.starts_with(b"BEGIN\r\nl\x01\0\x01"));
        stream.write_all(&answer).unwrap();
    });
    (folder, path)
}

/// A message with a reply serial of 1, an error's name where there is one, and a text.
fn answer(kind: u8, name: Option<&str>, text: &str) -> Vec<u8> {
    let mut fields = Body::default();
    fields.0.push(REPLY_SERIAL);
    fields.signature("u");
    fields.number(1);
    if let Some(name) = name {
        fields.align(8);
        fields.0.push(ERROR_NAME);
        fields.signature("s");
        fields.string(name);
    }
    fields.align(8);
    fields.0.push(SIGNATURE);
    fields.signature("g");
    fields.signature("s");
    let mut body = Body::default();
    body.string(text);
    let mut message = vec![b'l', kind, 0, 1];
    message.extend(length(&body.0).to_le_bytes());
    message.extend(7_u32.to_le_bytes());
    message.extend(length(&fields.0).to_le_bytes());
    message.extend(&fields.0);
    message.resize(message.len().next_multiple_of(8), 0);
    message.extend(body.0);
    message
}

fn call(line: &'static str, answer: Vec<u8>) -> Result<(), CallError> {
    let (_folder, path) = other_side(line, answer);
    let mut connection = Connection::open(&path, false)?;
    let mut body = Body::default();
    body.string("hello");
    connection.call(&METHOD, &body)
}

#[test]
fn a_call_is_answered_or_refused() {
    call("OK 0123\r\n", answer(METHOD_RETURN, None, "/job/1")).unwrap();
    let error = call("OK 0123\r\n", answer(ERROR, Some("a.b.Denied"), "no")).unwrap_err();
    assert_eq!(error.to_string(), "it answers a.b.Denied: no");
    let error = call("REJECTED EXTERNAL\r\n", Vec::new()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "it does not accept this user: REJECTED EXTERNAL"
    );
}

#[test]
fn what_comes_before_the_answer_is_passed_over() {
    let mut other = answer(METHOD_RETURN, None, "");
    // Of another call.
    let at = other.iter().position(|byte| *byte == REPLY_SERIAL).unwrap();
    other[at + 4] = 9;
    other.extend(answer(METHOD_RETURN, None, "x"));
    call("OK 0\r\n", other).unwrap();
}

#[test]
fn what_is_no_message_is_an_error() {
    let mut big = answer(METHOD_RETURN, None, "x");
    big[0] = b'B';
    assert!(call("OK 0\r\n", big).is_err());
    let mut long = answer(METHOD_RETURN, None, "x");
    long[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(call("OK 0\r\n", long).is_err());
    assert!(Answer::parse(METHOD_RETURN, &[5, 1], Vec::new()).is_none());
    assert!(Answer::parse(METHOD_RETURN, &[5, 1, b'v', 0, 0], Vec::new()).is_none());
}

#[test]
fn arguments_are_aligned() {
    let mut body = Body::default();
    body.string("ab");
    body.array(|body| {
        body.property("N", &Value::Bool(true));
        body.property("P", &Value::Numbers(&[258]));
    });
    body.array(|_| {});
    assert_eq!(&body.0[..8], b"\x02\0\0\0ab\0\0");
    // The array's length, without what comes before its first item.
    assert_eq!(&body.0[8..16], b"\x24\0\0\0\0\0\0\0");
    // N: string, signature of a variant, a number on a multiple of 4.
    assert_eq!(&body.0[16..32], b"\x01\0\0\0N\0\x01b\0\0\0\0\x01\0\0\0");
    assert_eq!(
        &body.0[32..54],
        b"\x01\0\0\0P\0\x02au\0\0\0\x04\0\0\0\x02\x01\0\0\0\0"
    );
}
