//! "Did you mean …".

/// The known word that `word` most likely was meant to be.
pub(super) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // A longer word is no near miss of anything here, and hostile input must stay cheap.
    if word.len() > 64 {
        return None;
    }
    let allowed = (word.chars().count() / 3).clamp(1, 3);
    let distances = known
        .into_iter()
        .map(|known| (distance(word, known), known));
    let near = distances.filter(|(distance, _)| *distance <= allowed);
    near.min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known)
}

/// Insertions, removals, replacements and swaps of neighbours, upper and lower case being equal.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.to_lowercase().chars().collect();
    let b: Vec<char> = b.to_lowercase().chars().collect();
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut next = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let mut best = (row[j] + usize::from(x != y))
                .min(row[j + 1] + 1)
                .min(next[j] + 1);
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                best = best.min(before[j - 1] + 1);
            }
            next.push(best);
        }
        before = std::mem::replace(&mut row, next);
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_misses_only() {
        let known = ["network", "filesystem", "files", "memory"];
        assert_eq!(nearest("netwrok", known), Some("network"));
        assert_eq!(nearest("Memory", known), Some("memory"));
        assert_eq!(nearest("file", known), Some("files"));
        assert_eq!(nearest("disk", known), None);
        assert_eq!(nearest("", known), None);
        assert_eq!(nearest(&"n".repeat(1_000), known), None);
    }
}
