//! Text for people.

/// `1 link`, `2 links`.
pub(crate) fn count(n: u32, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

/// Breaks a text into lines of at most `width` characters at its spaces.
pub(crate) fn wrapped(text: &str, width: usize) -> String {
    let mut lines = String::new();
    let mut length = 0;
    for word in text.split_ascii_whitespace() {
        let long = word.chars().count();
        if length > 0 && length + 1 + long > width {
            lines.push('\n');
            length = 0;
        } else if length > 0 {
            lines.push(' ');
            length += 1;
        }
        lines.push_str(word);
        length += long;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_wrapped_between_words() {
        assert_eq!(wrapped("a b  c", 3), "a b\nc");
        assert_eq!(wrapped("", 3), "");
        assert_eq!(wrapped("longer than that", 5), "longer\nthan\nthat");
    }
}
