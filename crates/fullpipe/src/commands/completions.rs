//! `fullpipe completions`: for the shell.

use crate::failure::Failure;
use crate::print::print;

/// Print the completion script for a shell.
///
/// For example: `fullpipe completions bash > /etc/bash_completion.d/fullpipe`.
#[derive(clap::Args)]
pub struct Args {
    /// Which shell.
    #[arg(value_enum)]
    shell: clap_complete::Shell,
}

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut crate::command(), "fullpipe", &mut script);
        print(script)
    }
}
