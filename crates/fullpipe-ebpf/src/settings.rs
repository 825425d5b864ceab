//! Settings of a loaded controller: words in a map shared by all its sockets. Keys, ranges and
//! units are those of the Rust controllers. fp_bbr3's first word is its variant; its parameters
//! follow.

use crate::controller::Controller;
use crate::error::{Error, Result};
use fullpipe_cc::bbr::v3;
use fullpipe_cc::registry::{self, BuildError, ControllerInfo, SettingValue, Settings};
use std::sync::LazyLock;

/// The map's name, which is its section's in the object.
pub(crate) const MAP: &str = ".data.settings";

/// A setting of a controller and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its key, range, default and description. For fp_bbr3, the default is that of its variant.
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
/// kernel's bbr. Defaults of fp_bbr3 are those of its default variant.
pub fn for_controller(controller: Controller) -> &'static [registry::Setting] {
    match controller {
        Controller::Bbr1 => &[],
        Controller::Bbr3 => &OF_DRAFT,
        Controller::Hybla => registry::find("hybla").map_or(&[], |about| about.settings),
    }
}

/// The variants of BBR v3 that fp_bbr3 has; their index is their word (`enum bbr3_variant` of
/// bpf/bbr3.h).
const VARIANTS: [(&str, v3::Variant); 2] = [("draft", v3::Variant::Draft), ("linux", v3::Variant::Linux)];

const VARIANT: registry::Setting = registry::Setting {
    key: "variant",
    values: "draft or linux",
    default: "draft",
    about: "the draft with documented decisions, or Google's v3 for Linux",
};

/// The settings of fp_bbr3: the variant, then the parameters with the draft's defaults.
static OF_DRAFT: [registry::Setting; v3::Params::COUNT + 1] = {
    let mut all = [VARIANT; v3::Params::COUNT + 1];
    let mut i = 0;
    while i < v3::Params::COUNT {
        all[i + 1] = v3::Params::SETTINGS[i];
        i += 1;
    }
    all
};

/// The same with the defaults of variant `linux`.
static OF_LINUX: LazyLock<Vec<registry::Setting>> = LazyLock::new(|| {
    let defaults = v3::Params::LINUX.setting_values();
    let with_default = |one: &registry::Setting| match defaults.iter().find(|(key, _)| *key == one.key) {
        Some((_, amount)) if amount.to_string() != one.default => {
            registry::Setting { default: amount.to_string().leak(), ..*one }
        }
        _ => *one,
    };
    OF_DRAFT.iter().map(with_default).collect()
});

static FP_BBR3: ControllerInfo =
    ControllerInfo { name: "fp_bbr3", aliases: &[], kernel: None, about: "", settings: &OF_DRAFT };

/// The settings of fp_bbr3 with the defaults of a variant.
fn of_variant(variant: v3::Variant) -> &'static [registry::Setting] {
    if variant == v3::Variant::Linux { &OF_LINUX } else { &OF_DRAFT }
}

/// The parameters of a variant.
fn parameters(variant: v3::Variant) -> v3::Params {
    if variant == v3::Variant::Linux { v3::Params::LINUX } else { v3::Params::DRAFT }
}

/// The word of a variant; `None` for one that fp_bbr3 does not have.
pub(crate) fn variant_word(variant: v3::Variant) -> Option<u32> {
    let place = VARIANTS.iter().position(|(_, one)| *one == variant)?;
    u32::try_from(place).ok()
}

/// Decodes a controller's words; leaves out the settings that its variant does not use.
///
/// # Errors
/// If their number differs from the number of settings.
pub(crate) fn describe(controller: Controller, words: &[u32]) -> Result<Vec<Setting>> {
    let (settings, values): (_, Vec<String>) = if controller == Controller::Bbr3 {
        let (variant, params) = bbr3(words)?;
        let names = VARIANTS.iter().filter(|(_, one)| *one == variant).map(|(name, _)| (*name).to_owned());
        let amounts = params.setting_values().into_iter().map(|(_, amount)| amount.to_string());
        (of_variant(variant), names.chain(amounts).collect())
    } else {
        let amounts = words.iter().map(|word| SettingValue::Parts { count: *word, of: 1 }.to_string());
        (for_controller(controller), amounts.collect())
    };
    if settings.len() != values.len() {
        return Err(other_count(controller, values.len()));
    }
    let variant = if controller == Controller::Bbr3 { bbr3(words)?.0 } else { v3::Variant::Draft };
    let all = settings.iter().zip(values).filter(|(about, _)| variant.uses(about.key));
    Ok(all.map(|(about, value)| Setting { about, value }).collect())
}

/// A controller's words with `pairs` of key and value applied.
///
/// # Errors
/// An unknown key or an invalid value, with what is accepted.
pub(crate) fn vary(controller: Controller, words: &[u32], pairs: &[(String, String)]) -> Result<Vec<u32>> {
    let Some((key, _)) = pairs.first() else { return Ok(words.to_vec()) };
    let borrowed: Vec<(&str, &str)> =
        pairs.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    match controller {
        Controller::Bbr1 => Err(Error::Malformed(format!(
            "{controller} has no setting `{key}`: it has no settings, because it equals the kernel's bbr"
        ))),
        Controller::Bbr3 => vary_bbr3(words, &borrowed),
        Controller::Hybla => {
            let &[rtt0] = words else { return Err(other_count(controller, words.len())) };
            let refused = |error| refusal(error, for_controller(controller));
            Ok(vec![fullpipe_cc::hybla::rtt0(&borrowed, rtt0).map_err(refused)?])
        }
    }
}

/// The words of fp_bbr3 with `pairs` applied. A new variant brings its own defaults. Settings that
/// differ from the defaults of the old variant stay, unless the new one does not use them.
fn vary_bbr3(words: &[u32], pairs: &[(&str, &str)]) -> Result<Vec<u32>> {
    let (variant, mut params) = bbr3(words)?;
    for (key, value) in pairs {
        if let Some(reason) = only_simulated(key, value) {
            return Err(Error::Malformed(reason));
        }
    }
    let given = Settings::new(&FP_BBR3, pairs).map_err(|error| refusal(error, of_variant(variant)))?;
    let chosen =
        given.choice(VARIANT.key, variant, &VARIANTS).map_err(|error| refusal(error, of_variant(variant)))?;
    chosen.check(&given).map_err(|error| refusal(error, of_variant(chosen)))?;
    if chosen != variant {
        let (from, to) = (parameters(variant).to_words(), parameters(chosen).to_words());
        let mut all = params.to_words();
        for (i, word) in all.iter_mut().enumerate() {
            if *word == from[i] || !chosen.uses(v3::Params::SETTINGS[i].key) {
                *word = to[i];
            }
        }
        params = v3::Params::from_words(&all);
    }
    let others: Vec<(&str, &str)> = pairs.iter().copied().filter(|(key, _)| *key != VARIANT.key).collect();
    let params = params.with(&others).map_err(|error| refusal(error, of_variant(chosen)))?;
    let most = v3::Variant::LINUX_MAX_FULL_LOSS_COUNT;
    if chosen == v3::Variant::Linux && params.startup_full_loss_count > most {
        return Err(Error::Malformed(format!(
            "fp_bbr3: `startup_full_loss_count` is {}, but at most {most} with variant=linux; set it, too",
            params.startup_full_loss_count
        )));
    }
    Ok(variant_word(chosen).into_iter().chain(params.to_words()).collect())
}

/// Why fp_bbr3 does not have a setting of the simulated bbr3, or its value.
fn only_simulated(key: &str, value: &str) -> Option<String> {
    if (key, value) == (VARIANT.key, "letter") {
        return Some(
            "fp_bbr3 has no variant `letter`: it is for comparisons in the simulator (bbr3:variant=letter); \
             expected draft or linux"
                .to_owned(),
        );
    }
    let is_one_of = |all: &[registry::Setting]| all.iter().any(|one| one.key == key);
    let is_simulated = registry::find("bbr3").is_some_and(|about| is_one_of(about.settings));
    (is_simulated && !is_one_of(&OF_DRAFT))
        .then(|| format!("fp_bbr3 has no setting `{key}`: only the simulated bbr3 has it"))
}

/// The error for refused settings; for an invalid value with the setting's description.
fn refusal(error: BuildError<'_>, settings: &[registry::Setting]) -> Error {
    let description = match error {
        BuildError::InvalidValue { key, .. } => settings.iter().find(|one| one.key == key),
        _ => None,
    };
    Error::Malformed(match (description, error) {
        (Some(one), _) => format!("{error}\n  {}: {} [default: {}]", one.key, one.about, one.default),
        (None, BuildError::UnknownSetting { controller, nearest: None, .. })
            if controller == FP_BBR3.name =>
        {
            let keys: Vec<&str> = settings.iter().map(|one| one.key).collect();
            format!("{error}; its settings are {}", keys.join(", "))
        }
        (None, _) => error.to_string(),
    })
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

/// Decodes fp_bbr3's words.
fn bbr3(words: &[u32]) -> Result<(v3::Variant, v3::Params)> {
    let other = || other_count(Controller::Bbr3, words.len());
    let (first, rest) = words.split_first().ok_or_else(other)?;
    let params = v3::Params::from_words(rest.try_into().map_err(|_| other())?);
    let known = usize::try_from(*first).ok().and_then(|place| VARIANTS.get(place));
    let (_, variant) = known.ok_or_else(|| {
        Error::Malformed(format!(
            "fp_bbr3's loaded build has a variant that this version does not know: {first}"
        ))
    })?;
    Ok((*variant, params))
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

    /// fp_bbr3's words of a variant with these parameters.
    fn encoded(variant: u32, params: v3::Params) -> Vec<u32> {
        std::iter::once(variant).chain(params.to_words()).collect()
    }

    /// What differs from its default, as text.
    fn changed(words: &[u32]) -> Vec<String> {
        let all = describe(Controller::Bbr3, words).unwrap();
        let changed = all.iter().filter(|one| !one.is_default());
        changed.map(|one| format!("{}={}", one.about.key, one.value)).collect()
    }

    #[test]
    fn variant_brings_its_parameters_and_leaves_what_was_changed() {
        let draft = encoded(0, v3::Params::DRAFT);
        let set = |old: &[u32], given: &[(&str, &str)]| vary(Controller::Bbr3, old, &pairs(given)).unwrap();
        let linux = set(&draft, &[("variant", "linux")]);
        assert_eq!(linux, encoded(1, v3::Params::LINUX));
        assert_eq!(changed(&linux), ["variant=linux"], "its gains are its defaults");
        assert_eq!(set(&linux, &[("variant", "draft")]), draft);
        assert_eq!(set(&linux, &[("variant", "linux")]), linux);

        let given = [("drain_pacing_gain", "0.25"), ("beta_percent", "80")];
        let varied = set(&set(&draft, &given), &[("variant", "linux")]);
        let same_at_once = set(&draft, &[given[0], ("variant", "linux"), given[1]]);
        let expected = v3::Params { drain_pacing_gain: 64, beta_percent: 80, ..v3::Params::LINUX };
        assert_eq!((&varied, &same_at_once), (&encoded(1, expected), &encoded(1, expected)));
        assert_eq!(changed(&varied), ["variant=linux", "drain_pacing_gain=0.25", "beta_percent=80"]);
        // The draft's gain is a change here.
        assert_eq!(changed(&set(&linux, &[("drain_pacing_gain", "0.5")]))[1], "drain_pacing_gain=0.5");
    }

    #[test]
    fn variant_is_serialised_by_its_name() {
        let all = describe(Controller::Bbr3, &encoded(1, v3::Params::LINUX)).unwrap();
        let json = serialize(&all, serde_json::value::Serializer).unwrap();
        assert_eq!(json["variant"], "linux");
        assert_eq!(json.get("ecn"), None, "it does not answer marks");
        assert_eq!(json["beta_percent"], 70);
    }

    #[test]
    fn linux_rejects_settings_without_effect() {
        let draft = encoded(0, v3::Params::DRAFT);
        let linux = encoded(1, v3::Params::LINUX);
        let hidden = |words: &[u32]| {
            let shown = describe(Controller::Bbr3, words).unwrap();
            let missing = OF_DRAFT.iter().filter(|one| shown.iter().all(|own| own.about.key != one.key));
            missing.map(|one| one.key).collect::<Vec<_>>()
        };
        let without_effect = ["ecn", "loss_thresh_permille", "drain_rounds", "extra_acked_rounds"];
        assert_eq!((hidden(&draft), hidden(&linux)), (Vec::new(), without_effect.to_vec()));
        for key in without_effect {
            let value = if key == "ecn" { "on" } else { "5" };
            // At once, in either order, and later.
            let both = [(key, value), ("variant", "linux")];
            for (old, given) in [(&draft, &both[..]), (&draft, &[both[1], both[0]]), (&linux, &both[..1])] {
                let error = vary(Controller::Bbr3, old, &pairs(given)).unwrap_err().to_string();
                assert!(error.contains(&format!("`{key}` has no effect with variant=linux")), "{error}");
            }
            // Back to the draft it has one.
            vary(Controller::Bbr3, &linux, &pairs(&[both[0], ("variant", "draft")])).unwrap();
            // What was set for the draft is reset, so that no hidden setting has another value.
            let set = vary(Controller::Bbr3, &draft, &pairs(&both[..1])).unwrap();
            assert_eq!(vary(Controller::Bbr3, &set, &pairs(&both[1..])).unwrap(), linux);
        }
        let many = vary(Controller::Bbr3, &draft, &pairs(&[("startup_full_loss_count", "16")])).unwrap();
        for (old, given) in
            [(&many, &[("variant", "linux")][..]), (&linux, &[("startup_full_loss_count", "16")])]
        {
            let error = vary(Controller::Bbr3, old, &pairs(given)).unwrap_err().to_string();
            assert!(error.contains("15 with variant=linux"), "{error}");
        }
        let given = [("variant", "linux"), ("startup_full_loss_count", "15")];
        assert_eq!(changed(&vary(Controller::Bbr3, &many, &pairs(&given)).unwrap()).len(), 2);
    }

    #[test]
    fn only_the_simulator_has_the_draft_to_the_letter() {
        let draft = encoded(0, v3::Params::DRAFT);
        let refused =
            |key, value| vary(Controller::Bbr3, &draft, &pairs(&[(key, value)])).unwrap_err().to_string();
        let error = refused("variant", "letter");
        assert!(error.contains("in the simulator") && error.contains("draft or linux"), "{error}");
        let error = refused("variant", "google");
        assert!(error.contains("expected draft or linux"), "{error}");
        for one in registry::find("bbr3").unwrap().settings {
            if !OF_DRAFT.iter().any(|own| own.key == one.key) {
                let error = refused(one.key, one.default);
                assert!(error.contains("only the simulated bbr3 has it"), "{error}");
            }
        }
        let error = refused("nothing_like_it", "1");
        assert!(error.contains("its settings are variant, ecn, "), "{error}");
    }

    #[test]
    fn words_of_an_unknown_build_are_not_guessed() {
        let mut unknown = encoded(7, v3::Params::DRAFT);
        assert!(describe(Controller::Bbr3, &unknown).unwrap_err().to_string().contains("does not know: 7"));
        unknown.pop();
        let error = describe(Controller::Bbr3, &unknown).unwrap_err().to_string();
        assert!(error.contains(&format!("fp_bbr3 has {} settings", OF_DRAFT.len())), "{error}");
        assert!(describe(Controller::Bbr3, &[]).is_err());
    }

    #[test]
    fn given_settings_change_and_the_rest_stay() {
        let draft = encoded(0, v3::Params::DRAFT);
        let varied =
            vary(Controller::Bbr3, &draft, &pairs(&[("beta_percent", "80"), ("ecn", "off")])).unwrap();
        assert_eq!(changed(&varied), ["ecn=off", "beta_percent=80"]);
        assert_eq!(vary(Controller::Hybla, &[25], &pairs(&[("rtt0", "50")])).unwrap(), [50]);
        assert_eq!(decode_words(&bytes(&varied)), varied);
    }

    #[test]
    fn invalid_settings_are_rejected_with_what_is_accepted() {
        let refused = |controller, words: &[u32], key, value| {
            vary(controller, words, &pairs(&[(key, value)])).unwrap_err().to_string()
        };
        let draft = encoded(0, v3::Params::DRAFT);
        let error = refused(Controller::Bbr3, &draft, "beta_percent", "170");
        assert!(error.contains("from 1 to 100") && error.contains("in percent"), "{error}");
        let error = refused(Controller::Bbr3, &draft, "beta_percnt", "70");
        assert!(error.contains("did you mean `beta_percent`"), "{error}");
        assert!(refused(Controller::Hybla, &[25], "rtt0", "0").contains("1 to 10000"));
        assert!(refused(Controller::Bbr1, &[], "beta_percent", "70").contains("no setting"));
    }
}
