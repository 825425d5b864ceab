//! The rows that engines write, with one field per column.

use super::column;

macro_rules! row {
    ($(#[$doc:meta])* $Row:ident { $($field:ident: $column:ident,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Debug)]
        #[allow(missing_docs, reason = "each field is the column of its name")]
        pub struct $Row { $(pub $field: f64,)+ }

        impl $Row {
            /// The names of its columns, in the order of its fields.
            pub const COLUMNS: [&'static str; [$(stringify!($field)),+].len()] = [$(column::$column),+];

            /// The fields in their order.
            pub fn values(&self) -> [f64; $Row::COLUMNS.len()] {
                [$(self.$field),+]
            }
        }

        impl Default for $Row {
            /// All NaN.
            fn default() -> Self {
                $Row { $($field: f64::NAN),+ }
            }
        }
    };
}

row! {
    /// A sample of a flow; NaN where a value is not available. The columns are documented in
    /// [`mod@column`].
    FlowRow {
        goodput_bps: GOODPUT_BPS,
        rtt_ms: RTT_MS,
        srtt_ms: SRTT_MS,
        min_rtt_ms: MIN_RTT_MS,
        inflight_bytes: INFLIGHT_BYTES,
        cwnd_bytes: CWND_BYTES,
        ssthresh_bytes: SSTHRESH_BYTES,
        pacing_bps: PACING_BPS,
        bw_bps: BW_BPS,
        max_bw_bps: MAX_BW_BPS,
        bw_shortterm_bps: BW_SHORTTERM_BPS,
        delivery_rate_bps: DELIVERY_RATE_BPS,
        pacing_gain: PACING_GAIN,
        cwnd_gain: CWND_GAIN,
        inflight_longterm_bytes: INFLIGHT_LONGTERM_BYTES,
        inflight_shortterm_bytes: INFLIGHT_SHORTTERM_BYTES,
        delivered_bytes: DELIVERED_BYTES,
        sent_packets: SENT_PACKETS,
        retransmitted_packets: RETRANSMITTED_PACKETS,
        lost_packets: LOST_PACKETS,
        rounds: ROUNDS,
    }
}

row! {
    /// A sample of a link; NaN where a value is not available.
    LinkRow {
        queue_bytes: QUEUE_BYTES,
        rate_bps: RATE_BPS,
        dropped_packets: DROPPED_PACKETS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_fields_map_to_the_columns_of_their_names() {
        let row = FlowRow { cwnd_bytes: 7.0, rounds: 3.0, ..FlowRow::default() };
        let values = row.values();
        let named = |name: &str| values[FlowRow::COLUMNS.iter().position(|c| *c == name).unwrap()];
        assert_eq!((named(column::CWND_BYTES), named(column::ROUNDS)), (7.0, 3.0));
        assert_eq!(values.iter().filter(|v| v.is_nan()).count(), FlowRow::COLUMNS.len() - 2);
        assert_eq!(LinkRow::COLUMNS, [column::QUEUE_BYTES, column::RATE_BPS, column::DROPPED_PACKETS]);
    }
}
