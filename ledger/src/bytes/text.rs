//! Text of others on a terminal: shown, never obeyed.

/// The text with every character that would move a cursor, hide or reorder what stands beside it written as
/// `\u{…}`. Newlines and tabs stay.
#[must_use]
pub fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_deceptive(c) {
            shown.extend(c.escape_unicode());
        } else {
            shown.push(c);
        }
    }
    shown
}

fn is_deceptive(c: char) -> bool {
    match c {
        '\n' | '\t' => false,
        // Marks, embeddings and isolates of the bidirectional algorithm (UAX #9), separators, and what has no width.
        '\u{61c}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{2069}'
        | '\u{feff}' => true,
        _ => c.is_control(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_deceive_is_written_out() {
        assert_eq!(visible("a\u{1b}[2J\r\u{7}b"), "a\\u{1b}[2J\\u{d}\\u{7}b");
        assert_eq!(
            visible("x\u{202e}y\u{200b}\u{85}"),
            "x\\u{202e}y\\u{200b}\\u{85}"
        );
        assert_eq!(visible("día\n\tñ 漢"), "día\n\tñ 漢");
    }
}
