//! The controllers by name.

use crate::control::{Config, CongestionControl};
use core::fmt;

/// Description of a controller. Authors of controllers write it as a constant, hence without
/// `#[non_exhaustive]`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ControllerInfo {
    /// Its name on command lines, in scenarios and reports.
    pub name: &'static str,
    /// Alternative names.
    pub aliases: &'static [&'static str],
    /// Name of the equivalent Linux controller, if any.
    pub kernel: Option<&'static str>,
    /// One-line description.
    pub about: &'static str,
    /// Its settings.
    pub settings: &'static [Setting],
}

impl ControllerInfo {
    /// Whether `name` is one of its names, ignoring case.
    pub fn is_named(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name) || self.aliases.iter().any(|a| a.eq_ignore_ascii_case(name))
    }
}

/// A setting of a controller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setting {
    /// Its key.
    pub key: &'static str,
    /// Accepted values.
    pub values: &'static str,
    /// Its default.
    pub default: &'static str,
    /// One-line description.
    pub about: &'static str,
}

/// The value of a setting. Its text is valid input for the setting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum SettingValue {
    /// One of several words.
    Word(&'static str),
    /// On or off.
    Switch(bool),
    /// A number.
    Parts {
        /// Number of parts.
        count: u32,
        /// Parts per unit.
        of: u32,
    },
}

impl SettingValue {
    /// An integer.
    pub fn number(count: u32) -> Self {
        SettingValue::Parts { count, of: 1 }
    }
}

impl fmt::Display for SettingValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, of) = match *self {
            SettingValue::Word(word) => return f.write_str(word),
            SettingValue::Switch(on) => return f.write_str(if on { "on" } else { "off" }),
            SettingValue::Parts { count, of } => (u64::from(count), u64::from(of.max(1))),
        };
        // The fewest decimals that parse back to the same number of parts.
        let mut digits = 0;
        let (mut scale, mut scaled) = (1, count / of);
        while digits < 9 && (scaled * of + scale / 2) / scale != count {
            digits += 1;
            scale *= 10;
            scaled = (count * scale + of / 2) / of;
        }
        write!(f, "{}", scaled / scale)?;
        if digits > 0 {
            write!(f, ".{:0digits$}", scaled % scale)?;
        }
        Ok(())
    }
}

/// Key and value of each setting, before they are checked.
#[derive(Clone, Copy, Debug)]
enum Pairs<'a> {
    List(&'a [(&'a str, &'a str)]),
    /// `key=value,key=value`.
    Text(&'a str),
}

impl<'a> Pairs<'a> {
    /// All of them; `Err` for text without `=`.
    fn iter(self) -> impl DoubleEndedIterator<Item = Result<(&'a str, &'a str), &'a str>> {
        let (list, text) = match self {
            Pairs::List(list) => (list, ""),
            Pairs::Text(text) => (&[][..], text),
        };
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        let split = |part: &'a str| part.split_once('=').map(|(k, v)| (k.trim(), v.trim())).ok_or(part);
        list.iter().map(|&pair| Ok(pair)).chain(parts.map(split))
    }
}

/// Settings of one controller, as text. The last value of a repeated key wins.
#[derive(Clone, Copy, Debug)]
pub struct Settings<'a> {
    about: &'static ControllerInfo,
    pairs: Pairs<'a>,
}

impl<'a> Settings<'a> {
    /// The settings `pairs` of the controller that `about` describes.
    ///
    /// # Errors
    /// [`BuildError::UnknownSetting`] for an unknown key.
    pub fn new(
        about: &'static ControllerInfo,
        pairs: &'a [(&'a str, &'a str)],
    ) -> Result<Self, BuildError<'a>> {
        Self::check(about, Pairs::List(pairs))
    }

    fn check(about: &'static ControllerInfo, pairs: Pairs<'a>) -> Result<Self, BuildError<'a>> {
        for pair in pairs.iter() {
            let (key, _) = pair.map_err(|setting| BuildError::NoValue { controller: about.name, setting })?;
            if !about.settings.iter().any(|s| s.key == key) {
                let nearest = nearest_of(key, about.settings.iter().map(|s| (s.key, s.key)));
                return Err(BuildError::UnknownSetting { controller: about.name, key, nearest });
            }
        }
        Ok(Settings { about, pairs })
    }

    /// The text given for `key`.
    pub fn get(&self, key: &str) -> Option<&'a str> {
        self.pairs.iter().rev().flatten().find(|(k, _)| *k == key).map(|(_, value)| value)
    }

    /// Parses a switch: `on`, `true`, `1` or `off`, `false`, `0`.
    pub fn switch(&self, key: &'static str, default: bool) -> Result<bool, BuildError<'a>> {
        self.choice(
            key,
            default,
            &[("on", true), ("off", false), ("true", true), ("false", false), ("1", true), ("0", false)],
        )
    }

    /// Parses one of several words.
    pub fn choice<T: Copy>(
        &self,
        key: &'static str,
        default: T,
        choices: &[(&str, T)],
    ) -> Result<T, BuildError<'a>> {
        let Some(value) = self.get(key) else { return Ok(default) };
        match choices.iter().find(|(word, _)| *word == value) {
            Some(&(_, choice)) => Ok(choice),
            None => Err(self.invalid(key, value)),
        }
    }

    /// Parses an integer from `min` to `max`.
    pub fn number(&self, key: &'static str, default: u32, min: u32, max: u32) -> Result<u32, BuildError<'a>> {
        let Some(value) = self.get(key) else { return Ok(default) };
        match value.parse() {
            Ok(n) if (min..=max).contains(&n) => Ok(n),
            _ => Err(self.invalid(key, value)),
        }
    }

    /// Parses a decimal such as `2.885` in units of 1/`unit`, from `min` to `max` units.
    pub fn decimal(
        &self,
        key: &'static str,
        default: u32,
        unit: u32,
        min: u32,
        max: u32,
    ) -> Result<u32, BuildError<'a>> {
        let Some(value) = self.get(key) else { return Ok(default) };
        match parse_decimal(value, unit) {
            Some(n) if (min..=max).contains(&n) => Ok(n),
            _ => Err(self.invalid(key, value)),
        }
    }

    /// The name of the controller that has these settings.
    pub(crate) fn controller(&self) -> &'static str {
        self.about.name
    }

    /// The error for an invalid `value` of `key`.
    pub fn invalid(&self, key: &'static str, value: &'a str) -> BuildError<'a> {
        let values = self.about.settings.iter().find(|s| s.key == key).map_or("", |s| s.values);
        BuildError::InvalidValue { controller: self.about.name, key, value, values }
    }
}

/// `text` times `unit`, rounded to the nearest, without floating point.
fn parse_decimal(text: &str, unit: u32) -> Option<u32> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if fraction.len() > 9 || !whole.bytes().chain(fraction.bytes()).all(|b| b.is_ascii_digit()) {
        return None;
    }
    let whole: u64 = if whole.is_empty() && !fraction.is_empty() { 0 } else { whole.parse().ok()? };
    let scale = 10u64.pow(fraction.len() as u32);
    let part: u64 = if fraction.is_empty() { 0 } else { fraction.parse().ok()? };
    let scaled = whole.checked_mul(scale)?.checked_add(part)?.checked_mul(u64::from(unit))?;
    u32::try_from((scaled + scale / 2) / scale).ok()
}

/// Why a controller could not be built.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum BuildError<'a> {
    /// Unknown controller.
    UnknownController {
        /// The requested name.
        name: &'a str,
    },
    /// Unknown setting.
    UnknownSetting {
        /// The controller.
        controller: &'static str,
        /// The key given.
        key: &'a str,
        /// The nearest known key.
        nearest: Option<&'static str>,
    },
    /// A setting without a value.
    NoValue {
        /// The controller.
        controller: &'static str,
        /// The text given.
        setting: &'a str,
    },
    /// Invalid value.
    InvalidValue {
        /// The controller.
        controller: &'static str,
        /// The setting.
        key: &'static str,
        /// The value given.
        value: &'a str,
        /// Accepted values.
        values: &'static str,
    },
    /// A setting that has no effect together with another.
    NoEffect {
        /// The controller.
        controller: &'static str,
        /// The setting.
        key: &'static str,
        /// The other setting and its value.
        with: &'static str,
    },
}

impl fmt::Display for BuildError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            BuildError::UnknownController { name } => {
                write!(f, "unknown controller `{name}`")?;
                match nearest(name) {
                    Some(near) => write!(f, "; did you mean `{near}`?"),
                    None => {
                        f.write_str("; known: ")?;
                        for (i, c) in CONTROLLERS.iter().enumerate() {
                            write!(f, "{}{}", if i == 0 { "" } else { ", " }, c.name)?;
                        }
                        Ok(())
                    }
                }
            }
            BuildError::UnknownSetting { controller, key, nearest } => {
                write!(f, "{controller} has no setting `{key}`")?;
                if let Some(near) = nearest {
                    return write!(f, "; did you mean `{near}`?");
                }
                let settings = find(controller).map_or(&[][..], |c| c.settings);
                for (i, s) in settings.iter().enumerate() {
                    write!(f, "{}{}", if i == 0 { "; its settings are " } else { ", " }, s.key)?;
                }
                Ok(())
            }
            BuildError::NoValue { controller, setting } => {
                write!(f, "{controller}: setting `{setting}` has no value; expected KEY=VALUE")
            }
            BuildError::InvalidValue { controller, key, value, values } => {
                write!(f, "{controller}: invalid value `{value}` for `{key}`; expected {values}")
            }
            BuildError::NoEffect { controller, key, with } => {
                write!(f, "{controller}: `{key}` has no effect with {with}: leave it out")
            }
        }
    }
}

impl core::error::Error for BuildError<'_> {}

/// A controller that can be built by name: its settings are parsed once into
/// [`Params`](Self::Params), from which any number of controllers are built.
///
/// A controller without settings has `type Params = ()` and a [`parse`](Self::parse) that returns
/// `Ok(())`.
pub trait Build: CongestionControl + Sized {
    /// Its description.
    const INFO: ControllerInfo;

    /// Its settings as typed values.
    type Params: Clone + fmt::Debug + PartialEq + Send + Sync + 'static;

    /// Checks and parses settings. Every key in `settings` is one of [`Self::INFO`].
    ///
    /// # Errors
    /// [`BuildError::InvalidValue`] for an invalid value of a setting.
    fn parse<'a>(settings: Settings<'a>) -> Result<Self::Params, BuildError<'a>>;

    /// A controller for a new connection.
    fn build(config: &Config, params: &Self::Params) -> Self;

    /// The value of the setting `key`, to write parameters as text. A setting without a value, or
    /// with that of the default parameters, is not written. By default no setting is.
    fn setting(_params: &Self::Params, _key: &str) -> Option<SettingValue> {
        None
    }
}

/// Writes `name:key=value,…` with the settings that differ from their defaults.
fn write_spec<C: Build>(f: &mut fmt::Formatter<'_>, params: &C::Params) -> fmt::Result {
    f.write_str(C::INFO.name)?;
    let about = const { &C::INFO };
    let defaults = C::parse(Settings { about, pairs: Pairs::List(&[]) }).ok();
    let mut separator = ':';
    for one in about.settings {
        let default = defaults.as_ref().and_then(|defaults| C::setting(defaults, one.key));
        match C::setting(params, one.key) {
            Some(value) if default != Some(value) => {
                write!(f, "{separator}{}={value}", one.key)?;
                separator = ',';
            }
            _ => {}
        }
    }
    Ok(())
}

/// The names of the controllers that the feature `linux` adds. Lists show them last, as names only.
pub const LINUX: [&str; 13] = [
    "vegas",
    "westwood",
    "illinois",
    "htcp",
    "bic",
    "yeah",
    "veno",
    "scalable",
    "highspeed",
    "dctcp",
    "lp",
    "nv",
    "cdg",
];

/// The description of the controller called `name`, ignoring case.
pub fn find(name: &str) -> Option<&'static ControllerInfo> {
    CONTROLLERS.iter().find(|c| c.is_named(name))
}

/// The controller whose name or alias is closest to `name`, if any is close enough.
pub fn nearest(name: &str) -> Option<&'static str> {
    let names = CONTROLLERS
        .iter()
        .flat_map(|c| core::iter::once((c.name, c.name)).chain(c.aliases.iter().map(|&a| (a, c.name))));
    nearest_of(name, names)
}

/// The target of the candidate within two edits, and a third of the letters, of `name`.
fn nearest_of(
    name: &str,
    candidates: impl Iterator<Item = (&'static str, &'static str)>,
) -> Option<&'static str> {
    candidates
        .map(|(candidate, target)| (edits(name, candidate), target))
        .filter(|&(distance, _)| distance <= 2 && distance * 3 <= name.len().max(3))
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, target)| target)
}

/// Levenshtein distance without regard to case; large for words beyond any name's length.
fn edits(a: &str, b: &str) -> usize {
    const MAX_LENGTH: usize = 32;
    if a.len() > MAX_LENGTH || b.len() > MAX_LENGTH {
        return usize::MAX / 2;
    }
    let mut row: [usize; MAX_LENGTH + 1] = core::array::from_fn(|i| i);
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let substitute = diagonal + usize::from(!x.eq_ignore_ascii_case(&y));
            diagonal = row[j + 1];
            row[j + 1] = substitute.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}

macro_rules! controllers {
    ($($(#[$attribute:meta])* $variant:ident($type:ty) $name:ident),+ $(,)?) => {
        /// Any of the controllers, with static dispatch. Built by a [`ControllerSpec`].
        #[derive(Clone, Debug)]
        #[non_exhaustive]
        #[allow(clippy::large_enum_variant, reason = "one per connection, and allocation is not available")]
        pub enum Controller {
            $(
                $(#[$attribute])*
                #[doc = concat!("See [`", stringify!($type), "`].")]
                $variant($type),
            )+
        }

        /// All controllers.
        pub static CONTROLLERS: &[ControllerInfo] = &[$($(#[$attribute])* <$type as Build>::INFO),+];

        #[derive(Clone, Debug, PartialEq)]
        #[allow(clippy::large_enum_variant, reason = "allocation is not available")]
        enum Spec {
            $($(#[$attribute])* $variant(<$type as Build>::Params),)+
        }

        impl ControllerSpec {
            fn checked<'a>(name: &'a str, pairs: Pairs<'a>) -> Result<Self, BuildError<'a>> {
                let about = find(name).ok_or(BuildError::UnknownController { name })?;
                let settings = Settings::check(about, pairs)?;
                $(
                    $(#[$attribute])*
                    if about.name == <$type as Build>::INFO.name {
                        let params = <$type as Build>::parse(settings)?;
                        return Ok(ControllerSpec(Spec::$variant(params)));
                    }
                )+
                Err(BuildError::UnknownController { name })
            }

            $(
                $(#[$attribute])*
                #[doc = concat!("[`", stringify!($type), "`] with the parameters `params`, unchecked.")]
                pub fn $name(params: <$type as Build>::Params) -> Self {
                    ControllerSpec(Spec::$variant(params))
                }
            )+

            /// A controller for a new connection.
            pub fn build(&self, config: &Config) -> Controller {
                match &self.0 {
                    $($(#[$attribute])* Spec::$variant(params) => {
                        Controller::$variant(<$type as Build>::build(config, params))
                    })+
                }
            }

            /// The description of its controller.
            pub fn info(&self) -> &'static ControllerInfo {
                match &self.0 {
                    $($(#[$attribute])* Spec::$variant(_) => const { &<$type as Build>::INFO },)+
                }
            }
        }

        /// The text that [`parse`](ControllerSpec::parse) accepts: the name, and settings that differ
        /// from their defaults.
        impl fmt::Display for ControllerSpec {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match &self.0 {
                    $($(#[$attribute])* Spec::$variant(params) => write_spec::<$type>(f, params),)+
                }
            }
        }

        impl Controller {
            /// Its description.
            pub fn info(&self) -> &'static ControllerInfo {
                match self {
                    $($(#[$attribute])* Self::$variant(_) => const { &<$type as Build>::INFO },)+
                }
            }
        }

        crate::forward_congestion_control! {
            impl[] for Controller {
                $($(#[$attribute])* Self::$variant(c) => *c,)+
            }
        }
    };
}

/// A controller and its settings, checked: what a transport keeps to build a [`Controller`] for
/// each connection, which cannot fail.
///
/// ```
/// use fullpipe_cc::{Config, CongestionControl, ControllerSpec};
///
/// let spec = ControllerSpec::parse("bbr3:beta_percent=50")?;
/// let controller = spec.build(&Config::default());
/// assert_eq!(controller.state(), "Startup");
/// assert_eq!(spec.to_string(), "bbr3:beta_percent=50");
/// # Ok::<(), fullpipe_cc::BuildError<'static>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ControllerSpec(Spec);

impl ControllerSpec {
    /// Parses `name` or `name:key=value,key=value`.
    ///
    /// # Errors
    /// An unknown name, an unknown setting or an invalid value; the error names it and what is
    /// accepted.
    pub fn parse(text: &str) -> Result<Self, BuildError<'_>> {
        let (name, settings) = text.split_once(':').unwrap_or((text, ""));
        Self::checked(name.trim(), Pairs::Text(settings))
    }

    /// The controller `name` with `settings` as pairs of key and value.
    ///
    /// # Errors
    /// As for [`parse`](Self::parse).
    pub fn new<'a>(name: &'a str, settings: &'a [(&'a str, &'a str)]) -> Result<Self, BuildError<'a>> {
        Self::checked(name, Pairs::List(settings))
    }
}

/// Why a text is no [`ControllerSpec`]: a [`BuildError`] that owns its message, so that it outlives
/// the text.
#[cfg(feature = "alloc")]
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParseSpecError(alloc::string::String);

#[cfg(feature = "alloc")]
impl From<BuildError<'_>> for ParseSpecError {
    fn from(error: BuildError<'_>) -> Self {
        ParseSpecError(alloc::string::ToString::to_string(&error))
    }
}

#[cfg(feature = "alloc")]
impl fmt::Display for ParseSpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(feature = "alloc")]
impl core::error::Error for ParseSpecError {}

/// As [`ControllerSpec::parse`], with an error that can be returned from where the text ends.
///
/// ```
/// use fullpipe_cc::ControllerSpec;
///
/// fn spec(argument: String) -> Result<ControllerSpec, Box<dyn std::error::Error>> {
///     Ok(argument.parse()?)
/// }
/// assert_eq!(spec("bbr3".to_owned()).unwrap().to_string(), "bbr3");
/// assert!(spec("bbr3:beta=1".to_owned()).unwrap_err().to_string().contains("beta"));
/// ```
#[cfg(feature = "alloc")]
impl core::str::FromStr for ControllerSpec {
    type Err = ParseSpecError;

    fn from_str(text: &str) -> Result<Self, ParseSpecError> {
        Ok(Self::parse(text)?)
    }
}

controllers! {
    BbrV1(crate::bbr::v1::BbrV1) bbr,
    Bbr3(crate::bbr::v3::Bbr3) bbr3,
    Cubic(crate::cubic::Cubic) cubic,
    Reno(crate::reno::Reno) reno,
    Hybla(crate::hybla::Hybla) hybla,
    Fixed(crate::fixed::Fixed) fixed,
    #[cfg(feature = "linux")]
    Vegas(crate::linux::vegas::Vegas) vegas,
    #[cfg(feature = "linux")]
    Westwood(crate::linux::westwood::Westwood) westwood,
    #[cfg(feature = "linux")]
    Illinois(crate::linux::illinois::Illinois) illinois,
    #[cfg(feature = "linux")]
    Htcp(crate::linux::htcp::Htcp) htcp,
    #[cfg(feature = "linux")]
    Bic(crate::linux::bic::Bic) bic,
    #[cfg(feature = "linux")]
    Yeah(crate::linux::yeah::Yeah) yeah,
    #[cfg(feature = "linux")]
    Veno(crate::linux::veno::Veno) veno,
    #[cfg(feature = "linux")]
    Scalable(crate::linux::scalable::Scalable) scalable,
    #[cfg(feature = "linux")]
    HighSpeed(crate::linux::highspeed::HighSpeed) highspeed,
    #[cfg(feature = "linux")]
    Dctcp(crate::linux::dctcp::Dctcp) dctcp,
    #[cfg(feature = "linux")]
    Lp(crate::linux::lp::Lp) lp,
    #[cfg(feature = "linux")]
    Nv(crate::linux::nv::Nv) nv,
    #[cfg(feature = "linux")]
    Cdg(crate::linux::cdg::Cdg) cdg,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{Ack, Recovery, RecoveryContext, Snapshot};
    use std::string::ToString;

    #[test]
    fn every_controller_is_found_by_its_names() {
        for about in CONTROLLERS {
            for name in core::iter::once(&about.name).chain(about.aliases) {
                let controller = ControllerSpec::new(name, &[]).unwrap().build(&Config::default());
                assert_eq!(controller.info(), about);
                assert_eq!(controller.cwnd(), Config::default().initial_cwnd);
            }
        }
        assert!(ControllerSpec::parse("CUBIC").is_ok());
    }

    #[test]
    fn only_controllers_that_may_use_ecn_claim_it() {
        struct Silent;
        impl CongestionControl for Silent {
            fn on_ack(&mut self, _: &Ack) {}
            fn on_recovery(&mut self, _: Recovery, _: &RecoveryContext) {}
            fn cwnd(&self) -> u64 {
                1
            }
            fn ssthresh(&self) -> u64 {
                1
            }
            fn snapshot(&self) -> Snapshot {
                Snapshot::default()
            }
        }
        assert!(!Silent.claims_ecn(), "the default of the interface");
        for about in CONTROLLERS {
            let controller = ControllerSpec::new(about.name, &[]).unwrap().build(&Config::default());
            assert_eq!(controller.claims_ecn(), about.name != "fixed", "{}", about.name);
        }
    }

    #[test]
    fn the_feature_linux_adds_the_controllers_that_its_list_names() {
        let added: std::vec::Vec<&str> =
            CONTROLLERS.iter().map(|about| about.name).filter(|name| LINUX.contains(name)).collect();
        if cfg!(feature = "linux") {
            assert_eq!(added, LINUX);
            assert!(LINUX.iter().all(|name| find(name).unwrap().kernel == Some(name)));
        } else {
            assert!(added.is_empty());
        }
    }

    #[test]
    fn no_two_controllers_share_a_name() {
        for (i, a) in CONTROLLERS.iter().enumerate() {
            for b in &CONTROLLERS[i + 1..] {
                for name in core::iter::once(&a.name).chain(a.aliases) {
                    assert!(b.name != *name && !b.aliases.contains(name), "{name}");
                }
            }
        }
    }

    #[test]
    fn the_documented_default_of_every_setting_is_accepted() {
        for about in CONTROLLERS {
            for s in about.settings {
                let pair = [(s.key, s.default)];
                let spec = ControllerSpec::new(about.name, &pair);
                assert!(spec.is_ok(), "{} {} = {}", about.name, s.key, s.default);
            }
        }
    }

    fn error(name: &str, settings: &[(&str, &str)]) -> std::string::String {
        ControllerSpec::new(name, settings).unwrap_err().to_string()
    }

    #[test]
    fn errors_name_the_fault_and_the_nearest_valid_name() {
        assert_eq!(error("cubik", &[]), "unknown controller `cubik`; did you mean `cubic`?");
        assert!(error("fast-one", &[]).contains("known: bbr, bbr3, cubic, reno"));
        assert_eq!(
            error("cubic", &[("hystrat", "off")]),
            "cubic has no setting `hystrat`; did you mean `hystart`?"
        );
        assert_eq!(error("reno", &[("beta", "1")]), "reno has no setting `beta`");
        assert_eq!(
            error("cubic", &[("hystart", "maybe")]),
            "cubic: invalid value `maybe` for `hystart`; expected linux, plus or off"
        );
    }

    #[test]
    fn text_is_parsed_as_pairs_are() {
        let text = ControllerSpec::parse(" bbr3 : beta_percent = 50 , ecn=off,").unwrap();
        assert_eq!(text, ControllerSpec::new("bbr3", &[("beta_percent", "50"), ("ecn", "off")]).unwrap());
        assert_eq!(ControllerSpec::parse("reno:").unwrap(), ControllerSpec::parse("newreno").unwrap());
        let error = ControllerSpec::parse("cubic:hystart").unwrap_err();
        assert_eq!(error.to_string(), "cubic: setting `hystart` has no value; expected KEY=VALUE");
        assert_eq!(ControllerSpec::parse("cubic:beta=1,beta=2").unwrap().to_string(), "cubic:beta=2");
    }

    #[test]
    fn every_setting_of_a_spec_is_written_and_parsed_back() {
        let check = |text: &str, expected: &str| {
            let spec = ControllerSpec::parse(text).unwrap();
            assert_eq!(spec.to_string(), expected);
            assert_eq!(ControllerSpec::parse(expected).unwrap(), spec, "{text}");
        };
        for about in CONTROLLERS {
            check(about.name, about.name);
            for one in about.settings {
                // A valid value besides the default.
                let values =
                    ["on", "off", "linux", "letter", "plus", "empty_acks", "0.3", "1.5", "2", "1", "30"];
                let mut accepted = 0;
                for value in values.into_iter().filter(|value| *value != one.default) {
                    let text = std::format!("{}:{}={value}", about.name, one.key);
                    let Ok(spec) = ControllerSpec::parse(&text) else { continue };
                    let written = spec.to_string();
                    assert_eq!(ControllerSpec::parse(&written).unwrap(), spec, "{text}: {written}");
                    accepted += u32::from(written != about.name);
                }
                assert!(accepted > 0, "{}: no value of `{}` is written", about.name, one.key);
            }
        }
        check("bbr:high_gain=2.5", "bbr:startup_pacing_gain=2.5,startup_cwnd_gain=2.5");
        check("cubic:hystart=off,hz=250", "cubic:hystart=off,hz=250");
        check("fixed:window=25", "fixed:window=25");
        // The default of an unpaced transport only.
        check("cubic:paced=off", "cubic:paced=off");
        // The draft's default, but not that of the variant.
        check("bbr3:variant=linux,startup_pacing_gain=2.77", "bbr3:variant=linux,startup_pacing_gain=2.77");
    }

    #[test]
    fn specs_are_shared_between_threads() {
        fn shared<T: Clone + Send + Sync + core::fmt::Debug + PartialEq + 'static>(_: &T) {}
        shared(&ControllerSpec::bbr3(Default::default()));
        assert_eq!(ControllerSpec::cubic(Default::default()), ControllerSpec::parse("cubic").unwrap());
        assert_eq!(ControllerSpec::bbr(crate::bbr::v1::Params::LINUX), ControllerSpec::parse("bbr").unwrap());
    }

    #[test]
    fn decimals_parse_without_floating_point() {
        assert_eq!(parse_decimal("2.885", 256), Some(739));
        assert_eq!(parse_decimal("1", 256), Some(256));
        assert_eq!(parse_decimal(".5", 256), Some(128));
        for bad in ["", ".", "-1", "1e3", "1.2.3", "0.00000000001", "99999999999999999999"] {
            assert_eq!(parse_decimal(bad, 256), None, "{bad}");
        }
    }
}
