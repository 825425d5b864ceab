//! The state bytes of a test, and error numbers.

use super::Malformed;

/// A state byte. The numbers are iperf3's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i8)]
pub enum State {
    /// Server: the streams are connected, prepare.
    TestStart = 1,
    /// Server: send.
    TestRunning = 2,
    /// Client: the test is over.
    TestEnd = 4,
    /// Server: send the parameters.
    ParamExchange = 9,
    /// Server: connect the streams.
    CreateStreams = 10,
    /// Server: terminating.
    ServerTerminate = 11,
    /// Client: terminating.
    ClientTerminate = 12,
    /// Server: exchange results, client first.
    ExchangeResults = 13,
    /// Server: results sent.
    DisplayResults = 14,
    /// Client: done.
    IperfDone = 16,
    /// Between fullpipe ends: an extension message follows.
    Extension = 64,
    /// Server: busy or access denied.
    AccessDenied = -1,
    /// Server: an error's two numbers follow.
    ServerError = -2,
}

impl State {
    /// Parses a state byte.
    ///
    /// # Errors
    /// If the byte is not a state.
    pub fn parse(byte: u8) -> Result<State, Malformed> {
        use State::*;
        const ALL: [State; 13] = [
            TestStart,
            TestRunning,
            TestEnd,
            ParamExchange,
            CreateStreams,
            ServerTerminate,
            ClientTerminate,
            ExchangeResults,
            DisplayResults,
            IperfDone,
            Extension,
            AccessDenied,
            ServerError,
        ];
        ALL.into_iter()
            .find(|&s| s as i8 == byte as i8)
            .ok_or_else(|| Malformed(format!("byte {byte} is not an iperf3 state")))
    }

    /// The encoded state.
    pub fn byte(self) -> u8 {
        self as i8 as u8
    }
}

/// The reason that follows [`State::ServerError`]: iperf3's error number and `errno`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerError {
    /// One of iperf3's `IE…` numbers.
    pub code: i32,
    /// `errno`, or 0.
    pub errno: i32,
}

impl ServerError {
    /// The requested test is longer than the server allows.
    pub const DURATION: ServerError = ServerError { code: 5, errno: 0 };
    /// More streams than the server allows.
    pub const STREAMS: ServerError = ServerError { code: 6, errno: 0 };
    /// The requested or actual rate exceeds the server's limit.
    pub const TOTAL_RATE: ServerError = ServerError { code: 27, errno: 0 };
    /// The peer violated the protocol.
    pub const MESSAGE: ServerError = ServerError { code: 110, errno: 0 };
    /// The parameters are invalid.
    pub const PARAMS: ServerError = ServerError { code: 114, errno: 0 };
    /// The results are invalid.
    pub const RESULTS: ServerError = ServerError { code: 117, errno: 0 };
    /// The requested controller is not available.
    pub const CONGESTION: ServerError = ServerError { code: 134, errno: 0 };
    /// The client did not prove the secret.
    pub const AUTHENTICATION: ServerError = ServerError { code: 142, errno: 0 };
    /// No data for too long.
    pub const NO_DATA: ServerError = ServerError { code: 144, errno: 0 };
    /// A stream could not be connected in time.
    pub const STREAM_ACCEPT: ServerError = ServerError { code: 204, errno: 0 };
    /// The server's own limit on a test's length ended it.
    pub const DURATION_EXPIRED: ServerError = ServerError { code: 160, errno: 0 };

    /// Parses the eight bytes that follow the state.
    pub fn parse(bytes: [u8; 8]) -> ServerError {
        let [a, b, c, d, e, f, g, h] = bytes;
        ServerError { code: i32::from_be_bytes([a, b, c, d]), errno: i32::from_be_bytes([e, f, g, h]) }
    }

    /// The encoded state.
    pub fn to_bytes(self) -> [u8; 8] {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&self.code.to_be_bytes());
        bytes[4..].copy_from_slice(&self.errno.to_be_bytes());
        bytes
    }

    /// Explains the error number.
    pub fn explain(self) -> String {
        let reason = match self.code {
            5 => "the test is longer than the server allows",
            6 => "more parallel streams than the server allows",
            7 | 20 => "the block size (-l) is not one the server accepts",
            8 => "the socket buffer (-w) is larger than the server allows",
            27 => "the rate is above the server's limit",
            37 => "the test is longer than the server allows",
            106 => "the server did not receive the cookie",
            110 => "the server received an unknown message",
            114 => "the server could not parse the parameters",
            117 => "the server could not parse the results",
            123 => "the server could not set the MSS (-M)",
            124 | 130 | 141 => "the server could not set the socket buffer (-w)",
            134 => "the server could not use that congestion controller (-C)",
            142 => "the server requires a secret (--secret-file), or the secret is wrong",
            144 => "the server received no data for too long",
            160 => "the test took longer than the server allows",
            204 => "the streams did not connect in time",
            205..=208 => "a stream failed",
            _ => "unknown error",
        };
        let errno = if self.errno > 0 {
            format!(" ({})", std::io::Error::from_raw_os_error(self.errno))
        } else {
            String::new()
        };
        format!("{reason}{errno} [iperf3 error {}]", self.code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_round_trip_and_other_bytes_are_refused() {
        let known: Vec<u8> = (0..=255).filter(|&b| State::parse(b).is_ok()).collect();
        assert_eq!(known, [1, 2, 4, 9, 10, 11, 12, 13, 14, 16, 64, 254, 255]);
        for byte in known {
            assert_eq!(State::parse(byte).unwrap().byte(), byte);
        }
    }

    #[test]
    fn errors_round_trip() {
        let error = ServerError { code: 134, errno: 2 };
        assert_eq!(ServerError::parse(error.to_bytes()), error);
        assert!(error.explain().contains("controller") && error.explain().contains("No such file"));
        assert_eq!(ServerError::RESULTS.code, 117);
    }
}
