//! The table of connections: columns that fit, order of rows, contents of cells.

use crate::connection::Connection;
use fullpipe_experiment::format_number::significant;
use fullpipe_units::{Rate, Span};
use std::borrow::Borrow;
use std::net::SocketAddr;

/// A column of the table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Column {
    /// Remote address and port.
    Remote,
    /// Payload acknowledged, bit/s.
    Sending,
    /// Name of the congestion controller.
    Controller,
    /// The dominant limit.
    LimitedBy,
    /// Smoothed and minimum round-trip time, ms.
    RoundTrip,
    /// Retransmitted share of the segments.
    Retransmitted,
    /// State of the controller.
    State,
    /// Owning process.
    Process,
    /// Congestion window in segments.
    Cwnd,
    /// Payload received, bit/s.
    Receiving,
    /// The controller's bandwidth estimate, bit/s.
    Bandwidth,
    /// The controller's pacing gain.
    Gain,
    /// The latest delivery-rate sample, bit/s.
    Delivery,
    /// Local address and port.
    Local,
    /// Container or systemd unit.
    Unit,
    /// Time since the connection was first observed.
    Watched,
}

impl Column {
    /// All columns by priority: a narrow terminal shows the first ones.
    const BY_PRIORITY: [Column; 16] = [
        Column::Remote,
        Column::Sending,
        Column::Controller,
        Column::LimitedBy,
        Column::RoundTrip,
        Column::Retransmitted,
        Column::State,
        Column::Process,
        Column::Cwnd,
        Column::Receiving,
        Column::Bandwidth,
        Column::Gain,
        Column::Delivery,
        Column::Local,
        Column::Unit,
        Column::Watched,
    ];

    /// All columns from left to right.
    const LEFT_TO_RIGHT: [Column; 16] = [
        Column::Controller,
        Column::State,
        Column::Local,
        Column::Remote,
        Column::Sending,
        Column::Receiving,
        Column::RoundTrip,
        Column::Retransmitted,
        Column::Cwnd,
        Column::Delivery,
        Column::Bandwidth,
        Column::Gain,
        Column::LimitedBy,
        Column::Watched,
        Column::Process,
        Column::Unit,
    ];

    /// Column heading.
    pub fn heading(self) -> &'static str {
        match self {
            Column::Remote => "remote",
            Column::Sending => "send",
            Column::Controller => "cc",
            Column::LimitedBy => "limited by",
            Column::RoundTrip => "RTT/min ms",
            Column::Retransmitted => "retr",
            Column::State => "state",
            Column::Process => "process",
            Column::Cwnd => "cwnd",
            Column::Receiving => "recv",
            Column::Bandwidth => "bw",
            Column::Gain => "gain",
            Column::Delivery => "deliv.",
            Column::Local => "local",
            Column::Unit => "unit",
            Column::Watched => "age",
        }
    }

    /// Minimum and maximum useful width in characters.
    fn widths(self) -> (u16, u16) {
        match self {
            Column::Remote => (15, 47),
            Column::Local => (15, 47),
            Column::Sending | Column::Receiving | Column::Bandwidth | Column::Delivery => (7, 7),
            Column::Controller => (7, 15),
            Column::LimitedBy => (17, 23),
            Column::RoundTrip => (11, 13),
            Column::Retransmitted => (6, 6),
            Column::State => (7, 15),
            Column::Process => (10, 30),
            Column::Cwnd => (6, 6),
            Column::Gain => (4, 4),
            Column::Unit => (12, 40),
            Column::Watched => (5, 5),
        }
    }

    /// Whether the column is numeric and right-aligned.
    pub fn is_numeric(self) -> bool {
        matches!(
            self,
            Column::Sending
                | Column::Receiving
                | Column::Bandwidth
                | Column::Delivery
                | Column::RoundTrip
                | Column::Retransmitted
                | Column::Cwnd
                | Column::Gain
                | Column::Watched
        )
    }

    /// The cell of a connection, in at most `width` characters.
    pub fn cell(self, connection: &Connection, width: u16) -> String {
        let figures = connection.figures.as_ref();
        let model = connection.model.as_ref();
        let text = match self {
            Column::Remote => return address(connection.remote, width.into()),
            Column::Local => return address(connection.local, width.into()),
            Column::Sending => connection.sending.map(rate),
            Column::Receiving => connection.receiving.map(rate),
            Column::Bandwidth => model.and_then(|b| b.bw).map(rate),
            Column::Delivery => figures.and_then(|f| f.delivery).map(rate),
            Column::Controller => connection.controller.as_deref().map(str::to_owned),
            Column::State => model.and_then(|b| b.state.as_deref()).map(|state| {
                // A narrow column shows the part that distinguishes the states of BBR v3.
                let is_wide = state.chars().count() <= width.into();
                let part = state.strip_prefix("ProbeBW_").filter(|_| !is_wide);
                part.unwrap_or(state).to_owned()
            }),
            Column::LimitedBy => connection.limited_by().map(|most| {
                let name = most.by.name();
                let with_share = format!("{name} {:.0} %", most.share * 100.0);
                if with_share.chars().count() <= width.into() { with_share } else { name.to_owned() }
            }),
            Column::RoundTrip => figures.filter(|f| !f.srtt.is_zero()).map(|f| {
                let min = f.min_rtt.map_or_else(|| "–".to_owned(), ms);
                format!("{}/{min}", ms(f.srtt))
            }),
            Column::Retransmitted => connection.retransmitted.map(percent),
            Column::Cwnd => figures.map(|f| f.cwnd_segments.to_string()),
            Column::Gain => model.and_then(|b| b.pacing_gain).map(|g| format!("{g:.2}")),
            Column::Process => connection.owner.process.as_ref().map(|p| {
                // The PID is needed for commands, so a long name is shortened instead.
                let pid = format!(" ({})", p.pid);
                cut(&p.name, usize::from(width).saturating_sub(pid.chars().count()).max(1)) + &pid
            }),
            Column::Unit => {
                connection.owner.container().or_else(|| connection.owner.unit()).map(str::to_owned)
            }
            Column::Watched => Some(age(connection.watched)),
        };
        cut(&text.unwrap_or_else(|| "–".to_owned()), width.into())
    }
}

/// The columns that fit into `width` characters, separated by blanks, from left to right with their
/// widths.
pub fn layout(width: u16, shown: impl Fn(Column) -> bool) -> Vec<(Column, u16)> {
    let mut chosen = Vec::new();
    let mut left = width.saturating_add(1);
    for column in Column::BY_PRIORITY.into_iter().filter(|c| shown(*c)) {
        let (min, _) = column.widths();
        if min < left {
            left -= min + 1;
            chosen.push(column);
        } else if !chosen.is_empty() {
            // Skipping to a narrower column of lower priority would be confusing.
            break;
        }
    }
    let mut columns: Vec<(Column, u16)> =
        Column::LEFT_TO_RIGHT.into_iter().filter(|c| chosen.contains(c)).map(|c| (c, c.widths().0)).collect();
    // Distribute the remaining width by priority, so that an IPv6 address is not cut beside an empty
    // column.
    for (column, max) in
        [(Column::Remote, 21), (Column::LimitedBy, 23), (Column::State, 14), (Column::Process, 20)]
            .into_iter()
            .chain(Column::BY_PRIORITY.into_iter().map(|c| (c, c.widths().1)))
    {
        if let Some((_, width)) = columns.iter_mut().find(|(c, _)| *c == column) {
            let more = max.saturating_sub(*width).min(left);
            *width += more;
            left -= more;
        }
    }
    columns
}

/// Sort order of the rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Order {
    /// Sending plus receiving rate.
    #[default]
    Rate,
    /// Smoothed round-trip time.
    RoundTrip,
    /// Queueing delay.
    Queueing,
    /// Retransmitted share.
    Retransmitted,
    /// Congestion window.
    Cwnd,
    /// Time since the connection was first observed.
    Age,
}

impl Order {
    /// All orders, as cycled through by a key.
    pub const ALL: [Order; 6] =
        [Order::Rate, Order::RoundTrip, Order::Queueing, Order::Retransmitted, Order::Cwnd, Order::Age];

    /// Display name.
    pub fn name(self) -> &'static str {
        match self {
            Order::Rate => "rate",
            Order::RoundTrip => "RTT",
            Order::Queueing => "queueing",
            Order::Retransmitted => "retransmissions",
            Order::Cwnd => "cwnd",
            Order::Age => "age",
        }
    }

    /// The next order in the cycle.
    pub fn next(self) -> Order {
        let at = Order::ALL.iter().position(|o| *o == self).unwrap_or(0);
        Order::ALL[(at + 1) % Order::ALL.len()]
    }

    fn value(self, c: &Connection) -> f64 {
        let bps = |r: Option<Rate>| r.map_or(0.0, Rate::as_bits_per_sec_f64);
        let figures = c.figures.as_ref();
        match self {
            Order::Rate => bps(c.sending) + bps(c.receiving),
            Order::RoundTrip => figures.map_or(0.0, |f| f.srtt.as_millis_f64()),
            Order::Queueing => c.queueing().map_or(0.0, Span::as_millis_f64),
            Order::Retransmitted => c.retransmitted.unwrap_or(0.0),
            Order::Cwnd => figures.map_or(0.0, |f| f64::from(f.cwnd_segments)),
            Order::Age => c.watched.as_secs_f64(),
        }
    }

    /// Sorts connections, largest value first, ties by socket cookie.
    pub fn sort<C: Borrow<Connection>>(self, connections: &mut [C], reversed: bool) {
        connections.sort_unstable_by(|a, b| {
            let (a, b) = (a.borrow(), b.borrow());
            let order = self.value(b).total_cmp(&self.value(a));
            let order = if reversed { order.reverse() } else { order };
            order.then(a.cookie.cmp(&b.cookie))
        });
    }
}

/// A rate in bit/s, abbreviated: `95.2M`.
pub fn rate(rate: Rate) -> String {
    let bps = rate.as_bits_per_sec_f64();
    let (size, unit) = match bps {
        x if x >= 0.9995e9 => (1e9, "G"),
        x if x >= 0.9995e6 => (1e6, "M"),
        x if x >= 0.9995e3 => (1e3, "k"),
        _ => (1.0, ""),
    };
    format!("{}{unit}", significant(bps / size, 3))
}

/// Milliseconds, abbreviated; two decimals below one.
pub fn ms(span: Span) -> String {
    match span.as_millis_f64() {
        ms if ms < 1.0 => format!("{ms:.2}"),
        ms => significant(ms, 3),
    }
}

/// A share as a percentage, abbreviated: `1.2%`.
pub fn percent(share: f64) -> String {
    match share * 100.0 {
        0.0 => "0".to_owned(),
        p if p < 0.1 => "<0.1%".to_owned(),
        p => format!("{}%", significant(p, 2)),
    }
}

fn age(span: Span) -> String {
    let s = span.as_nanos() / 1_000_000_000;
    match s {
        0..=99 => format!("{s}s"),
        100..=5999 => format!("{}m", s / 60),
        6000..=359_999 => format!("{}h", s / 3600),
        _ => format!("{}d", s / 86_400),
    }
}

/// An address in at most `width` characters; if it does not fit, its middle is elided and its port
/// kept.
fn address(address: SocketAddr, width: usize) -> String {
    let text = address.to_string();
    if text.len() <= width {
        return text;
    }
    let port = text.rfind(':').map_or(0, |at| text.len() - at);
    let head = width.saturating_sub(port + 1);
    format!("{}…{}", &text[..head.min(text.len())], &text[text.len() - port.min(text.len())..])
}

/// Text in at most `width` characters.
pub(crate) fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(width.saturating_sub(1)).collect();
    short.push('…');
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priority_columns_fit_in_80_columns_and_tables_fit_the_terminal() {
        let has = |width: u16, column| layout(width, |_| true).iter().any(|(c, _)| *c == column);
        for column in
            [Column::Controller, Column::State, Column::Remote, Column::LimitedBy, Column::RoundTrip]
        {
            assert!(has(80, column), "{column:?}");
        }
        assert!(has(200, Column::Process) && has(200, Column::Bandwidth) && has(200, Column::Unit));
        for width in 0..400 {
            let columns = layout(width, |_| true);
            let all: u16 = columns.iter().map(|(_, w)| w + 1).sum();
            assert!(all <= width + 1, "{width}: {columns:?}");
        }
        assert!(layout(80, |c| c != Column::State).iter().all(|(c, _)| *c != Column::State));
    }

    #[test]
    fn long_addresses_keep_prefix_and_port() {
        let v6 = "[2001:db8:aaaa:bbbb:cccc:dddd:eeee:ffff]:50000".parse().unwrap();
        assert_eq!(address(v6, 20), "[2001:db8:aaa…:50000");
        assert_eq!(address("192.0.2.1:80".parse().unwrap(), 15), "192.0.2.1:80");
        for width in 0..60 {
            assert!(address(v6, width).chars().count() <= width.max(7), "{width}");
        }
    }

    #[test]
    fn numbers_are_abbreviated() {
        assert_eq!(rate(Rate::from_bits_per_sec(95_234_000)), "95.2M");
        assert_eq!(rate(Rate::from_bits_per_sec(999_600_000)), "1.00G");
        assert_eq!(
            (percent(0.0), percent(0.0004), percent(0.0123)),
            ("0".into(), "<0.1%".into(), "1.2%".into())
        );
        assert_eq!((age(Span::from_secs(99)), age(Span::from_secs(7200))), ("99s".into(), "2h".into()));
    }
}
