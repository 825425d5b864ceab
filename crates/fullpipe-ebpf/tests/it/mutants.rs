//! Would the recorded corpus show a mistake in the cores of BBR v1? Every condition, sum and
//! constant of the C core and of the Rust core is changed in turn, and the changed core must leave
//! something else than the kernel did in at least one record. What survives is argued, one by one,
//! in docs/evidence/bbr1-mutants.md.
//!
//! All mutants of a core are compiled at once: each line becomes a choice between itself and its
//! mutants by a number that the program is given.

use crate::corpus_files::{have, raw};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What is written, and what instead. A constant's name is followed by one more or less, too.
const RULES: [(&str, &str); 26] = [
    (" < ", " <= "),
    (" <= ", " < "),
    (" > ", " >= "),
    (" >= ", " > "),
    (" == ", " != "),
    (" != ", " == "),
    (" && ", " || "),
    (" || ", " && "),
    (" + ", " - "),
    (" - ", " + "),
    (" = 0;", " = 1;"),
    (" = 1;", " = 0;"),
    (" = true;", " = false;"),
    (" = false;", " = true;"),
    ("++;", "--;"),
    ("fp_max32(", "fp_min32("),
    ("fp_min32(", "fp_max32("),
    ("fp_max64(", "fp_min64("),
    ("fp_min64(", "fp_max64("),
    (".max(", ".min("),
    (".min(", ".max("),
    ("wrapping_add(", "wrapping_sub("),
    ("wrapping_sub(", "wrapping_add("),
    ("fp_after(", "!fp_before("),
    ("if (!", "if ("),
    ("0x7f", "0x3f"),
];

#[derive(Clone, Copy, PartialEq)]
enum Language {
    C,
    Rust,
}

/// A line of the core, changed.
struct Mutant {
    file: String,
    original: String,
    changed: String,
}

/// The lines of a source file, with what goes on over several lines joined.
fn logical_lines(language: Language, source: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut open = 0;
    for line in source.lines() {
        let code = line.trim();
        let is_comment = code.starts_with("//") || code.starts_with("/*") || code.starts_with('*');
        let goes_on = language == Language::Rust
            && [".", "&& ", "|| ", "+ ", "- ", ">> "].iter().any(|with| code.starts_with(with));
        match lines.last_mut() {
            Some(last) if !is_comment && (open > 0 || (goes_on && !last.trim().starts_with("//"))) => {
                last.push(' ');
                last.push_str(code);
            }
            _ => lines.push(line.to_owned()),
        }
        if !is_comment {
            let count = |c| code.matches(c).count() as i32;
            open = (open + count('(') - count(')')).max(0);
        }
    }
    lines
}

/// Everything that the rules make of a line.
fn changes(line: &str) -> Vec<String> {
    let mut all = Vec::new();
    for (from, to) in RULES {
        for (at, _) in line.match_indices(from) {
            all.push(format!("{}{to}{}", &line[..at], &line[at + from.len()..]));
        }
    }
    // Constants: words of capitals. Types and one-letter names are not.
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut at = 0;
    while let Some(start) = line[at..].find(|c: char| c.is_ascii_uppercase()).map(|start| at + start) {
        let end = line[start..].find(|c| !is_word(c)).map_or(line.len(), |length| start + length);
        let name = &line[start..end];
        let begins = !line[..start].ends_with(is_word) && !line[..start].ends_with(':');
        let is_constant = name.len() > 3 && !name.contains(|c: char| c.is_ascii_lowercase());
        // A mode or callback has a name, not a size.
        let counts = ![
            "STARTUP",
            "DRAIN",
            "PROBE_BW",
            "PROBE_RTT",
            "FP_OP_",
            "FP_CA_",
            "SCALE",
            "FLAG",
            "FP_RS",
            "CA_",
        ]
        .iter()
        .any(|part| {
            name.strip_prefix("BBR1_").unwrap_or(name).starts_with(part)
                && !name.ends_with("CWND")
                && !name.ends_with("_MS")
        });
        if begins && is_constant && counts && !line[end..].starts_with("::") {
            for by in ["+ 1", "- 1"] {
                all.push(format!("{}({name} {by}){}", &line[..start], &line[end..]));
            }
        }
        at = end;
    }
    all
}

/// A line as what stands before its expression, the expression, and what stands behind.
fn parts(language: Language, line: &str) -> Option<(String, String, String)> {
    let indent = &line[..line.len() - line.trim_start().len()];
    let code = line.trim();
    let whole = |prefix: &str, suffix: &str| {
        let inner = code.strip_prefix(prefix)?.strip_suffix(suffix)?;
        Some((format!("{indent}{prefix}"), inner.to_owned(), suffix.to_owned()))
    };
    if language == Language::C {
        for (prefix, suffix) in
            [("if (", ") {"), ("if (", ")"), ("} else if (", ") {"), ("else if (", ")"), ("return ", ";")]
        {
            if let Some(found) = whole(prefix, suffix) {
                return Some(found);
            }
        }
        for kind in ["u32", "u64", "s32", "int"] {
            if let Some(rest) = code.strip_prefix(&format!("{kind} "))
                && let Some((name, value)) = rest.strip_suffix(';')?.split_once(" = ")
                && !value.contains(", ")
                && !name.contains(',')
            {
                return Some((format!("{indent}{kind} {name} = "), value.to_owned(), ";".to_owned()));
            }
        }
        return None;
    }
    for prefix in ["} else if ", "if "] {
        if let Some(found) = whole(prefix, " {")
            && !found.1.contains("let ")
        {
            return Some(found);
        }
    }
    if let Some(found) = whole("return ", ";") {
        return Some(found);
    }
    let (pattern, value) = code.strip_prefix("let ")?.strip_suffix(';')?.split_once(" = ")?;
    Some((format!("{indent}let {pattern} = "), value.to_owned(), ";".to_owned()))
}

/// A line that is a statement or the value of a block by itself.
fn stands_alone(language: Language, before: &str, line: &str, after: &str) -> bool {
    let code = line.trim();
    let simple = [
        "let ", "use ", "pub ", "const ", "fn ", "return", "#", "}", "case ", "u32 ", "u64 ", "s32 ", "int ",
        "struct ",
    ];
    if simple.iter().any(|with| code.starts_with(with)) || code.contains("=>") {
        return false;
    }
    let begins = before.trim().ends_with([';', '{', '}', ')', ':']) || before.trim().ends_with("*/");
    if code.ends_with(';') {
        return begins && code.matches('{').count() == code.matches('}').count();
    }
    let is_value = language == Language::Rust
        && (code.starts_with("if ") && code.ends_with('}') || !code.ends_with(['{', '}', ',', '|']));
    is_value && before.trim().ends_with([';', '{', '}']) && after.trim() == "}"
}

/// A line that is itself, or one of its mutants by their numbers from `first` on.
fn choice(language: Language, lines: [&str; 3], mutants: &[String], first: usize) -> Option<String> {
    let [before, line, after] = lines;
    let nest = |of: &dyn Fn(&str) -> String, original: &str| {
        let mut text = String::new();
        for (at, mutant) in mutants.iter().enumerate() {
            let number = first + at;
            text += &match language {
                Language::C => format!("fp_is({number}) ? ({}) : ", of(mutant)),
                Language::Rust => format!("if crate::is_mutant({number}) {{ {} }} else ", of(mutant)),
            };
        }
        match language {
            Language::C => format!("{text}({original})"),
            Language::Rust => format!("({text}{{ {original} }})"),
        }
    };
    if let Some((prefix, expression, suffix)) = parts(language, line) {
        let all = mutants
            .iter()
            .all(|mutant| parts(language, mutant).is_some_and(|(p, _, s)| p == prefix && s == suffix));
        return all.then(|| {
            let of = |mutant: &str| {
                parts(language, mutant).map(|(_, expression, _)| expression).unwrap_or_default()
            };
            format!("{prefix}{}{suffix}", nest(&of, &expression))
        });
    }
    if !stands_alone(language, before, line, after) {
        return None;
    }
    let mut text = String::from("{ ");
    for (at, mutant) in mutants.iter().enumerate() {
        text += &match language {
            Language::C => format!("if (fp_is({})) {{ {} }} else ", first + at, mutant.trim()),
            Language::Rust => format!("if crate::is_mutant({}) {{ {} }} else ", first + at, mutant.trim()),
        };
    }
    Some(format!("{text}{{ {} }} }}", line.trim()))
}

/// A source file in which each line may be chosen to be one of its mutants; those are added to
/// `mutants`. `skip` has the numbers of the lines to leave as they are.
fn mutated(
    language: Language,
    file: &str,
    source: &str,
    skip: &BTreeSet<usize>,
    mutants: &mut Vec<Mutant>,
) -> String {
    let code = source.split_once("#[cfg(test)]").map_or(source, |(code, _tests)| code);
    let lines = logical_lines(language, code);
    let mut text = String::new();
    // Not the kernel's: the NULL checks that the verifier wants, and guards against dividing by zero.
    // And what only moves words to and fro is seen by every record.
    let left_alone = ["if (!c)", "if (!interval_us)", "switch", "for ", "p->", "s->"];
    for (number, line) in lines.iter().enumerate() {
        let trimmed = line.trim();
        let is_code =
            !trimmed.starts_with(['/', '*', '#']) && !left_alone.iter().any(|with| trimmed.starts_with(with));
        let changes = if is_code && !skip.contains(&number) { changes(line) } else { Vec::new() };
        let before =
            lines[..number].iter().rev().find(|line| !line.trim().is_empty()).map_or("", String::as_str);
        let after =
            lines[number + 1..].iter().find(|line| !line.trim().is_empty()).map_or("", String::as_str);
        let chosen = if changes.is_empty() {
            None
        } else {
            choice(language, [before, line, after], &changes, mutants.len() + 1)
        };
        if let Some(chosen) = chosen {
            let of = |changed: String| Mutant {
                file: file.to_owned(),
                original: trimmed.to_owned(),
                changed: changed.trim().to_owned(),
            };
            mutants.extend(changes.into_iter().map(of));
            text += &chosen;
        } else {
            text += line;
        }
        text.push('\n');
    }
    text
}

/// The files of a core: where its mutants are compiled, and how.
struct Core {
    language: Language,
    /// The files that are changed, and where they are.
    files: Vec<(String, PathBuf)>,
    /// Where their changed copies go.
    copies: PathBuf,
}

/// Writes and compiles a core with its mutants; lines that do not compile are left as they are.
fn compile(core: &Core, command: &dyn Fn() -> Command) -> Vec<Mutant> {
    let mut skip = vec![BTreeSet::new(); core.files.len()];
    for _ in 0..8 {
        let mut mutants = Vec::new();
        for ((file, path), skip) in core.files.iter().zip(&skip) {
            let source = std::fs::read_to_string(path).unwrap();
            let text = mutated(core.language, file, &source, skip, &mut mutants);
            std::fs::write(core.copies.join(file), text).unwrap();
        }
        let output = command().output().unwrap();
        if output.status.success() {
            return mutants;
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let mut found = false;
        for ((file, _), skip) in core.files.iter().zip(&mut skip) {
            for (at, _) in said.match_indices(&format!("{file}:")) {
                let rest = &said[at + file.len() + 1..];
                let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
                if let Ok(number) = digits.parse::<usize>() {
                    found |= skip.insert(number - 1);
                }
            }
        }
        assert!(found, "{said}");
    }
    panic!("the mutants do not compile");
}

/// Runs all mutants over the corpus; gives those that no record shows.
fn survivors<'a>(mutants: &'a [Mutant], program: &Path, raw: &Path) -> Vec<&'a Mutant> {
    let run = |number: usize| {
        let output = Command::new(program).arg(raw).arg(number.to_string()).output().unwrap();
        // One that divides by zero is caught, too.
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.split_whitespace().nth(1).is_none_or(|mismatches| mismatches != "0")
    };
    assert!(!run(0), "without a mutant nothing differs");
    let next = std::sync::atomic::AtomicUsize::new(0);
    let alive = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    let Some(mutant) = mutants.get(at) else { return };
                    if !run(at + 1) {
                        alive.lock().unwrap().push((at, mutant));
                    }
                }
            });
        }
    });
    let mut alive = alive.into_inner().unwrap();
    alive.sort_by_key(|(at, _)| *at);
    alive.into_iter().map(|(_, mutant)| mutant).collect()
}

/// Whether a part of docs/evidence/bbr1-mutants.md names the mutant.
fn names(part: &str, mutant: &Mutant) -> bool {
    part.contains(&format!("`{}`", mutant.changed.replace("||", "\\|\\|")))
}

fn judge(core: &str, mutants: &[Mutant], survivors: &[&Mutant]) {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/evidence/bbr1-mutants.md");
    let document = std::fs::read_to_string(document).unwrap();
    let (same, not_shown) = document.split_once("## Not shown").unwrap();
    let same_program = survivors.iter().filter(|mutant| names(same, mutant)).count();
    let (killed, all) = (mutants.len() - survivors.len(), mutants.len() - same_program);
    println!(
        "{core} core: {killed} of {all} mutants are caught, and {same_program} more are the same program"
    );
    for mutant in survivors {
        println!("  {}: `{}` -> `{}`", mutant.file, mutant.original, mutant.changed);
    }
    let unargued: Vec<&str> = survivors
        .iter()
        .filter(|mutant| !names(same, mutant) && !names(not_shown, mutant))
        .map(|mutant| mutant.changed.as_str())
        .collect();
    assert!(unargued.is_empty(), "neither caught nor argued in docs/evidence/bbr1-mutants.md: {unargued:#?}");
    assert!(all >= 100, "{all}");
    assert!(killed * 100 >= all * 95, "{killed} of {all}");
}

#[test]
fn the_corpus_shows_every_mistake_in_the_c_core() {
    if !have("gcc") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let bpf = root.join("bpf");
    let copies = directory.path().join("core");
    std::fs::create_dir(&copies).unwrap();
    let own =
        "static int fp_mutant;\nstatic inline int fp_is(int number)\n{\n\treturn fp_mutant == number;\n}\n";
    std::fs::write(copies.join("mutants.h"), own).unwrap();
    std::fs::copy(bpf.join("record.h"), copies.join("record.h")).unwrap();
    std::fs::copy(bpf.join("types.h"), copies.join("types.h")).unwrap();
    let core = Core {
        language: Language::C,
        files: vec![("bbr1.h".to_owned(), bpf.join("bbr1.h"))],
        copies: copies.clone(),
    };
    let program = directory.path().join("mutants");
    let mutants = compile(&core, &|| {
        let mut gcc = Command::new("gcc");
        gcc.args(["-O1", "-w", "-DFP_MUTANTS", "-include"]).arg(copies.join("mutants.h"));
        gcc.arg("-I").arg(&copies).arg(root.join("tests/oracle/replay.c")).arg("-o").arg(&program);
        gcc
    });
    let alive = survivors(&mutants, &program, &raw(directory.path()));
    judge("C", &mutants, &alive);
}

/// The directory's files, and those of the directories in it.
fn copy_all(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_all(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[test]
fn the_corpus_shows_every_mistake_in_the_rust_core() {
    let directory = tempfile::tempdir().unwrap();
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let copy = directory.path().join("cc");
    copy_all(&here.join("../fullpipe-cc/src"), &copy);
    let lib = std::fs::read_to_string(copy.join("lib.rs")).unwrap();
    let own = "/// Which mistake is made.\npub static MUTANT: core::sync::atomic::AtomicUsize = \
               core::sync::atomic::AtomicUsize::new(0);\n\
               pub(crate) fn is_mutant(number: usize) -> bool {\n    \
               MUTANT.load(core::sync::atomic::Ordering::Relaxed) == number\n}\n";
    std::fs::write(copy.join("lib.rs"), format!("{lib}\n{own}")).unwrap();
    let core = "aggregation bandwidth full_pipe long_term model pacing probe_bw probe_rtt state window";
    let v1 = here.join("../fullpipe-cc/src/bbr/v1");
    let core = Core {
        language: Language::Rust,
        files: core.split(' ').map(|name| (format!("{name}.rs"), v1.join(format!("{name}.rs")))).collect(),
        copies: copy.join("bbr/v1"),
    };
    let rustc = |name: &str, kind: &str, source: &Path| {
        let mut rustc = Command::new("rustc");
        rustc.args(["--edition", "2024", "--cap-lints", "allow", "-Copt-level=1", "-Coverflow-checks=off"]);
        rustc.args(["--crate-name", name, "--crate-type", kind, "--out-dir"]).arg(directory.path());
        rustc.arg("-L").arg(directory.path()).arg(source);
        rustc
    };
    let units = rustc("fullpipe_units", "rlib", &here.join("../fullpipe-units/src/lib.rs")).output().unwrap();
    assert!(units.status.success(), "{}", String::from_utf8_lossy(&units.stderr));
    let mutants = compile(&core, &|| {
        let mut rustc = rustc("fullpipe_cc", "rlib", &copy.join("lib.rs"));
        rustc.args(["--extern", "fullpipe_units"]);
        rustc
    });
    let built = rustc("mutants", "bin", &here.join("tests/oracle/replay.rs"))
        .args(["--extern", "fullpipe_cc"])
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let alive = survivors(&mutants, &directory.path().join("mutants"), &raw(directory.path()));
    judge("Rust", &mutants, &alive);
}
