//! Recursive-descent parser for filters.

use super::lexer::{Token, tokens};
use super::{End, Expression, FilterError, Operator};
use fullpipe_kernel::tcp_info::State;
use ipnet::IpNet;
use std::net::IpAddr;

/// Maximum nesting of brackets and `not`: each level is a recursive call.
const MAX_DEPTH: u32 = 100;

const CONDITIONS: [&str; 11] =
    ["dst", "src", "dport", "sport", "state", "controller", "cc", "process", "pid", "cgroup", "unit"];

/// State names as in `ss`.
const STATES: [(&str, State); 9] = [
    ("established", State::Established),
    ("syn-sent", State::SynSent),
    ("syn-recv", State::SynRecv),
    ("fin-wait-1", State::FinWait1),
    ("fin-wait-2", State::FinWait2),
    ("close-wait", State::CloseWait),
    ("last-ack", State::LastAck),
    ("closing", State::Closing),
    ("closed", State::Close),
];

pub(super) fn parse(text: &str) -> Result<Expression, FilterError> {
    let mut parser = Parser { text, tokens: tokens(text), next: 0, depth: 0 };
    if parser.tokens.is_empty() {
        return Ok(Expression::All(Vec::new()));
    }
    let expression = parser.expression()?;
    match parser.next_token() {
        None => Ok(expression),
        Some(token) => Err(parser.error_at(
            &token,
            "unmatched closing bracket",
            "remove it, or add an opening bracket before it",
        )),
    }
}

struct Parser<'a> {
    text: &'a str,
    tokens: Vec<Token>,
    next: usize,
    depth: u32,
}

impl Parser<'_> {
    fn peek(&self) -> Option<&str> {
        self.tokens.get(self.next).map(|t| t.text.as_str())
    }

    fn next_token(&mut self) -> Option<Token> {
        let token = self.tokens.get(self.next).cloned();
        self.next += usize::from(token.is_some());
        token
    }

    fn accept(&mut self, any: &[&str]) -> bool {
        let found = self.peek().is_some_and(|t| any.contains(&t));
        self.next += usize::from(found);
        found
    }

    fn error(&self, at: usize, length: usize, reason: String, remedy: &str) -> FilterError {
        // Printed in one line whatever the input.
        let text = self.text.replace(|c: char| c.is_control(), " ");
        FilterError { text, at, length, reason, remedy: remedy.to_owned() }
    }

    fn error_at(&self, token: &Token, reason: &str, remedy: &str) -> FilterError {
        self.error(token.at, token.text.chars().count(), reason.to_owned(), remedy)
    }

    fn expect_word(&mut self, expected: &str, example: &str) -> Result<Token, FilterError> {
        self.next_token().ok_or_else(|| {
            let end = self.text.trim_end().chars().count();
            self.error(
                end,
                1,
                format!("expected {expected}, found the end of the filter"),
                &format!("for example: {example}"),
            )
        })
    }

    fn descend(&mut self) -> Result<(), FilterError> {
        self.depth += 1;
        if self.depth <= MAX_DEPTH {
            return Ok(());
        }
        let at = self.tokens.get(self.next).map_or(0, |t| t.at);
        Err(self.error(
            at,
            1,
            format!("more than {MAX_DEPTH} nested brackets and `not`"),
            "simplify the filter",
        ))
    }

    fn expression(&mut self) -> Result<Expression, FilterError> {
        let mut any = vec![self.term()?];
        while self.accept(&["or", "|", "||"]) {
            any.push(self.term()?);
        }
        Ok(if any.len() == 1 { any.remove(0) } else { Expression::Any(any) })
    }

    fn term(&mut self) -> Result<Expression, FilterError> {
        let mut all = vec![self.factor()?];
        loop {
            let and = self.accept(&["and", "&", "&&"]);
            if !and && self.peek().is_none_or(|t| ["or", "|", "||", ")"].contains(&t)) {
                break;
            }
            all.push(self.factor()?);
        }
        Ok(if all.len() == 1 { all.remove(0) } else { Expression::All(all) })
    }

    fn factor(&mut self) -> Result<Expression, FilterError> {
        self.descend()?;
        let expression = if self.accept(&["not", "!"]) {
            Expression::Not(Box::new(self.factor()?))
        } else if self.accept(&["("]) {
            let inner = self.expression()?;
            let close = self.expect_word("a closing bracket", "( dport = :443 )")?;
            if close.text != ")" {
                return Err(self.error_at(&close, "expected a closing bracket", "write `)`"));
            }
            inner
        } else {
            self.condition()?
        };
        self.depth -= 1;
        Ok(expression)
    }

    fn condition(&mut self) -> Result<Expression, FilterError> {
        let name = self.expect_word("a condition", "dport = :443")?;
        let end = if ["dst", "dport"].contains(&name.text.as_str()) { End::Remote } else { End::Local };
        match name.text.as_str() {
            "dst" | "src" => {
                let negated = self.equality()?;
                let value = self.expect_word("an address", "dst 10.0.0.0/8")?;
                let (net, port) =
                    host(&value.text).map_err(|(why, remedy)| self.error_at(&value, &why, remedy))?;
                Ok(negate(negated, Expression::Host { end, net, port }))
            }
            "dport" | "sport" => {
                let operator = self.operator(&name.text)?;
                let value = self.expect_word("a port", "dport = :443")?;
                let port = port(&value.text).map_err(|(why, remedy)| self.error_at(&value, &why, remedy))?;
                Ok(Expression::Port { end, operator, port })
            }
            "state" => {
                let value = self.expect_word("a state", "state established")?;
                let lower = value.text.to_lowercase();
                let state = STATES.iter().find(|(n, _)| *n == lower).ok_or_else(|| {
                    let known: Vec<_> = STATES.iter().map(|(n, _)| *n).collect();
                    self.error_at(&value, "unknown TCP state", &format!("known states: {}", known.join(", ")))
                })?;
                Ok(Expression::State(state.1))
            }
            "pid" => {
                let negated = self.equality()?;
                let value = self.expect_word("a process ID", "pid 4711")?;
                let pid = value.text.parse().map_err(|_| {
                    self.error_at(&value, "not a process ID", "to match a name, write `process NAME`")
                })?;
                Ok(negate(negated, Expression::Pid(pid)))
            }
            text if CONDITIONS.contains(&text) => {
                let negated = self.equality()?;
                let value = self.expect_word("a name", &format!("{text} = {}", example(text)))?.text;
                Ok(negate(
                    negated,
                    match text {
                        "process" => Expression::Process(value),
                        "cgroup" => Expression::Cgroup(value),
                        "unit" => Expression::Unit(value),
                        _ => Expression::Controller(value),
                    },
                ))
            }
            _ => {
                let known = format!(
                    "known conditions: {}; combine them with and, or, not and brackets",
                    CONDITIONS.join(", ")
                );
                Err(self.error_at(&name, "expected a condition", &known))
            }
        }
    }

    /// Parses an optional `=` or `!=`; true for `!=`.
    fn equality(&mut self) -> Result<bool, FilterError> {
        match self.peek().and_then(operator) {
            Some(Operator::Equal) => self.next += 1,
            Some(Operator::NotEqual) => {
                self.next += 1;
                return Ok(true);
            }
            Some(_) => {
                let token = self.expect_word("a value", "dst 10.0.0.0/8")?;
                return Err(self.error_at(&token, "only ports can be compared by order", "write = or !="));
            }
            None => {}
        }
        Ok(false)
    }

    fn operator(&mut self, name: &str) -> Result<Operator, FilterError> {
        match self.peek().and_then(operator) {
            Some(operator) => {
                self.next += 1;
                Ok(operator)
            }
            // `ss` accepts `dport :443` as an equality.
            None if self.peek().is_some_and(|t| t.starts_with(':')) => Ok(Operator::Equal),
            None => {
                let token = self.expect_word("a comparison", &format!("{name} = :443"))?;
                Err(self.error_at(
                    &token,
                    "expected a comparison operator",
                    &format!("for example: {name} = :443"),
                ))
            }
        }
    }
}

fn example(name: &str) -> &'static str {
    match name {
        "process" => "nginx",
        "cgroup" => "/system.slice",
        "unit" => "nginx.service",
        _ => "bbr",
    }
}

fn negate(negated: bool, expression: Expression) -> Expression {
    if negated { Expression::Not(Box::new(expression)) } else { expression }
}

fn operator(text: &str) -> Option<Operator> {
    Some(match text {
        "=" | "==" | "eq" => Operator::Equal,
        "!=" | "ne" | "neq" => Operator::NotEqual,
        ">" | "gt" => Operator::Greater,
        "<" | "lt" => Operator::Less,
        ">=" | "ge" | "geq" => Operator::AtLeast,
        "<=" | "le" | "leq" => Operator::AtMost,
        _ => return None,
    })
}

type Mistake = (String, &'static str);

/// Parses a port number or a service name from /etc/services.
fn port(text: &str) -> Result<u16, Mistake> {
    let text = text.strip_prefix(':').unwrap_or(text);
    match text.parse::<u32>() {
        Ok(port) => u16::try_from(port).map_err(|_| ("port out of range".to_owned(), "ports go up to 65535")),
        Err(_) => service(text).ok_or_else(|| {
            ("neither a port number nor a TCP service in /etc/services".to_owned(), "for example: :443")
        }),
    }
}

fn service(name: &str) -> Option<u16> {
    let services = std::fs::read_to_string("/etc/services").ok()?;
    services.lines().find_map(|line| {
        let mut words = line.split('#').next()?.split_whitespace();
        let (official, at) = (words.next()?, words.next()?);
        let port = at.strip_suffix("/tcp")?.parse().ok()?;
        (official == name || words.any(|alias| alias == name)).then_some(port)
    })
}

/// `ADDRESS`, `ADDRESS/LENGTH`, each with `:PORT`, IPv6 with a port in square brackets, `*` for any
/// address.
fn host(text: &str) -> Result<(Option<IpNet>, Option<u16>), Mistake> {
    let (address, after) = if let Some(rest) = text.strip_prefix('[') {
        rest.split_once(']')
            .ok_or(("unclosed square bracket".to_owned(), "for example: [2001:db8::1]:443"))?
    } else if text.matches(':').count() == 1 {
        let at = text.find(':').unwrap_or(text.len());
        text.split_at(at)
    } else {
        (text, "")
    };
    // Both [2001:db8::]/32:443 and [2001:db8::/32]:443 are accepted.
    let (length, after) = match after.strip_prefix('/') {
        Some(rest) => {
            let end = rest.find(':').unwrap_or(rest.len());
            (Some(&rest[..end]), &rest[end..])
        }
        None => (None, after),
    };
    let port = match after {
        "" => None,
        _ if after.starts_with(':') => Some(after).filter(|p| *p != ":*").map(port).transpose()?,
        _ => {
            return Err(("only a port may follow the address".to_owned(), "for example: [2001:db8::1]:443"));
        }
    };
    if ["", "*"].contains(&address) {
        return Ok((None, port));
    }
    let (address, length) = match (address.split_once('/'), length) {
        (Some((address, length)), None) => (address, Some(length)),
        (_, length) => (address, length),
    };
    let address: IpAddr = address.parse().map_err(|_| {
        (
            "not an address; host names are not resolved".to_owned(),
            "for example: 192.0.2.1, 10.0.0.0/8, [2001:db8::1]:443",
        )
    })?;
    let max = if address.is_ipv4() { 32 } else { 128 };
    let length: u8 = match length {
        None => max,
        Some(length) => length.parse().ok().filter(|l| *l <= max).ok_or_else(|| {
            (format!("prefix length must be between 0 and {max}"), "for example: 10.0.0.0/8")
        })?,
    };
    // IPv4-mapped IPv6 addresses (::ffff:10.0.0.0/104) match IPv4 connections.
    let canonical = address.to_canonical();
    let mapped = canonical.is_ipv4() && address.is_ipv6();
    let net = match length.checked_sub(96).filter(|_| mapped) {
        Some(length) => IpNet::new(canonical, length),
        None => IpNet::new(address, length),
    };
    // The length was validated above.
    Ok((net.ok(), port))
}
