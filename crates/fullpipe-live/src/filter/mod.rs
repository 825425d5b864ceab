//! Which connections: the language of `ss` for sockets (ss(8), "EXPRESSION" of ssfilter), with words for what else is
//! known here.
//!
//! ```text
//! EXPRESSION = TERM { (or | '|' | '||') TERM }
//! TERM       = FACTOR { [and | '&' | '&&'] FACTOR }
//! FACTOR     = (not | '!') FACTOR | '(' EXPRESSION ')' | CONDITION
//! CONDITION  = (dst | src) [=|!=] ADDRESS[/LENGTH][:PORT]
//!            | (dport | sport) OPERATOR [:]PORT
//!            | state NAME
//!            | (controller | cc) [=|!=] NAME
//!            | process [=|!=] NAME | pid [=|!=] NUMBER
//!            | cgroup [=|!=] PATH | unit [=|!=] NAME
//! OPERATOR   = (= | == | eq) | (!= | ne | neq) | (> | gt) | (< | lt) | (>= | ge | geq) | (<= | le | leq)
//! ```

mod lexer;
mod matching;
mod opening;
mod parser;

pub use opening::Opening;

use crate::owner::Owner;
use fullpipe_kernel::tcp_info::State;
use ipnet::IpNet;
use std::fmt::{self, Display, Formatter};
use std::net::SocketAddr;
use std::str::FromStr;

/// Which connections are wanted.
#[derive(Clone, PartialEq, Debug)]
pub struct Filter(Expression);

/// What is asked of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Its own end.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// Of the connection.
    pub state: State,
    /// Its controller's name.
    pub controller: Option<&'a str>,
    /// Who holds it, as far as it is known.
    pub owner: &'a Owner,
}

#[derive(Clone, PartialEq, Debug)]
enum Expression {
    All(Vec<Expression>),
    Any(Vec<Expression>),
    Not(Box<Expression>),
    Host { end: End, net: Option<IpNet>, port: Option<u16> },
    Port { end: End, operator: Operator, port: u16 },
    State(State),
    Controller(String),
    Process(String),
    Pid(u32),
    Cgroup(String),
    Unit(String),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Local,
    Remote,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Operator {
    Equal,
    NotEqual,
    Greater,
    Less,
    AtLeast,
    AtMost,
}

/// Why a filter could not be read: where, and what to write instead.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FilterError {
    text: String,
    /// The first character in question, counted in characters.
    at: usize,
    length: usize,
    reason: String,
    remedy: String,
}

impl std::error::Error for FilterError {}

impl FilterError {
    /// In one line, where there is no room for the place.
    pub fn in_short(&self) -> String {
        format!("{} (character {}): {}", self.reason, self.at + 1, self.remedy)
    }
}

impl Display for FilterError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let marks = "^".repeat(self.length.max(1));
        write!(
            f,
            "the filter cannot be read: {}\n  {}\n  {:3$}{marks}",
            self.reason, self.text, "", self.at
        )?;
        write!(f, "\n{}", self.remedy)
    }
}

impl Filter {
    /// Takes every connection.
    pub fn everything() -> Filter {
        Filter(Expression::All(Vec::new()))
    }

    /// Reads a filter; an empty one takes everything.
    ///
    /// # Errors
    /// When it is not in the language: with the place and what could stand there.
    pub fn parse(text: &str) -> Result<Filter, FilterError> {
        parser::parse(text).map(Filter)
    }

    /// Whether a connection is wanted.
    pub fn wants(&self, subject: &Subject<'_>) -> bool {
        self.0.holds(subject)
    }

    /// Whether the answer hangs on the connection's state.
    pub fn asks_for_state(&self) -> bool {
        self.0.asks_for_state()
    }

    /// Whether the answer hangs on the process or control group, which cost more to find out.
    pub fn asks_for_owners(&self) -> bool {
        self.0.asks_for_owners()
    }
}

impl FromStr for Filter {
    type Err = FilterError;
    fn from_str(text: &str) -> Result<Filter, FilterError> {
        Filter::parse(text)
    }
}
