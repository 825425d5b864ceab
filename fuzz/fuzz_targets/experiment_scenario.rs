//! A scenario file of any text: refused with the place of what is wrong, or runs that read back as
//! they are written.
#![no_main]

use fullpipe_experiment::scenario::{Case, ScenarioError, Vocabulary, parse};
use libfuzzer_sys::fuzz_target;

/// As many runs of a file as are worth the time here.
const RUNS: i64 = 64;

fn read(text: &str) -> Result<Vec<Case>, ScenarioError> {
    let vocabulary = Vocabulary::new(fullpipe_cc::CONTROLLERS.iter().map(|c| c.name.to_owned()));
    parse("fuzz.toml", text, &vocabulary, &|_| Ok("1\n2\n3\n".to_owned()))
}

/// How many runs a file stands for, at least.
fn runs(file: &toml::Table) -> i64 {
    let swept = file.get("sweep").and_then(toml::Value::as_table);
    let values = swept.into_iter().flat_map(toml::Table::values).filter_map(toml::Value::as_array);
    let repeats = file.get("repeats").and_then(toml::Value::as_integer).unwrap_or(1);
    values.fold(repeats, |product, array| product.saturating_mul(array.len().max(1) as i64))
}

fuzz_target!(|text: &str| {
    if text.parse::<toml::Table>().is_ok_and(|file| runs(&file) > RUNS) {
        return;
    }
    match read(text) {
        Ok(cases) => {
            for case in cases.iter().take(2) {
                let written = case.scenario.to_toml();
                let again = read(&written).unwrap_or_else(|e| panic!("{e}\n{written}"));
                assert_eq!(again[0].scenario, case.scenario, "{written}");
                let _ = (case.label(), case.scenario.path.describe(), case.scenario.highest_rate());
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
