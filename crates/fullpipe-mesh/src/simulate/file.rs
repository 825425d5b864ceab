//! The file that describes the paths of a mesh and their faults, for a simulation.

use super::{Fault as FaultKind, InjectedFault, SimulatedMesh};
use crate::file::Mesh;
use crate::location::Location;
use crate::record::Pair;
use fullpipe_experiment::document::{Document, Fault, FileError};
use fullpipe_path::{LinkSpec, PolicerSpec};
use fullpipe_units::{Bytes, Fraction, Span};
use serde::Deserialize;
use toml::de::DeTable;

/// Default number of transfers simulated for each state of a path.
const DEFAULT_POOL: u16 = 24;
/// Midnight of 1 January 2026, UTC: a simulation has no clock.
const START_MS: i64 = 1_767_225_600_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFile {
    /// The link of directions without a `[[path]]` of their own.
    all: LinkSpec,
    #[serde(default)]
    path: Vec<RawPath>,
    #[serde(default)]
    fault: Vec<RawFault>,
    receive_buffer: Option<Bytes>,
    #[serde(default = "default_pool")]
    pool: u16,
}

fn default_pool() -> u16 {
    DEFAULT_POOL
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPath {
    between: Option<[String; 2]>,
    from: Option<String>,
    to: Option<String>,
    link: LinkSpec,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFault {
    at: Span,
    lasts: Option<Span>,
    site: Option<String>,
    sends: Option<String>,
    receives: Option<String>,
    between: Option<[String; 2]>,
    from: Option<String>,
    to: Option<String>,
    loss: Option<Fraction>,
    rate_times: Option<f64>,
    delay: Option<Span>,
    policer: Option<PolicerSpec>,
    #[serde(default)]
    down: bool,
}

impl SimulatedMesh {
    /// Parses the paths file `name` with the contents `text` for a mesh, over a duration, with a
    /// seed.
    ///
    /// # Errors
    /// What is wrong in the file, where, and what to do.
    pub fn parse(
        mesh: &Mesh,
        name: &str,
        text: &str,
        duration: Span,
        seed: u64,
    ) -> Result<SimulatedMesh, FileError> {
        let document = Document { name, text };
        let table = DeTable::parse(text).map_err(|e| document.toml_error(&e))?;
        let written = RawFile::deserialize(toml::Deserializer::from(table.clone()))
            .map_err(|e| document.toml_error(&e))?;
        written.world(mesh, duration, seed).map_err(|fault| document.fault(&fault, table.get_ref(), ""))
    }
}

impl RawFile {
    fn world(self, mesh: &Mesh, duration: Span, seed: u64) -> Result<SimulatedMesh, Fault> {
        if self.pool == 0 || self.pool > 1000 {
            return Err(Fault::new("pool", format!("must be between 1 and 1000, got {}", self.pool)));
        }
        let periods = duration.as_nanos() / mesh.period.as_nanos().max(1);
        let mut world = SimulatedMesh {
            sites: mesh.sites.iter().map(|site| site.name.clone()).collect(),
            controllers: mesh.controllers.clone(),
            period: mesh.period,
            limit: mesh.limit,
            size: Bytes(mesh.size),
            receive_buffer: self.receive_buffer,
            start_ms: START_MS,
            periods: u32::try_from(periods).unwrap_or(u32::MAX),
            seed,
            pool: self.pool,
            links: Default::default(),
            faults: Vec::new(),
        };
        for pair in world.pairs() {
            world.links.insert(pair, self.all.clone());
        }
        for (nth, path) in self.path.into_iter().enumerate() {
            let at = |key: &str| format!("path.{nth}.{key}");
            let pairs = match (&path.between, &path.from, &path.to) {
                (Some([a, b]), None, None) => {
                    let pair = pair(mesh, &at("between"), a, b)?;
                    vec![pair, pair.reversed()]
                }
                (None, Some(from), Some(to)) => vec![pair(mesh, &at("from"), from, to)?],
                _ => {
                    return Err(Fault::new(&at("link"), "the path has no direction")
                        .help("set `from` and `to`, or `between = [\"a\", \"b\"]` for both directions"));
                }
            };
            for pair in pairs {
                world.links.insert(pair, path.link.clone());
            }
        }
        for (nth, fault) in self.fault.into_iter().enumerate() {
            let injected = fault.injected(mesh, nth)?;
            world.faults.push(injected);
        }
        Ok(world)
    }
}

fn pair(mesh: &Mesh, key: &str, from: &str, to: &str) -> Result<Pair, Fault> {
    let of = |name: &str| mesh.find_site(name).map_err(|reason| Fault::new(key, reason));
    let pair = Pair { from: of(from)?, to: of(to)? };
    if pair.from == pair.to {
        return Err(Fault::new(key, format!("`{from}` cannot have a path to itself")));
    }
    Ok(pair)
}

impl RawFault {
    fn injected(self, mesh: &Mesh, nth: usize) -> Result<InjectedFault, Fault> {
        let at = |key: &str| format!("fault.{nth}.{key}");
        let of = |key: &str, name: &str| mesh.find_site(name).map_err(|reason| Fault::new(&at(key), reason));
        let location = match (&self.site, &self.sends, &self.receives, &self.between, &self.from, &self.to) {
            (Some(site), None, None, None, None, None) => Location::Site(of("site", site)?),
            (None, Some(site), None, None, None, None) => Location::Sending(of("sends", site)?),
            (None, None, Some(site), None, None, None) => Location::Receiving(of("receives", site)?),
            (None, None, None, Some([a, b]), None, None) => {
                Location::Both(pair(mesh, &at("between"), a, b)?.unordered())
            }
            (None, None, None, None, Some(from), Some(to)) => {
                Location::Direction(pair(mesh, &at("from"), from, to)?)
            }
            _ => {
                return Err(Fault::new(&at("at"), "a fault needs exactly one location").help(
                    "set `site`, `sends` or `receives` to a site, `between` to two, or `from` and `to`",
                ));
            }
        };
        let fault = match (self.loss, self.rate_times, self.delay, self.policer, self.down) {
            (Some(share), None, None, None, false) => FaultKind::Loss(share),
            (None, Some(times), None, None, false) if times > 0.0 && times <= 1000.0 => {
                FaultKind::Rate(times)
            }
            (None, Some(times), None, None, false) => {
                return Err(Fault::new(
                    &at("rate_times"),
                    format!("must be above 0 and at most 1000, got {times}"),
                ));
            }
            (None, None, Some(more), None, false) => FaultKind::Delay(more),
            (None, None, None, Some(policer), false) => FaultKind::Policer(policer),
            (None, None, None, None, true) => FaultKind::Down,
            _ => {
                return Err(Fault::new(&at("at"), "a fault needs exactly one effect")
                    .help("set `loss`, `rate_times`, `delay`, `policer` or `down = true`"));
            }
        };
        let period =
            |span: Span| u32::try_from(span.as_nanos() / mesh.period.as_nanos().max(1)).unwrap_or(u32::MAX);
        let from = period(self.at);
        let until = self.lasts.map_or(u32::MAX, |lasts| period(self.at + lasts));
        Ok(InjectedFault { from, until, location, fault })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESH: &str = "[mesh]\nname = \"m\"\nkey_file = \"k\"\n[[site]]\nname = \"lab\"\naddress \
        = \"10.0.0.1\"\n\
                        [[site]]\nname = \"sea\"\naddress = \"10.0.0.2\"\n";

    fn world(text: &str) -> Result<SimulatedMesh, FileError> {
        let mesh = Mesh::parse("mesh.toml", MESH).unwrap();
        SimulatedMesh::parse(&mesh, "paths.toml", text, Span::from_secs(3600), 1)
    }

    #[test]
    fn a_paths_file_is_parsed() {
        let world = world(
            "[all]\nrate = \"100mbit\"\ndelay = \"20ms\"\n[[path]]\nfrom = \"lab\"\nto = \"sea\"\nlink = \
                { rate = \"10mbit\" }\n\
             [[fault]]\nat = \"10min\"\nlasts = \"5min\"\nbetween = [\"sea\", \"lab\"]\ndelay = \"25ms\"\n",
        )
        .unwrap();
        let rate = |from, to| world.links[&Pair { from, to }].rate.unwrap().as_bits_per_sec();
        assert_eq!((rate(0, 1), rate(1, 0), world.periods), (10_000_000, 100_000_000, 60));
        let location = Location::Both(Pair { from: 0, to: 1 });
        let fault = FaultKind::Delay(Span::from_millis(25));
        assert_eq!(world.faults, [InjectedFault { from: 10, until: 15, location, fault }]);
    }

    #[test]
    fn errors_name_the_place() {
        for (text, said) in [
            ("[all]\n[[path]]\nfrom = \"lab\"\nto = \"see\"\nlink = {}", "sea"),
            ("[all]\n[[path]]\nfrom = \"lab\"\nlink = {}", "no direction"),
            ("[all]\n[[path]]\nbetween = [\"lab\", \"lab\"]\nlink = {}", "itself"),
            ("[all]\n[[fault]]\nat = \"1s\"\nsite = \"lab\"", "exactly one effect"),
            ("[all]\n[[fault]]\nat = \"1s\"\ndown = true", "exactly one location"),
            ("[all]\n[[fault]]\nat = \"1s\"\nsite = \"lab\"\nrate_times = -1.0", "above 0"),
            ("pool = 0\n[all]", "between 1"),
            ("[all]\nrat = 1", "rat"),
        ] {
            let error = world(text).unwrap_err();
            assert!(error.to_string().contains(said) && error.line > 0, "{text}: {error}");
        }
    }
}
