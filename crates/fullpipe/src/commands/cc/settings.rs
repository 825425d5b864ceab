//! `fullpipe cc settings` and `cc tune`: shows the settings of a controller, and changes them while
//! it is loaded.

use super::failure;
use crate::failure::Failure;
use crate::runs::print_hanging;
use fullpipe_ebpf::settings::{self, Setting};
use fullpipe_ebpf::{Controller, lifecycle};
use fullpipe_host::assign;

/// Reads `KEY=VALUE`.
pub fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.trim().to_owned(), value.trim().to_owned())),
        _ => Err("expected KEY=VALUE".to_owned()),
    }
}

/// The settings that differ from their defaults, as keys and values.
pub fn non_default(all: &[Setting]) -> Vec<(String, String)> {
    let changed = all.iter().filter(|one| !one.is_default());
    changed.map(|one| (one.about.key.to_owned(), one.value.clone())).collect()
}

/// The same as text: `beta_percent=80, ecn=off`.
pub fn changed(all: &[Setting]) -> Option<String> {
    let changed: Vec<String> =
        non_default(all).into_iter().map(|(key, value)| format!("{key}={value}")).collect();
    (!changed.is_empty()).then(|| changed.join(", "))
}

/// Prints the settings of a controller.
pub fn show(controller: Controller) {
    let all = settings::for_controller(controller);
    if all.is_empty() {
        println!("{controller} has no settings: it computes exactly what the kernel's bbr computes");
    }
    for one in all {
        print_hanging(&format!("{:<24} ", one.key), 0, one.about);
        print_hanging(&format!("{:<24} ", ""), 0, &format!("{}; default {}", one.values, one.default));
    }
}

/// Changes settings of the loaded controller `name`, and prints them all.
pub fn tune(name: &str, pairs: &[(String, String)]) -> Result<(), Failure> {
    // `bbr3` means `fp_bbr3`, as elsewhere; any other name was chosen when loading.
    let name = name.parse().map_or(name, |controller: Controller| controller.name());
    let all = lifecycle::tune(name, pairs).map_err(failure)?;
    for one in &all {
        let default =
            if one.is_default() { String::new() } else { format!("   (default {})", one.about.default) };
        println!("{:<24} {}{default}", one.about.key, one.value);
    }
    if !pairs.is_empty() {
        let unit = assign::boot_unit(name);
        if std::fs::read_to_string(&unit).is_ok_and(|text| !is_set_by(&text, &non_default(&all))) {
            println!(
                "{unit} loads it at boot with other settings; `fullpipe cc load … --persist` stores these \
                 in the unit"
            );
        }
    }
    Ok(())
}

/// Whether a unit has exactly these settings.
fn is_set_by(unit: &str, settings: &[(String, String)]) -> bool {
    let line = unit.lines().find(|line| line.starts_with("ExecStart=")).unwrap_or_default();
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let set = words.windows(2).filter(|pair| pair[0] == "--set").map(|pair| pair[1].to_owned());
    set.eq(settings.iter().map(|(key, value)| format!("{key}={value}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_a_unit_are_compared_exactly() {
        let unit = "[Service]\nExecStart=/usr/bin/fullpipe cc load bbr3 --set ecn=off --default\n";
        let set = |value: &str| [("ecn".to_owned(), value.to_owned())];
        assert!(is_set_by(unit, &set("off")));
        assert!(!is_set_by(unit, &set("on")) && !is_set_by(unit, &[]) && is_set_by("", &[]));
    }

    #[test]
    fn a_setting_is_a_key_and_a_value() {
        assert_eq!(pair("beta_percent=80"), Ok(("beta_percent".to_owned(), "80".to_owned())));
        for bad in ["beta_percent", "=80", ""] {
            assert!(pair(bad).unwrap_err().contains("KEY=VALUE"), "{bad}");
        }
    }
}
