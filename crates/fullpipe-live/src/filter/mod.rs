//! Connection filters: the expression language of `ss` (ss(8), ssfilter), extended with controller,
//! process, control group and unit.
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

pub use opening::OpeningStep;

use crate::owner::Owner;
use fullpipe_kernel::tcp_info::State;
use ipnet::IpNet;
use std::fmt::{self, Display, Formatter};
use std::net::SocketAddr;
use std::str::FromStr;

/// A predicate over connections.
#[derive(Clone, PartialEq, Debug)]
pub struct Filter(Expression);

/// The properties of a connection that filters can test.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Local address and port.
    pub local: SocketAddr,
    /// Remote address and port.
    pub remote: SocketAddr,
    /// TCP state.
    pub state: State,
    /// Name of the congestion controller.
    pub controller: Option<&'a str>,
    /// Owning process and control group, as far as known.
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

/// A syntax error in a filter: the position, and what to write instead.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FilterError {
    text: String,
    /// Offset of the offending text, in characters.
    at: usize,
    length: usize,
    reason: String,
    remedy: String,
}

impl std::error::Error for FilterError {}

impl FilterError {
    /// The error in one line, without the marked filter text.
    pub fn one_line(&self) -> String {
        format!("{} (character {}): {}", self.reason, self.at + 1, self.remedy)
    }
}

impl Display for FilterError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let marks = "^".repeat(self.length.max(1));
        write!(f, "invalid filter: {}\n  {}\n  {:3$}{marks}", self.reason, self.text, "", self.at)?;
        write!(f, "\n{}", self.remedy)
    }
}

impl Filter {
    /// Matches every connection.
    pub fn everything() -> Filter {
        Filter(Expression::All(Vec::new()))
    }

    /// Parses a filter; an empty one matches everything.
    ///
    /// # Errors
    /// On a syntax error, with its position and a correction.
    pub fn parse(text: &str) -> Result<Filter, FilterError> {
        parser::parse(text).map(Filter)
    }

    /// Whether a connection matches.
    pub fn matches(&self, subject: &Subject<'_>) -> bool {
        self.0.evaluate(subject)
    }

    /// Whether the filter tests the TCP state.
    pub fn needs_state(&self) -> bool {
        self.0.needs_state()
    }

    /// Whether the filter tests the process or control group, which are expensive to look up.
    pub fn needs_owners(&self) -> bool {
        self.0.needs_owners()
    }
}

impl FromStr for Filter {
    type Err = FilterError;
    fn from_str(text: &str) -> Result<Filter, FilterError> {
        Filter::parse(text)
    }
}
