//! The mesh file: which sites there are, what they send each other, and how much of it a day. The same file lies on each site.

use crate::record::SiteId;
use fullpipe_experiment::document::{Document, Fault, FileError, nearest};
use fullpipe_experiment::regular_file;
use fullpipe_units::{Bytes, Rate, Span};
use serde::Deserialize;
use std::collections::HashMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use toml::de::DeTable;

/// The port of a mesh, TCP and UDP, unless its file names another.
pub const PORT: u16 = 5301;
/// Most sites of a mesh: each sends to all others.
pub const MOST_SITES: usize = 64;
/// Most controllers that are compared.
pub const MOST_CONTROLLERS: usize = 8;
/// What a mesh file or one of paths may have: all paths of 64 sites need a tenth of it.
pub const MOST_BYTES: u64 = 16 << 20;
const PERIODS: [Span; 2] = [Span::from_secs(1), Span::from_secs(3600)];
const SIZES: [u64; 2] = [16 << 10, 1 << 30];
/// Bytes of a small probe on the wire, with the headers of IPv6 and UDP.
pub(crate) const PROBE_BYTES: u64 = 176;
/// What a transfer costs beyond its payload, in parts of 64: headers of full segments, acknowledgements, and what is sent again.
const OVERHEAD_64THS: u64 = 6;

/// A mesh, as its file says.
#[derive(Clone, PartialEq, Debug)]
pub struct Mesh {
    /// Its name, which all members know.
    pub name: String,
    /// From one transfer of a connection to the next.
    pub period: Span,
    /// Payload of a transfer, in bytes.
    pub size: u64,
    /// Controllers by the kernel's names; the first is what the others are compared with.
    pub controllers: Vec<String>,
    /// Whether the controllers of a pair send at the same time, to see how they share.
    pub together: bool,
    /// The longest that a transfer may take.
    pub limit: Span,
    /// For how many days records are kept.
    pub retention_days: u32,
    /// The file with the mesh's key, or with the keys of this site's pairs.
    pub key_file: PathBuf,
    /// The site that pulls everybody's records by itself.
    pub collector: Option<SiteId>,
    /// Its sites.
    pub sites: Vec<Site>,
}

/// A site.
#[derive(Clone, PartialEq, Debug)]
pub struct Site {
    /// Its name.
    pub name: String,
    /// The host or address by which the others reach it.
    pub address: String,
    /// Of TCP and UDP.
    pub port: u16,
    /// Bytes a day, sent and received together, that it never goes beyond.
    pub budget: u64,
    /// What its link carries, if the file says it: to judge whether all transfers fit into a period.
    pub rate: Option<Rate>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    mesh: WrittenMesh,
    #[serde(default)]
    site: Vec<WrittenSite>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenMesh {
    name: String,
    key_file: PathBuf,
    #[serde(default = "default_period")]
    period: Span,
    #[serde(default = "default_size")]
    size: Bytes,
    #[serde(default = "default_controllers")]
    controllers: Vec<String>,
    #[serde(default)]
    together: bool,
    limit: Option<Span>,
    #[serde(default = "default_port")]
    port: u16,
    budget: Option<String>,
    #[serde(default = "default_retention")]
    retention_days: u32,
    collector: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenSite {
    name: String,
    address: String,
    port: Option<u16>,
    budget: Option<String>,
    rate: Option<Rate>,
}

fn default_period() -> Span {
    Span::from_secs(60)
}

fn default_size() -> Bytes {
    Bytes(8 << 20)
}

fn default_controllers() -> Vec<String> {
    vec!["cubic".to_owned(), "bbr".to_owned()]
}

fn default_port() -> u16 {
    PORT
}

fn default_retention() -> u32 {
    400
}

impl Mesh {
    /// Reads the mesh file at `path`.
    ///
    /// # Errors
    /// As [`parse`](Mesh::parse), or that the file cannot be read.
    pub fn read(path: &Path) -> Result<Mesh, FileError> {
        let name = path.display().to_string();
        let text = regular_file::read_text(path, MOST_BYTES)
            .map_err(|e| FileError::whole(&name, format!("cannot be read: {e}")))?;
        let mut mesh = Mesh::parse(&name, &text)?;
        if let Some(directory) = path.parent() {
            mesh.key_file = directory.join(&mesh.key_file);
        }
        Ok(mesh)
    }

    /// Reads the mesh file `name` with the contents `text`.
    ///
    /// # Errors
    /// What is wrong, where in the file, and what to do.
    pub fn parse(name: &str, text: &str) -> Result<Mesh, FileError> {
        let document = Document { name, text };
        let table = DeTable::parse(text).map_err(|e| document.toml_error(&e))?;
        let written = Written::deserialize(toml::Deserializer::from(table.clone()))
            .map_err(|e| document.toml_error(&e))?;
        written.checked().map_err(|fault| document.fault(&fault, table.get_ref(), ""))
    }

    /// The site that is called `name`.
    pub fn site(&self, name: &str) -> Option<SiteId> {
        self.sites.iter().position(|s| s.name == name).map(|i| i as SiteId)
    }

    /// The site that is called `name`, or what to say where there is none.
    ///
    /// # Errors
    /// The name that was meant, or all.
    pub fn known_site(&self, name: &str) -> Result<SiteId, String> {
        let names = || self.sites.iter().map(|s| s.name.as_str());
        self.site(name).ok_or_else(|| match nearest(name, names()) {
            Some(near) => {
                format!("the mesh {} has no site `{name}`: did you mean `{near}`?", self.name)
            }
            None => {
                format!(
                    "the mesh {} has no site `{name}`; it has {}",
                    self.name,
                    names().collect::<Vec<_>>().join(", ")
                )
            }
        })
    }

    /// Bytes a day that a site is to send and to receive by plan: transfers with their headers, and small probes.
    pub fn planned_a_day(&self) -> u64 {
        planned(self.sites.len(), self.controllers.len(), self.size, self.period)
    }
}

fn planned(sites: usize, controllers: usize, size: u64, period: Span) -> u64 {
    const DAY: u64 = 86_400;
    let peers = sites.saturating_sub(1) as u64;
    let transfers = u128::from(DAY) * 1_000_000_000 / u128::from(period.as_nanos().max(1));
    let moved = size + size / 64 * OVERHEAD_64THS;
    let transfers = transfers.saturating_mul(u128::from(2 * peers * controllers as u64) * u128::from(moved));
    // Questions and answers, of both ends.
    let probes = u128::from(4 * peers * DAY * PROBE_BYTES);
    u64::try_from(transfers + probes).unwrap_or(u64::MAX)
}

impl Written {
    fn checked(self) -> Result<Mesh, Fault> {
        let Written { mesh, site } = self;
        let m = |key: &str, reason: String| Fault::new(&format!("mesh.{key}"), reason);
        named(&mesh.name).map_err(|reason| m("name", reason))?;
        if mesh.key_file.as_os_str().is_empty() {
            return Err(
                m("key_file", "is empty".into()).help("`fullpipe probe key --out mesh.key` makes one")
            );
        }
        if !(PERIODS[0]..=PERIODS[1]).contains(&mesh.period) {
            return Err(m(
                "period",
                format!("{} is not between {} and {}", mesh.period, PERIODS[0], PERIODS[1]),
            ));
        }
        if !(SIZES[0]..=SIZES[1]).contains(&mesh.size.0) {
            let reason = format!("{} is not between {} and {}", mesh.size, Bytes(SIZES[0]), Bytes(SIZES[1]));
            return Err(m("size", reason));
        }
        if mesh.controllers.is_empty() || mesh.controllers.len() > MOST_CONTROLLERS {
            return Err(m("controllers", format!("between 1 and {MOST_CONTROLLERS} are compared")));
        }
        for (i, name) in mesh.controllers.iter().enumerate() {
            let key = format!("controllers.{i}");
            let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
            if name.is_empty() || name.len() > 15 || !name.bytes().all(plain) {
                let reason = format!("`{name}` cannot be the kernel's name of a controller");
                return Err(m(&key, reason).help("1 to 15 letters, digits, `_` or `-`, such as `bbr`"));
            }
            if mesh.controllers[..i].contains(name) {
                return Err(m(&key, format!("`{name}` is named twice")));
            }
        }
        let limit = mesh.limit.unwrap_or(mesh.period / 3);
        if limit.is_zero() || limit > mesh.period {
            return Err(m("limit", format!("{limit} is not between 0 and the period of {}", mesh.period)));
        }
        if !(1..=3660).contains(&mesh.retention_days) {
            return Err(m("retention_days", format!("{} is not between 1 and 3660", mesh.retention_days)));
        }
        if mesh.port == 0 {
            return Err(m("port", "0 is no port that others could connect to".into()));
        }
        let plan = planned(site.len(), mesh.controllers.len(), mesh.size.0, mesh.period);
        let budget = match &mesh.budget {
            Some(text) => a_day(text).map_err(|reason| m("budget", reason).help(A_DAY))?,
            None => plan + plan / 2,
        };
        let sites = sites(site, mesh.port, budget)?;
        let mut result = Mesh {
            name: mesh.name,
            period: mesh.period,
            size: mesh.size.0,
            controllers: mesh.controllers,
            together: mesh.together,
            limit,
            retention_days: mesh.retention_days,
            key_file: mesh.key_file,
            collector: None,
            sites,
        };
        if let Some(name) = &mesh.collector {
            let id = result.known_site(name).map_err(|reason| m("collector", reason))?;
            result.collector = Some(id);
        }
        Ok(result)
    }
}

const A_DAY: &str = "write for example `40g/day`";

fn sites(written: Vec<WrittenSite>, port: u16, budget: u64) -> Result<Vec<Site>, Fault> {
    if !(2..=MOST_SITES).contains(&written.len()) {
        let reason = format!("{} sites are no mesh: between 2 and {MOST_SITES}", written.len());
        return Err(Fault::new("site", reason).help("each is a table `[[site]]` with `name` and `address`"));
    }
    let (mut names, mut places) = (HashMap::new(), HashMap::new());
    let mut sites = Vec::with_capacity(written.len());
    for (i, site) in written.into_iter().enumerate() {
        let wrong = |key: &str, reason: String| Fault::new(&format!("site.{i}.{key}"), reason);
        named(&site.name).map_err(|reason| wrong("name", reason))?;
        if let Some(first) = names.insert(site.name.to_lowercase(), i) {
            return Err(wrong("name", format!("`{}` is site {} already", site.name, first + 1)));
        }
        let address = site.address.trim();
        let host = |b: u8| b.is_ascii_alphanumeric() || b == b'.' || b == b'-' || b == b'_';
        let is_ip = address.parse::<IpAddr>().is_ok();
        if !is_ip && (address.is_empty() || address.len() > 253 || !address.bytes().all(host)) {
            return Err(wrong("address", format!("`{address}` is neither an address nor a host's name"))
                .help("such as `192.0.2.7`, `2001:db8::7` or `probe.example.org`; a port goes into `port`"));
        }
        let port = site.port.unwrap_or(port);
        if port == 0 {
            return Err(wrong("port", "0 is no port that others could connect to".into()));
        }
        if let Some(first) = places.insert((address.to_lowercase(), port), i) {
            return Err(wrong("address", format!("{address} port {port} is site {} already", first + 1)));
        }
        let budget = match &site.budget {
            Some(text) => a_day(text).map_err(|reason| wrong("budget", reason).help(A_DAY))?,
            None => budget,
        };
        if site.rate == Some(Rate::ZERO) {
            return Err(wrong("rate", "a link that carries nothing".into()));
        }
        sites.push(Site { name: site.name, address: address.to_owned(), port, budget, rate: site.rate });
    }
    Ok(sites)
}

/// Whether it can be a name: it stands in tables, pages and terminals as it is.
pub(crate) fn is_plain(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'.' || b == b'_' || b == b'-';
    (1..=32).contains(&name.len()) && name.bytes().all(plain)
}

fn named(name: &str) -> Result<(), String> {
    let wrong = || format!("`{name}` is no name: 1 to 32 letters, digits, `.`, `_` or `-`");
    is_plain(name).then_some(()).ok_or_else(wrong)
}

fn a_day(text: &str) -> Result<u64, String> {
    let Some(size) = text.trim().strip_suffix("/day") else {
        return Err(format!("`{text}` does not say in which time"));
    };
    let Bytes(bytes) = size.parse::<Bytes>().map_err(|e| e.to_string())?;
    if bytes == 0 { Err("nothing could ever be sent".to_owned()) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
[mesh]
name = "oceans"
key_file = "mesh.key"

[[site]]
name = "lab"
address = "192.0.2.1"

[[site]]
name = "sea"
address = "sea.example.org"
port = 7000
budget = "10g/day"
"#;

    fn wrong(text: &str) -> FileError {
        Mesh::parse("m.toml", text).expect_err("an error")
    }

    #[test]
    fn a_short_file_gets_the_papers_mesh() {
        let mesh = Mesh::parse("m.toml", FILE).unwrap();
        assert_eq!((mesh.period, mesh.size), (Span::from_secs(60), 8 << 20));
        assert_eq!(mesh.controllers, ["cubic", "bbr"]);
        assert_eq!((mesh.sites[0].port, mesh.sites[1].port), (PORT, 7000));
        assert_eq!(mesh.sites[1].budget, 10 << 30);
        // Two controllers, a minute apart, there and back: 5 760 transfers of 8 MiB, and some headers.
        let payload = 1440 * 2 * 2 * (8u64 << 20);
        let plan = mesh.planned_a_day();
        assert!(plan > payload && plan < payload * 12 / 10, "{plan}");
        assert_eq!(mesh.sites[0].budget, plan + plan / 2);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place_and_what_to_do() {
        let cases = [
            ("key_file", "keyfile", "4:1", "did you mean `key_file`?"),
            ("\"sea\"", "\"Lab\"", "11:8", ""),
            ("sea.example.org", "sea.example.org:7000", "12:11", "`port`"),
            ("10g/day", "10g", "14:10", "40g/day"),
            ("name = \"oceans\"", "name = \"oceans\"\ncontrollers = [\"bbr\", \"bbr\"]", "4:23", ""),
            ("name = \"oceans\"", "name = \"oceans\"\nperiod = \"2h\"", "4:10", ""),
            ("name = \"oceans\"", "name = \"oceans\"\ncollector = \"seaa\"", "4:13", ""),
            ("sea.example.org\"\nport = 7000", "192.0.2.1\"", "12:11", ""),
        ];
        for (from, to, place, help) in cases {
            let text = FILE.replacen(from, to, 1);
            assert_ne!(text, FILE, "{from}");
            let error = wrong(&text);
            let at = format!("{}:{}", error.line, error.column);
            assert!(at == place, "{at} and not {place}: {error}");
            assert!(error.help.as_deref().unwrap_or_default().contains(help), "{error}");
        }
        assert!(wrong(FILE.split("[[site]]").next().unwrap()).message.contains("0 sites are no mesh"));
        assert!(wrong(&FILE.replace("\"sea\"", "\"s e a\"")).message.contains("no name"));
        let mesh = Mesh::parse("m.toml", FILE).unwrap();
        assert!(mesh.known_site("lob").unwrap_err().contains("did you mean `lab`"));
    }
}
