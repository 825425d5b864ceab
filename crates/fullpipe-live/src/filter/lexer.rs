//! Splits a filter into words and operators with their positions.

/// A word or an operator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Token {
    pub text: String,
    /// Offset of the first character, in characters.
    pub at: usize,
}

const OPERATORS: [&str; 14] = ["&&", "||", "==", "!=", ">=", "<=", "(", ")", "!", "&", "|", "=", ">", "<"];

/// Splits a filter into words and operators. Quotes group words with blanks or operators; an
/// unclosed quote extends to the end.
pub(super) fn tokens(text: &str) -> Vec<Token> {
    let chars: Vec<char> = text.chars().collect();
    let mut tokens = Vec::new();
    let mut at = 0;
    while at < chars.len() {
        let c = chars[at];
        if c.is_whitespace() {
            at += 1;
            continue;
        }
        let operator = OPERATORS
            .iter()
            .find(|operator| operator.chars().enumerate().all(|(i, s)| chars.get(at + i) == Some(&s)));
        let (text, end) = match (operator, c) {
            (Some(operator), _) => ((*operator).to_owned(), at + operator.len()),
            (None, quote @ ('"' | '\'')) => {
                let end = (at + 1..chars.len()).find(|&i| chars[i] == quote).unwrap_or(chars.len());
                (chars[at + 1..end].iter().collect(), (end + 1).min(chars.len()))
            }
            _ => {
                let ends = |c: char| c.is_whitespace() || "()!&|=<>\"'".contains(c);
                let end = (at..chars.len()).find(|&i| ends(chars[i])).unwrap_or(chars.len());
                (chars[at..end].iter().collect(), end)
            }
        };
        tokens.push(Token { text, at });
        at = end;
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::tokens;

    #[test]
    fn operators_need_no_blanks_and_quotes_preserve_them() {
        let texts = |s| tokens(s).into_iter().map(|t| (t.at, t.text)).collect::<Vec<_>>();
        let own =
            |pairs: &[(usize, &str)]| pairs.iter().map(|(a, t)| (*a, (*t).to_owned())).collect::<Vec<_>>();
        assert_eq!(texts("dport>=:443"), own(&[(0, "dport"), (5, ">="), (7, ":443")]));
        assert_eq!(texts("process 'a b' !("), own(&[(0, "process"), (8, "a b"), (14, "!"), (15, "(")]));
        assert_eq!(texts("\"open"), own(&[(0, "open")]));
    }
}
