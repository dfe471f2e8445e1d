//! Text inside XML and HTML. Whatever it holds, it stays text.

/// A text for elements and for attributes in double quotes. What XML 1.0 cannot hold is replaced, and so is what turns
/// the direction of writing around: it could make a line read as another one.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\n' => escaped.push_str("&#10;"),
            '\u{fffe}' | '\u{ffff}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => escaped.push('\u{fffd}'),
            c if c.is_control() => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_gets_out_of_an_element_or_an_attribute() {
        let hostile = "</td><script>alert('x')</script> \" onload=\"y\" ]]> &amp; \u{1b}[2J \u{202e}";
        let shown = escape(hostile);
        assert!(!shown.contains(['<', '>', '"', '\'', '\u{1b}', '\u{202e}']), "{shown}");
        assert!(shown.contains("&lt;script&gt;") && shown.contains("&amp;amp;"));
    }
}
