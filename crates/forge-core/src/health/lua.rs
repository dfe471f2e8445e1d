//! The words of a Lua script. Not a parser: enough to know whether a script says anything, answers, and what it asks for.

/// A piece of a script. Comments, texts and white space are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token<'s> {
    /// A name or a keyword.
    Word(&'s str),
    /// `..`, which joins texts, or `...`.
    Dots,
    /// Any other character.
    Sign(char),
}

/// The pieces of a script, in order.
pub(super) fn tokens(text: &str) -> Tokens<'_> {
    Tokens { rest: text }
}

/// See [`tokens`].
pub(super) struct Tokens<'s> {
    rest: &'s str,
}

impl<'s> Iterator for Tokens<'s> {
    type Item = Token<'s>;

    fn next(&mut self) -> Option<Token<'s>> {
        loop {
            self.rest = self.rest.trim_start();
            if let Some(comment) = self.rest.strip_prefix("--") {
                let line = || comment.split_once('\n').map_or("", |(_, rest)| rest);
                self.rest = after_long(comment).unwrap_or_else(line);
                continue;
            }
            if let Some(rest) = after_long(self.rest) {
                self.rest = rest;
                continue;
            }
            let first = self.rest.chars().next()?;
            if matches!(first, '"' | '\'') {
                self.rest = after_quoted(self.rest, first);
                continue;
            }
            if first.is_ascii_alphabetic() || first == '_' {
                let end = self.rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(self.rest.len());
                let (word, rest) = self.rest.split_at(end);
                self.rest = rest;
                return Some(Token::Word(word));
            }
            if let Some(rest) = self.rest.strip_prefix("..") {
                self.rest = rest.strip_prefix('.').unwrap_or(rest);
                return Some(Token::Dots);
            }
            self.rest = self.rest.strip_prefix(first).unwrap_or_default();
            return Some(Token::Sign(first));
        }
    }
}

/// What comes after the long bracket that begins here (`[[ … ]]`, `[==[ … ]==]`); nothing if none does.
fn after_long(text: &str) -> Option<&str> {
    let opened = text.strip_prefix('[')?;
    let body = opened.trim_start_matches('=');
    let level = opened.len() - body.len();
    let body = body.strip_prefix('[')?;
    let closing = format!("]{}]", "=".repeat(level));
    Some(body.split_once(closing.as_str()).map_or("", |(_, rest)| rest))
}

/// What comes after the text that begins here. One that is not closed ends with its line.
fn after_quoted(text: &str, quote: char) -> &str {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if c == quote || c == '\n' {
            return text.get(at + c.len_utf8()..).unwrap_or_default();
        }
    }
    ""
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<&str> {
        let word = |token| match token {
            Token::Word(word) => Some(word),
            Token::Dots | Token::Sign(_) => None,
        };
        tokens(text).filter_map(word).collect()
    }

    #[test]
    fn comments_and_texts_hold_no_words() {
        assert_eq!(words("-- return\nlocal a -- b\n--[[ c\nd ]] e --[==[ f ]] g ]==] h"), ["local", "a", "e", "h"]);
        assert_eq!(words("a = \"return \\\" x\" .. 'y\\'' .. [[z]] .. [=[ ]] ]=] .. b"), ["a", "b"]);
        assert_eq!(words("a = t[b[1]] --"), ["a", "t", "b"]);
        assert_eq!(words("a = \"not closed\nb = 'also\\"), ["a", "b"]);
        assert!(words("--[[ never closed return").is_empty() && words("").is_empty() && words("é ß").is_empty());
    }

    #[test]
    fn joining_texts_is_not_reaching_into_a_table() {
        let all: Vec<_> = tokens("x..y.z").collect();
        let expected = [Token::Word("x"), Token::Dots, Token::Word("y"), Token::Sign('.'), Token::Word("z")];
        assert_eq!(all, expected);
    }
}
