//! The single bytes that move a test from step to step, and the numbers of its errors.

use super::Malformed;

/// A state byte. The numbers are iperf3's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i8)]
pub enum State {
    /// Server: the streams are connected, get ready.
    TestStart = 1,
    /// Server: send.
    TestRunning = 2,
    /// Client: the test is over.
    TestEnd = 4,
    /// Server: tell me what you want.
    ParamExchange = 9,
    /// Server: connect the streams.
    CreateStreams = 10,
    /// Server: I am going away.
    ServerTerminate = 11,
    /// Client: I am going away.
    ClientTerminate = 12,
    /// Server: tell me your results, then I tell mine.
    ExchangeResults = 13,
    /// Server: you have my results.
    DisplayResults = 14,
    /// Client: good bye.
    IperfDone = 16,
    /// Between fullpipe ends: an extension message follows.
    Extension = 64,
    /// Server: not now or not you.
    AccessDenied = -1,
    /// Server: an error's two numbers follow.
    ServerError = -2,
}

impl State {
    /// From the byte received.
    ///
    /// # Errors
    /// On a byte that is no state.
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
            .ok_or_else(|| Malformed(format!("byte {byte} is no state of an iperf3 test")))
    }

    /// As sent.
    pub fn byte(self) -> u8 {
        self as i8 as u8
    }
}

/// The reason that follows [`State::ServerError`]: iperf3's error number and the system's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerError {
    /// One of iperf3's `IE…` numbers.
    pub code: i32,
    /// `errno`, or 0.
    pub errno: i32,
}

impl ServerError {
    /// The test asked for is longer than the server allows.
    pub const DURATION: ServerError = ServerError { code: 5, errno: 0 };
    /// More streams than the server allows.
    pub const STREAMS: ServerError = ServerError { code: 6, errno: 0 };
    /// The rate asked for, or reached, is above what the server allows.
    pub const TOTAL_RATE: ServerError = ServerError { code: 27, errno: 0 };
    /// The peer said something that is not in the protocol.
    pub const MESSAGE: ServerError = ServerError { code: 110, errno: 0 };
    /// The parameters are unreadable or absurd.
    pub const PARAMS: ServerError = ServerError { code: 114, errno: 0 };
    /// The results are unreadable.
    pub const RESULTS: ServerError = ServerError { code: 117, errno: 0 };
    /// The controller asked for cannot be had.
    pub const CONGESTION: ServerError = ServerError { code: 134, errno: 0 };
    /// The client did not prove that it knows the secret.
    pub const AUTHENTICATION: ServerError = ServerError { code: 142, errno: 0 };
    /// No data came for too long.
    pub const NO_DATA: ServerError = ServerError { code: 144, errno: 0 };
    /// A stream could not be connected in time.
    pub const STREAM_ACCEPT: ServerError = ServerError { code: 204, errno: 0 };
    /// The server's own limit on a test's length ended it.
    pub const DURATION_EXPIRED: ServerError = ServerError { code: 160, errno: 0 };

    /// From the eight bytes that follow the state.
    pub fn parse(bytes: [u8; 8]) -> ServerError {
        let [a, b, c, d, e, f, g, h] = bytes;
        ServerError { code: i32::from_be_bytes([a, b, c, d]), errno: i32::from_be_bytes([e, f, g, h]) }
    }

    /// As sent.
    pub fn to_bytes(self) -> [u8; 8] {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&self.code.to_be_bytes());
        bytes[4..].copy_from_slice(&self.errno.to_be_bytes());
        bytes
    }

    /// What the number means, in words of ours.
    pub fn explain(self) -> String {
        let reason = match self.code {
            5 => "the test is longer than the server allows",
            6 => "more parallel streams than the server allows",
            7 | 20 => "the block size (-l) is not one the server accepts",
            8 => "the socket buffer (-w) is larger than the server allows",
            27 => "the rate is above the server's limit",
            37 => "the test is longer than the server allows",
            106 => "the server did not get the cookie",
            110 => "the server got a message it does not know",
            114 => "the server could not read the test's parameters",
            117 => "the server could not read the results",
            123 => "the server could not set the MSS (-M)",
            124 | 130 | 141 => "the server could not set the socket buffer (-w)",
            134 => "the server could not use that congestion controller (-C)",
            142 => "the server wants a secret (--secret), or the one given is wrong",
            144 => "the server received no data for too long",
            160 => "the test took longer than the server allows",
            204 => "the streams did not connect in time",
            205..=208 => "a stream broke",
            _ => "no explanation known",
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
    fn every_state_is_read_back_and_nothing_else_is_one() {
        let known: Vec<u8> = (0..=255).filter(|&b| State::parse(b).is_ok()).collect();
        assert_eq!(known, [1, 2, 4, 9, 10, 11, 12, 13, 14, 16, 64, 254, 255]);
        for byte in known {
            assert_eq!(State::parse(byte).unwrap().byte(), byte);
        }
    }

    #[test]
    fn an_error_crosses_the_wire() {
        let error = ServerError { code: 134, errno: 2 };
        assert_eq!(ServerError::parse(error.to_bytes()), error);
        assert!(error.explain().contains("controller") && error.explain().contains("No such file"));
        assert_eq!(ServerError::RESULTS.code, 117);
    }
}
