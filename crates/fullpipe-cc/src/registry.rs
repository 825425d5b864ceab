//! The controllers by name.

use crate::control::{Ack, Config, CongestionControl, Lost, Recovery, RecoveryContext, Sent, Snapshot};
use core::fmt;
use fullpipe_units::{Rate, Span, Time};

/// Description of a controller.
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
pub enum SettingValue {
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

impl fmt::Display for SettingValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, of) = match *self {
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

/// Settings of one controller, as text. The last value of a repeated key wins.
#[derive(Clone, Copy, Debug)]
pub struct Settings<'a> {
    about: &'static ControllerInfo,
    pairs: &'a [(&'a str, &'a str)],
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
        for &(key, _) in pairs {
            if !about.settings.iter().any(|s| s.key == key) {
                let nearest = nearest_of(key, about.settings.iter().map(|s| (s.key, s.key)));
                return Err(BuildError::UnknownSetting { controller: about.name, key, nearest });
            }
        }
        Ok(Settings { about, pairs })
    }

    /// The text given for `key`.
    pub fn get(&self, key: &str) -> Option<&'a str> {
        self.pairs.iter().rev().find(|(k, _)| *k == key).map(|&(_, value)| value)
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

/// A controller that can be built by name.
pub trait Build: CongestionControl + Sized {
    /// Its description.
    const INFO: ControllerInfo;

    /// A controller for a new connection. Every key in `settings` is one of [`Self::INFO`].
    ///
    /// # Errors
    /// [`BuildError::InvalidValue`] for an invalid value of a setting.
    fn build<'a>(config: &Config, settings: Settings<'a>) -> Result<Self, BuildError<'a>>;
}

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
    ($($variant:ident($type:ty)),+ $(,)?) => {
        /// Any of the controllers, with static dispatch.
        #[derive(Clone, Debug)]
        #[allow(clippy::large_enum_variant, reason = "one per connection, and allocation is not available")]
        pub enum Controller {
            $(
                #[doc = concat!("See [`", stringify!($type), "`].")]
                $variant($type),
            )+
        }

        /// All controllers.
        pub static CONTROLLERS: &[ControllerInfo] = &[$(<$type as Build>::INFO),+];

        impl Controller {
            /// Builds the controller `name` with `settings` as pairs of key and value.
            ///
            /// # Errors
            /// An unknown name, an unknown setting or an invalid value; the error names it and what is
            /// accepted.
            pub fn new<'a>(
                name: &'a str,
                config: &Config,
                settings: &'a [(&'a str, &'a str)],
            ) -> Result<Self, BuildError<'a>> {
                let about = find(name).ok_or(BuildError::UnknownController { name })?;
                let settings = Settings::new(about, settings)?;
                $(
                    if about.name == <$type as Build>::INFO.name {
                        return <$type as Build>::build(config, settings).map(Self::$variant);
                    }
                )+
                Err(BuildError::UnknownController { name })
            }

            /// Its description.
            pub fn info(&self) -> &'static ControllerInfo {
                let name = match self {
                    $(Self::$variant(_) => <$type as Build>::INFO.name,)+
                };
                find(name).unwrap_or(&CONTROLLERS[0])
            }
        }

        impl CongestionControl for Controller {
            #[inline]
            fn on_handshake(&mut self, now: Time, rtt: Span) {
                match self { $(Self::$variant(c) => c.on_handshake(now, rtt),)+ }
            }
            #[inline]
            fn on_send(&mut self, sent: &Sent) {
                match self { $(Self::$variant(c) => c.on_send(sent),)+ }
            }
            #[inline]
            fn on_lost(&mut self, lost: &Lost) {
                match self { $(Self::$variant(c) => c.on_lost(lost),)+ }
            }
            #[inline]
            fn on_ack(&mut self, ack: &Ack) {
                match self { $(Self::$variant(c) => c.on_ack(ack),)+ }
            }
            #[inline]
            fn on_recovery(&mut self, event: Recovery, context: &RecoveryContext) {
                match self { $(Self::$variant(c) => c.on_recovery(event, context),)+ }
            }
            #[inline]
            fn on_mtu(&mut self, smss: u32) {
                match self { $(Self::$variant(c) => c.on_mtu(smss),)+ }
            }
            #[inline]
            fn cwnd(&self) -> u64 {
                match self { $(Self::$variant(c) => c.cwnd(),)+ }
            }
            #[inline]
            fn ssthresh(&self) -> u64 {
                match self { $(Self::$variant(c) => c.ssthresh(),)+ }
            }
            #[inline]
            fn pacing_rate(&self) -> Option<Rate> {
                match self { $(Self::$variant(c) => c.pacing_rate(),)+ }
            }
            #[inline]
            fn send_quantum(&self) -> u64 {
                match self { $(Self::$variant(c) => c.send_quantum(),)+ }
            }
            #[inline]
            fn uses_prr(&self) -> bool {
                match self { $(Self::$variant(c) => c.uses_prr(),)+ }
            }
            #[inline]
            fn claims_ecn(&self) -> bool {
                match self { $(Self::$variant(c) => c.claims_ecn(),)+ }
            }

            fn in_cwr(&self) -> bool {
                match self { $(Self::$variant(c) => c.in_cwr(),)+ }
            }
            #[inline]
            fn marks_app_limited(&self) -> bool {
                match self { $(Self::$variant(c) => c.marks_app_limited(),)+ }
            }
            fn snapshot(&self) -> Snapshot {
                match self { $(Self::$variant(c) => c.snapshot(),)+ }
            }
            #[inline]
            fn state(&self) -> &'static str {
                match self { $(Self::$variant(c) => CongestionControl::state(c),)+ }
            }
        }
    };
}

controllers! {
    BbrV1(crate::bbr::v1::BbrV1),
    Bbr3(crate::bbr::v3::Bbr3),
    Cubic(crate::cubic::Cubic),
    Reno(crate::reno::Reno),
    Hybla(crate::hybla::Hybla),
    Fixed(crate::fixed::Fixed),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_controller_is_found_by_its_names() {
        for about in CONTROLLERS {
            for name in core::iter::once(&about.name).chain(about.aliases) {
                let controller = Controller::new(name, &Config::default(), &[]).unwrap();
                assert_eq!(controller.info(), about);
                assert_eq!(controller.cwnd(), Config::default().initial_cwnd);
            }
        }
        assert!(Controller::new("CUBIC", &Config::default(), &[]).is_ok());
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
            let controller = Controller::new(about.name, &Config::default(), &[]).unwrap();
            assert_eq!(controller.claims_ecn(), about.name != "fixed", "{}", about.name);
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
                let made = Controller::new(about.name, &Config::default(), &pair);
                assert!(made.is_ok(), "{} {} = {}", about.name, s.key, s.default);
            }
        }
    }

    fn error(name: &str, settings: &[(&str, &str)]) -> std::string::String {
        use std::string::ToString;
        Controller::new(name, &Config::default(), settings).unwrap_err().to_string()
    }

    #[test]
    fn errors_name_the_fault_and_the_nearest_valid_name() {
        assert_eq!(error("cubik", &[]), "unknown controller `cubik`; did you mean `cubic`?");
        assert!(error("westwood", &[]).contains("known: bbr, bbr3, cubic, reno"));
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
    fn decimals_parse_without_floating_point() {
        assert_eq!(parse_decimal("2.885", 256), Some(739));
        assert_eq!(parse_decimal("1", 256), Some(256));
        assert_eq!(parse_decimal(".5", 256), Some(128));
        for bad in ["", ".", "-1", "1e3", "1.2.3", "0.00000000001", "99999999999999999999"] {
            assert_eq!(parse_decimal(bad, 256), None, "{bad}");
        }
    }
}
