//! Checks a controller in s2n-quic against the test cases of the BBR draft, or any controller by
//! outcomes, as `fullpipe conformance` does for the simulator and for other stacks.

mod harness;
#[path = "../../tests/it/tls.rs"]
mod tls;

use fullpipe_conformance::{Case, CaseResult, LISTS, Report, Verdict, select};
use std::process::ExitCode;

const USAGE: &str = "usage: conformance [CONTROLLER] [--set KEY=VALUE]... [--json] [CASE]...

CONTROLLER  bbr3, cubic, ... of fullpipe, or s2n/bbr and s2n/cubic of s2n-quic [default: bbr3]
CASE        name of a case, or draft or outcomes for a whole list
            [default: draft for bbr3, outcomes for other controllers]";

struct Arguments {
    cc: String,
    settings: Vec<(String, String)>,
    json: bool,
    cases: Vec<&'static Case>,
}

fn parse(arguments: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let (mut positional, mut settings, mut json) = (Vec::new(), Vec::new(), false);
    let mut arguments = arguments;
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--json" => json = true,
            "--set" => {
                let setting = arguments.next().ok_or("--set: expected KEY=VALUE")?;
                let (key, value) = setting
                    .split_once('=')
                    .ok_or_else(|| format!("setting `{setting}`: expected KEY=VALUE"))?;
                settings.push((key.to_owned(), value.to_owned()));
            }
            option if option.starts_with('-') => return Err(format!("unknown option `{option}`")),
            _ => positional.push(argument),
        }
    }
    let mut positional = positional.into_iter();
    let name = positional.next().unwrap_or_else(|| "bbr3".to_owned());
    let cc = if name.contains(['/', '@']) { name } else { format!("{name}@s2n") };
    harness::check_controller(&cc, &settings)?;
    let mut names: Vec<String> = positional.collect();
    if names.is_empty() {
        names.push(if cc == "bbr3@s2n" { "draft" } else { "outcomes" }.to_owned());
    }
    let cases = select(&names).map_err(|unknown| {
        let known: Vec<&str> =
            LISTS.iter().flat_map(|(_, cases)| cases.iter().map(|case| case.name)).collect();
        format!("unknown case `{unknown}`; the cases are:\n  {}", known.join("\n  "))
    })?;
    Ok(Arguments { cc, settings, json, cases })
}

fn print(cases: &[&'static Case], results: &[CaseResult]) {
    let mut passed = 0;
    for case in cases {
        let own: Vec<&CaseResult> = results.iter().filter(|r| std::ptr::eq(r.case, *case)).collect();
        let verdict = Verdict::from_all(own.iter().map(|result| result.verdict()));
        passed += usize::from(verdict == Verdict::Passed);
        let mark = match verdict {
            Verdict::Passed => "✓",
            Verdict::Failed => "✗",
            Verdict::NotJudged => "–",
        };
        println!("{mark} {}", case.name);
        for result in own {
            let failures = &result.found.failures;
            for measured in result.found.measured.iter().filter(|m| !failures.contains(m)) {
                println!("    ✓ {}: {measured}", result.path);
            }
            for failure in failures {
                println!("    ✗ {}: {failure}", result.path);
            }
            for reason in &result.found.not_judged {
                println!("    – {}: not judged: {reason}", result.path);
            }
        }
    }
    println!("\n{passed} of {} cases passed, {} runs", cases.len(), results.len());
}

fn main() -> ExitCode {
    let arguments = match parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(error) => {
            eprintln!("error: {error}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let Arguments { cc, settings, json, cases } = &arguments;
    let settings: Vec<(&str, &str)> = settings.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    let results = match harness::judge(cc, &settings, cases) {
        Ok(results) => results,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(2);
        }
    };
    if *json {
        match serde_json::to_string(&Report::new(cc, &results)) {
            Ok(line) => println!("{line}"),
            Err(error) => {
                eprintln!("error: {error}");
                return ExitCode::from(2);
            }
        }
    } else {
        print(cases, &results);
    }
    let failed = results.iter().any(|result| result.verdict() == Verdict::Failed);
    ExitCode::from(u8::from(failed))
}
