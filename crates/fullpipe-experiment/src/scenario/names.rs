//! What the name of a controller says about its flow.

/// What the name of a controller in another program begins with: `exec:PROGRAM`.
pub const PROGRAM_PREFIX: &str = "exec:";

/// Whether the controller `cc` runs in another program: `exec:PROGRAM`.
pub fn is_program(cc: &str) -> bool {
    cc.starts_with(PROGRAM_PREFIX)
}

/// Whether a flow of the controller `cc` runs over a QUIC stack: `bbr3@noq`, `noq/bbr3`.
pub fn is_quic(cc: &str) -> bool {
    cc.contains(['@', '/']) && !is_program(cc)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_a_program_is_no_stack() {
        assert!(is_quic("noq/bbr3") && is_quic("bbr3@noq") && !is_quic("bbr3"));
        assert!(is_program("exec:./a/b@c") && !is_quic("exec:./a/b@c") && !is_program("bbr"));
    }
}
