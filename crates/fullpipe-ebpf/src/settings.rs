//! Settings of a loaded controller: words in a map shared by all its sockets. Keys, ranges and
//! units are those of the Rust controllers.

use crate::controller::Controller;
use crate::error::{Error, Result};
use fullpipe_cc::bbr::v3;
use fullpipe_cc::registry::{self, SettingValue};

/// The map's name, which is its section's in the object.
pub(crate) const MAP: &str = ".data.settings";

/// A setting of a controller and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its key, range, default and description.
    pub about: &'static registry::Setting,
    /// Its value, in input form.
    pub value: String,
}

impl Setting {
    /// Whether it has its default value.
    pub fn is_default(&self) -> bool {
        self.value == self.about.default
    }
}

/// The settings of a controller, in the order of their words; empty for fp_bbr1, which equals the
/// kernel's bbr.
pub fn for_controller(controller: Controller) -> &'static [registry::Setting] {
    let name = match controller {
        Controller::Bbr1 => return &[],
        // Without the variants, which only the Rust core has.
        Controller::Bbr3 => return v3::Params::SETTINGS,
        Controller::Hybla => "hybla",
    };
    registry::find(name).map_or(&[], |about| about.settings)
}

/// Decodes a controller's words.
///
/// # Errors
/// If their number differs from the number of settings.
pub(crate) fn describe(controller: Controller, words: &[u32]) -> Result<Vec<Setting>> {
    let amounts: Vec<SettingValue> = match controller {
        Controller::Bbr3 => params(words)?.setting_values().into_iter().map(|(_, amount)| amount).collect(),
        _ => words.iter().map(|word| SettingValue::Parts { count: *word, of: 1 }).collect(),
    };
    let settings = for_controller(controller);
    if settings.len() != amounts.len() {
        return Err(other_count(controller, amounts.len()));
    }
    Ok(settings
        .iter()
        .zip(amounts)
        .map(|(about, amount)| Setting { about, value: amount.to_string() })
        .collect())
}

/// A controller's words with `pairs` of key and value applied.
///
/// # Errors
/// An unknown key or an invalid value, with what is accepted.
pub(crate) fn vary(controller: Controller, words: &[u32], pairs: &[(String, String)]) -> Result<Vec<u32>> {
    let Some((key, _)) = pairs.first() else { return Ok(words.to_vec()) };
    let borrowed: Vec<(&str, &str)> =
        pairs.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    let refused = |error: registry::BuildError<'_>| {
        let about = match error {
            registry::BuildError::InvalidValue { key, .. } => {
                for_controller(controller).iter().find(|one| one.key == key)
            }
            _ => None,
        };
        Error::Malformed(match about {
            Some(one) => format!("{error}\n  {}: {} [default: {}]", one.key, one.about, one.default),
            None => error.to_string(),
        })
    };
    match controller {
        Controller::Bbr1 => Err(Error::Malformed(format!(
            "{controller} has no setting `{key}`: it has no settings, because it equals the kernel's bbr"
        ))),
        Controller::Bbr3 => Ok(params(words)?.with(&borrowed).map_err(refused)?.to_words().to_vec()),
        Controller::Hybla => {
            let &[rtt0] = words else { return Err(other_count(controller, words.len())) };
            Ok(vec![fullpipe_cc::hybla::rtt0(&borrowed, rtt0).map_err(refused)?])
        }
    }
}

/// Serialises settings as a map from keys to numbers or booleans.
pub(crate) fn serialize<S: serde::Serializer>(
    settings: &[Setting],
    to: S,
) -> std::result::Result<S::Ok, S::Error> {
    to.collect_map(settings.iter().map(|setting| {
        let value = match setting.value.as_str() {
            "on" => serde_json::Value::Bool(true),
            "off" => serde_json::Value::Bool(false),
            number => number.parse().map_or_else(|_| number.into(), serde_json::Value::Number),
        };
        (setting.about.key, value)
    }))
}

fn params(words: &[u32]) -> Result<v3::Params> {
    let words = words.try_into().map_err(|_| other_count(Controller::Bbr3, words.len()))?;
    Ok(v3::Params::from_words(words))
}

fn other_count(controller: Controller, count: usize) -> Error {
    Error::Malformed(format!(
        "{controller} has {} settings, but the loaded build has {count}",
        for_controller(controller).len()
    ))
}

/// Decodes a map's value into words.
pub(crate) fn decode_words(value: &[u8]) -> Vec<u32> {
    value.chunks_exact(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap_or_default())).collect()
}

/// Encodes words as a map's value.
pub(crate) fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(given: &[(&str, &str)]) -> Vec<(String, String)> {
        given.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn given_settings_change_and_the_rest_stay() {
        let draft = v3::Params::DRAFT.to_words();
        let varied =
            vary(Controller::Bbr3, &draft, &pairs(&[("beta_percent", "80"), ("ecn", "off")])).unwrap();
        let described = describe(Controller::Bbr3, &varied).unwrap();
        let others: Vec<_> = described
            .iter()
            .filter(|one| !one.is_default())
            .map(|one| (one.about.key, one.value.as_str()))
            .collect();
        assert_eq!(others, [("ecn", "off"), ("beta_percent", "80")]);
        assert_eq!(vary(Controller::Hybla, &[25], &pairs(&[("rtt0", "50")])).unwrap(), [50]);
        assert_eq!(decode_words(&bytes(&varied)), varied);
    }

    #[test]
    fn invalid_settings_are_rejected_with_what_is_accepted() {
        let refused = |controller, words: &[u32], key, value| {
            vary(controller, words, &pairs(&[(key, value)])).unwrap_err().to_string()
        };
        let draft = v3::Params::DRAFT.to_words();
        let error = refused(Controller::Bbr3, &draft, "beta_percent", "170");
        assert!(error.contains("from 1 to 100") && error.contains("in percent"), "{error}");
        let error = refused(Controller::Bbr3, &draft, "beta_percnt", "70");
        assert!(error.contains("did you mean `beta_percent`"), "{error}");
        assert!(refused(Controller::Hybla, &[25], "rtt0", "0").contains("1 to 10000"));
        assert!(refused(Controller::Bbr1, &[], "beta_percent", "70").contains("no setting"));
    }
}
