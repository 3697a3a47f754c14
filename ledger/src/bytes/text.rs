//! Text that others wrote, before it is shown: a name or a record must not paint over what is said about it.

/// The text with everything written out that moves a cursor, reorders its neighbours or is not seen: control
/// characters, line and paragraph separators, bidirectional and zero-width characters, as `\u{…}`.
#[must_use]
pub fn clean(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() || is_unseen(c) {
            clean.extend(c.escape_unicode());
        } else {
            clean.push(c);
        }
    }
    clean
}

/// As [`clean`], for a text of several lines whose line ends are our own.
#[must_use]
pub fn clean_lines(text: &str) -> String {
    let lines: Vec<_> = text.split('\n').map(clean).collect();
    lines.join("\n")
}

/// As [`clean`], for a JSON text: what is written out becomes an escape of JSON, so that the text says the same to
/// every reader. Such characters stand in its strings alone.
#[must_use]
pub fn clean_json(json: &str) -> String {
    let mut clean = String::with_capacity(json.len());
    for c in json.chars() {
        if c.is_control() || is_unseen(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                clean.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            clean.push(c);
        }
    }
    clean
}

/// At most `most` characters of a stranger's text, [`clean`]: of a longer one its beginning and its end.
#[must_use]
pub fn excerpt(text: &str, most: usize) -> String {
    let length = text.chars().count();
    if length <= most {
        return clean(text);
    }
    let end = most / 4;
    let chars = || text.chars();
    let (head, tail): (String, String) = (
        chars().take(most.saturating_sub(end + 1)).collect(),
        chars().skip(length - end).collect(),
    );
    format!("{}\u{2026}{}", clean(&head), clean(&tail))
}

const fn is_unseen(c: char) -> bool {
    matches!(
        c,
        '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            | '\u{115f}'..='\u{1160}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_has_both_ends() {
        assert_eq!(excerpt("abc", 3), "abc");
        assert_eq!(excerpt("abcdefgh", 7), "abcde\u{2026}h");
        assert_eq!(excerpt("\u{e9}\u{e9}\u{1b}", 2), "\u{e9}\u{2026}");
        assert_eq!(excerpt("a\u{1b}", 2), "a\\u{1b}");
        assert_eq!(excerpt(&"x".repeat(100_000), 300).chars().count(), 300);
        assert_eq!(excerpt("abc", 0), "\u{2026}");
    }

    #[test]
    fn a_cleaned_json_text_says_the_same() {
        let value = "a\u{202e}\u{e0001}\u{9b} \u{e9}\n\"";
        let json = serde_json::to_string(value).unwrap();
        let cleaned = clean_json(&json);
        assert_eq!(clean(&cleaned), cleaned);
        assert_eq!(serde_json::from_str::<String>(&cleaned).unwrap(), value);
    }

    #[test]
    fn hostile_text_is_written_out() {
        assert_eq!(clean("a\u{1b}[2Jb"), "a\\u{1b}[2Jb");
        assert_eq!(clean("x\u{202e}y\n\u{85}"), "x\\u{202e}y\\u{a}\\u{85}");
        assert_eq!(
            clean("\u{2028}\u{2029}\u{200b}"),
            "\\u{2028}\\u{2029}\\u{200b}"
        );
        assert_eq!(clean("\u{feff}\u{2066}\u{7f}"), "\\u{feff}\\u{2066}\\u{7f}");
        assert_eq!(clean("día 中 ok"), "día 中 ok");
        assert_eq!(clean_lines("a\nb\r\n"), "a\nb\\u{d}\n");
    }
}
