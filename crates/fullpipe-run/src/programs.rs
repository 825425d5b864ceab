//! `exec:PROGRAM`: a program and its arguments, as the name of a controller.

use crate::Engine;
use fullpipe_experiment::scenario::{Fault, PROGRAM_PREFIX, is_program};

/// Splits `NAME:KEY=VALUE,…` at its first colon; `exec:PROGRAM` has no settings.
pub fn split_settings(text: &str) -> (&str, &str) {
    match text.split_once(':') {
        Some(split) if !is_program(text) => split,
        _ => (text, ""),
    }
}

/// `name` without the blanks around the program; `None` if it names no program.
pub(crate) fn canonical(name: &str) -> Option<String> {
    name.strip_prefix(PROGRAM_PREFIX).map(|text| format!("{PROGRAM_PREFIX}{}", text.trim()))
}

/// Checks that `engines` can run the program `name`.
pub(crate) fn check(name: &str, engines: &[Engine]) -> Result<(), Fault> {
    Command::parse(name)?;
    let shown = name.escape_debug();
    if engines.iter().any(|&engine| engine != Engine::Sim) {
        let reason = format!("`{shown}` controls simulated flows, but the lab measures the kernel's TCP");
        return Err(Fault::new("cc", reason).help("use the simulator: omit `--engine`"));
    }
    if cfg!(all(feature = "exec", target_os = "linux")) {
        return Ok(());
    }
    let reason = format!("`{shown}` starts a program, which only the program `fullpipe` on Linux can");
    Err(Fault::new("cc", reason).help("use `fullpipe race` or `fullpipe conformance`"))
}

/// A program with its arguments.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Command {
    /// A path, or the name of a program in `PATH`.
    pub program: String,
    /// Its arguments.
    pub arguments: Vec<String>,
}

impl Command {
    /// Parses a name: `exec:` and words separated by blanks. Single or double quotes keep blanks in
    /// a word; no character has a meaning inside them. No shell is involved.
    ///
    /// # Errors
    /// A name without a program, with an open quote, or with control characters.
    pub fn parse(name: &str) -> Result<Command, Fault> {
        let fault = |reason: &str| {
            Fault::new("cc", format!("`{}`: {reason}", name.escape_debug()))
                .help("write `exec:PROGRAM`, in quotes with arguments: `'exec:python3 mycc.py'`")
        };
        let text = name.strip_prefix(PROGRAM_PREFIX).ok_or_else(|| fault("not a program"))?;
        if text.chars().any(|c| c.is_control() && c != '\t') {
            return Err(fault("control characters in a command"));
        }
        let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
        for c in text.chars() {
            match quote {
                Some(open) if c == open => quote = None,
                None if c == '\'' || c == '"' => {
                    quote = Some(c);
                    word.get_or_insert_default();
                }
                None if c == ' ' || c == '\t' => words.extend(word.take()),
                _ => word.get_or_insert_default().push(c),
            }
        }
        if let Some(open) = quote {
            return Err(fault(&format!("no second {open}")));
        }
        words.extend(word);
        let mut words = words.into_iter();
        match words.next() {
            Some(program) if !program.is_empty() => Ok(Command { program, arguments: words.collect() }),
            _ => Err(fault("no program after the colon")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_separated_by_blanks_and_quotes_keep_them() {
        let words = |text: &str| {
            let command = Command::parse(text).unwrap();
            [vec![command.program], command.arguments].concat()
        };
        assert_eq!(words("exec:./mycc"), ["./mycc"]);
        assert_eq!(words("exec:  python3 my.py\t--beta=0.5 "), ["python3", "my.py", "--beta=0.5"]);
        assert_eq!(
            words(r#"exec:'./my cc' "it's" a"b c"d '' $HOME;\n"#),
            ["./my cc", "it's", "ab cd", "", "$HOME;\\n"]
        );
    }

    #[test]
    fn names_without_a_program_are_refused() {
        for (name, part) in [
            ("exec:", "no program"),
            ("exec:  ", "no program"),
            ("exec:''", "no program"),
            ("exec:./a 'b", "no second '"),
            ("exec:./a\nb", "control characters"),
        ] {
            let fault = Command::parse(name).unwrap_err();
            assert!(fault.reason.contains(part) && !fault.reason.contains('\n'), "{}", fault.reason);
        }
    }
}
