//! `fullpipe cc settings` and `cc tune`: what can be varied in a controller, and varying it while it is loaded.

use super::failure;
use crate::failure::Failure;
use fullpipe_ebpf::settings::{self, Setting};
use fullpipe_ebpf::{Controller, life};

/// Reads `KEY=VALUE`.
pub fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.trim().to_owned(), value.trim().to_owned())),
        _ => Err("a setting is given as KEY=VALUE".to_owned()),
    }
}

/// What is not what it is if not set: `beta_percent=80, ecn=off`.
pub fn changed(all: &[Setting]) -> Option<String> {
    let changed: Vec<String> = all
        .iter()
        .filter(|one| !one.is_default())
        .map(|one| format!("{}={}", one.about.key, one.value))
        .collect();
    (!changed.is_empty()).then(|| changed.join(", "))
}

/// Prints what can be set in a controller.
pub fn show(controller: Controller) {
    let all = settings::of(controller);
    if all.is_empty() {
        println!("{controller} has no settings: it computes exactly what the kernel's bbr does");
    }
    for one in all {
        println!("{:<24} {}\n{:<24} {}; {} if not set", one.key, one.about, "", one.values, one.default);
    }
}

/// Changes settings of the loaded controller `name`, and prints them all.
pub fn tune(name: &str, pairs: &[(String, String)]) -> Result<(), Failure> {
    // `bbr3` for `fp_bbr3`, as elsewhere; any other name is one that was chosen at the load.
    let name = name.parse().map_or(name, |controller: Controller| controller.name());
    let all = life::tune(name, pairs).map_err(failure)?;
    for one in &all {
        let default =
            if one.is_default() { String::new() } else { format!("   ({} if not set)", one.about.default) };
        println!("{:<24} {}{default}", one.about.key, one.value);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_a_key_and_a_value() {
        assert_eq!(pair("beta_percent=80"), Ok(("beta_percent".to_owned(), "80".to_owned())));
        for bad in ["beta_percent", "=80", ""] {
            assert!(pair(bad).unwrap_err().contains("KEY=VALUE"), "{bad}");
        }
    }
}
