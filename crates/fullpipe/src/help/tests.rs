use super::*;
use fullpipe_testing::files_below;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The verbs that descriptions of commands begin with.
const IMPERATIVES: &[&str] = &[
    "Analyse",
    "Boot",
    "Build",
    "Change",
    "Check",
    "Collect",
    "Compare",
    "Divide",
    "Download",
    "Enable",
    "Estimate",
    "Export",
    "Find",
    "Generate",
    "Install",
    "Keep",
    "List",
    "Load",
    "Measure",
    "Merge",
    "Print",
    "Probe",
    "Record",
    "Replace",
    "Replay",
    "Report",
    "Reproduce",
    "Restore",
    "Roll",
    "Run",
    "Serve",
    "Show",
    "Simulate",
    "Start",
    "Stop",
    "Undo",
    "Unload",
    "Verify",
    "Watch",
    "Write",
];

/// Options of other programs that strings name or pass on, by program.
const OTHER_PROGRAMS: &[(&str, &[&str])] = &[
    ("apt-get and dpkg", &["--configure", "--force-confold", "--no-install-recommends", "--no-remove"]),
    ("bootctl, grub and grubby", &["--clear-once", "--id", "--target"]),
    ("cargo", &["--features", "--release"]),
    ("cargo's test programs", &["--exact", "--ignored", "--nocapture"]),
    (
        "chromium",
        &[
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-dev-shm-usage",
            "--disable-gpu",
            "--disable-sync",
            "--dump-dom",
            "--enable-logging",
            "--headless",
            "--hide-scrollbars",
            "--no-first-run",
            "--no-sandbox",
            "--remote-debugging-pipe",
            "--user-data-dir",
            "--virtual-time-budget",
            "--window-size",
        ],
    ),
    ("cp", &["--preserve"]),
    ("dnf", &["--assumeno", "--available", "--enablerepo", "--setopt", "--showduplicates"]),
    ("docker", &["--privileged", "--security-opt", "--sysctl"]),
    ("modprobe", &["--ignore-install"]),
    ("pacman", &["--needed", "--noconfirm"]),
    ("rpm", &["--import", "--oldpackage", "--qf", "--rebuilddb", "--test"]),
    ("rpmbuild", &["--define"]),
    ("setpriv", &["--pdeathsig"]),
    ("sysctl", &["--load", "--system"]),
    ("systemctl and systemd-run", &["--collect", "--quiet", "--scope"]),
    ("wsl", &["--shutdown", "--update"]),
    ("yum", &["--cleanup-only"]),
    ("zypper", &["--match-exact", "--no-clean-deps", "--no-recommends", "--non-interactive"]),
    ("any", &["--help", "--version"]),
];

/// Calls `visit` with every command of the tree and its name as it is typed.
fn walk(command: &Command, path: &str, visit: &mut dyn FnMut(&str, &Command)) {
    visit(path, command);
    for one in command.get_subcommands() {
        walk(one, &format!("{path} {}", one.get_name()), visit);
    }
}

#[test]
fn every_command_is_described_by_an_imperative_of_at_most_70_characters() {
    let mut wrong = Vec::new();
    walk(&crate::command(), "fullpipe", &mut |path, command| {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        let verb = about.split([' ', ',']).next().unwrap_or_default();
        let is_imperative = IMPERATIVES.contains(&verb);
        if about.chars().count() > 70 || about.ends_with('.') || !is_imperative {
            wrong.push(format!("{path}: {about:?}"));
        }
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_option_has_help_without_a_full_stop() {
    let mut wrong = Vec::new();
    walk(&crate::command(), "fullpipe", &mut |path, command| {
        for arg in command.get_arguments() {
            let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            if help.trim().is_empty() || help.ends_with('.') {
                wrong.push(format!("{path}: {}: {help:?}", arg.get_id()));
            }
        }
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_command_is_in_one_group() {
    let listed: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
    let distinct: BTreeSet<&str> = listed.iter().copied().collect();
    assert_eq!(listed.len(), distinct.len());
    let command = crate::command();
    for one in command.get_subcommands().filter(|one| !one.is_hide_set()) {
        assert!(distinct.contains(one.get_name()), "{} is in no group", one.get_name());
    }
}

#[test]
fn the_command_list_fits_60_lines_of_80_columns() {
    let help = crate::command().render_long_help().to_string();
    assert!(help.lines().count() <= 60, "{help}");
    for line in help.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
}

/// A message that advises an option that does not exist misleads users. Needs all
/// features, so that the tree has all commands.
#[cfg(all(feature = "ebpf", feature = "live", feature = "mesh", feature = "net", feature = "trace"))]
#[test]
fn every_option_named_in_a_string_exists() {
    let others = OTHER_PROGRAMS.iter().flat_map(|(_, options)| options.iter());
    let mut known: BTreeSet<String> = others.map(|&option| option.to_owned()).collect();
    let mut texts = Vec::new();
    let command = crate::command();
    walk(&command, "fullpipe", &mut |path, command| {
        for arg in command.get_arguments() {
            let names = arg.get_long_and_visible_aliases().unwrap_or_default();
            known.extend(names.iter().map(|name| format!("--{name}")));
        }
        texts.push((format!("help of {path}"), command.clone().render_long_help().to_string()));
    });
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for file in sources(crates) {
        let code = std::fs::read_to_string(&file).unwrap();
        let name = file.strip_prefix(crates).unwrap().display().to_string();
        texts.extend(literals(&code).into_iter().map(|text| (name.clone(), text)));
    }
    let mut unknown = BTreeSet::new();
    for (name, text) in &texts {
        let missing = options(text).into_iter().filter(|option| !known.contains(option));
        unknown.extend(missing.map(|option| format!("{name}: {option}")));
    }
    let list = unknown.into_iter().collect::<Vec<_>>().join("\n");
    assert!(
        list.is_empty(),
        "no command has these options (see OTHER_PROGRAMS for those of others):\n{list}"
    );
}

#[test]
fn options_are_found_in_literals_only() {
    let code = r###"
        // --comment "--quoted"
        const A: &str = "use --first-option=1, or a--b and ---";
        const B: &str = r#"raw "--second" text"#; /* "--third" */
        const C: char = '"'; const D: &str = "\"--fourth\" \
            --fifth";
        #[cfg(test)]
        mod tests { const E: &str = "--sixth"; }
    "###;
    let found: Vec<String> = literals(code).iter().flat_map(|text| options(text)).collect();
    assert_eq!(found, ["--first-option", "--second", "--fourth", "--fifth"]);
}

/// The Rust sources of all crates.
fn sources(crates: &Path) -> Vec<PathBuf> {
    let of_crates = std::fs::read_dir(crates).unwrap().map(|entry| entry.unwrap().path().join("src"));
    let files = of_crates.flat_map(|directory| files_below(&directory, "rs"));
    files.filter(|path| path.file_name().is_some_and(|name| name != "tests.rs")).collect()
}

/// The string literals of a source file, without those of its unit tests and comments.
fn literals(code: &str) -> Vec<String> {
    let code = code.split("#[cfg(test)]\n").next().unwrap_or_default();
    let chars: Vec<char> = code.chars().collect();
    let at = |i: usize| chars.get(i).copied().unwrap_or('\0');
    let (mut found, mut i) = (Vec::new(), 0);
    while i < chars.len() {
        match (at(i), at(i + 1)) {
            ('/', '/') => {
                while i < chars.len() && at(i) != '\n' {
                    i += 1;
                }
            }
            ('/', '*') => {
                while i < chars.len() && (at(i), at(i + 1)) != ('*', '/') {
                    i += 1;
                }
                i += 2;
            }
            // A character, not the beginning of a lifetime.
            ('\'', '\\') => i += 4,
            ('\'', _) if at(i + 2) == '\'' => i += 3,
            ('r', '"' | '#') => {
                let hashes = (i + 1..chars.len()).take_while(|&j| at(j) == '#').count();
                if at(i + 1 + hashes) != '"' {
                    i += 1;
                    continue;
                }
                let begin = i + 2 + hashes;
                let is_end = |j: usize| at(j) == '"' && (1..=hashes).all(|k| at(j + k) == '#');
                let end = (begin..chars.len()).find(|&j| is_end(j)).unwrap_or(chars.len());
                found.push(chars[begin..end].iter().collect());
                i = end + 1 + hashes;
            }
            ('"', _) => {
                let begin = i + 1;
                i = begin;
                while i < chars.len() && at(i) != '"' {
                    i += if at(i) == '\\' { 2 } else { 1 };
                }
                found.push(chars[begin..i.min(chars.len())].iter().collect());
                i += 1;
            }
            _ => i += 1,
        }
    }
    found
}

/// The long options that a text names.
fn options(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("--") {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        // Also `\n--option` in a literal, where the letter before belongs to the escape.
        let before = &text[..at];
        let is_escape = before.ends_with("\\n") || before.ends_with("\\t");
        if !is_escape && before.chars().next_back().is_some_and(is_word) {
            continue;
        }
        let name: String =
            text[at + 2..].chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
        // `var(--ink)` and `--ink: #000` are properties of CSS.
        let is_css = before.ends_with("var(") || text[at + 2 + name.len()..].starts_with(':');
        let name = name.trim_end_matches('-');
        if !is_css && name.starts_with(|c: char| c.is_ascii_lowercase()) {
            found.push(format!("--{name}"));
        }
    }
    found
}
