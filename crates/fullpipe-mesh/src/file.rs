//! The mesh file: sites, transfers and daily budgets. Every site uses the same file.

use crate::record::SiteId;
use fullpipe_experiment::document::{Document, Fault, FileError, nearest};
use fullpipe_experiment::regular_file;
use fullpipe_units::{Bytes, Rate, Span};
use serde::Deserialize;
use std::collections::HashMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use toml::de::DeTable;

/// The default port of a mesh, TCP and UDP.
pub const PORT: u16 = 5301;
/// Maximum number of sites: each sends to all others.
pub const MAX_SITES: usize = 64;
/// Maximum number of controllers.
pub const MAX_CONTROLLERS: usize = 8;
/// Maximum size of a mesh or paths file; all paths of 64 sites need a tenth of it.
pub const MAX_FILE_BYTES: u64 = 16 << 20;
const PERIOD_RANGE: [Span; 2] = [Span::from_secs(1), Span::from_secs(3600)];
pub(crate) const SIZE_RANGE: [u64; 2] = [16 << 10, 1 << 30];
/// Bytes of a UDP probe on the wire, with IPv6 and UDP headers.
pub(crate) const PROBE_BYTES: u64 = 176;
/// Overhead of a transfer in 64ths of its payload: headers, acknowledgements and retransmissions.
const OVERHEAD_64THS: u64 = 6;

/// A mesh as described by its file.
#[derive(Clone, PartialEq, Debug)]
pub struct Mesh {
    /// Name, the same at all members.
    pub name: String,
    /// Time between the transfers of a connection.
    pub period: Span,
    /// Payload of a transfer, bytes.
    pub size: u64,
    /// Controllers by kernel name; the first is the baseline.
    pub controllers: Vec<String>,
    /// Whether the controllers of a pair send at the same time, to measure how they share.
    pub together: bool,
    /// Time limit of a transfer.
    pub limit: Span,
    /// Days that records are kept.
    pub retention_days: u32,
    /// File with the mesh key, or with the keys of this site's pairs.
    pub key_file: PathBuf,
    /// The site that collects all records.
    pub collector: Option<SiteId>,
    /// The sites.
    pub sites: Vec<Site>,
}

/// A site.
#[derive(Clone, PartialEq, Debug)]
pub struct Site {
    /// Site name.
    pub name: String,
    /// Host name or address at which other sites reach it.
    pub address: String,
    /// TCP and UDP port.
    pub port: u16,
    /// Daily limit of bytes sent plus received.
    pub budget: u64,
    /// Link rate, if given: to check whether all transfers fit into a period.
    pub rate: Option<Rate>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFile {
    mesh: RawMesh,
    #[serde(default)]
    site: Vec<RawSite>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawMesh {
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
struct RawSite {
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
    /// As [`parse`](Mesh::parse), or if the file cannot be read.
    pub fn read(path: &Path) -> Result<Mesh, FileError> {
        let name = path.display().to_string();
        let text = regular_file::read_text(path, MAX_FILE_BYTES)
            .map_err(|e| FileError::whole(&name, format!("cannot read: {e}")))?;
        let mut mesh = Mesh::parse(&name, &text)?;
        if let Some(directory) = path.parent() {
            mesh.key_file = directory.join(&mesh.key_file);
        }
        Ok(mesh)
    }

    /// Parses the contents `text` of the mesh file `name`.
    ///
    /// # Errors
    /// What is wrong, where in the file, and what to do.
    pub fn parse(name: &str, text: &str) -> Result<Mesh, FileError> {
        let document = Document { name, text };
        let table = DeTable::parse(text).map_err(|e| document.toml_error(&e))?;
        let raw = RawFile::deserialize(toml::Deserializer::from(table.clone()))
            .map_err(|e| document.toml_error(&e))?;
        raw.validate().map_err(|fault| document.fault(&fault, table.get_ref(), ""))
    }

    /// The site named `name`.
    pub fn site(&self, name: &str) -> Option<SiteId> {
        self.sites.iter().position(|s| s.name == name).map(|i| i as SiteId)
    }

    /// The site named `name`, or an error message.
    ///
    /// # Errors
    /// Suggests the nearest name or lists all.
    pub fn find_site(&self, name: &str) -> Result<SiteId, String> {
        let names = || self.sites.iter().map(|s| s.name.as_str());
        self.site(name).ok_or_else(|| match nearest(name, names()) {
            Some(near) => {
                format!("mesh {} has no site `{name}`; did you mean `{near}`?", self.name)
            }
            None => {
                format!(
                    "mesh {} has no site `{name}`; its sites are {}",
                    self.name,
                    names().collect::<Vec<_>>().join(", ")
                )
            }
        })
    }

    /// Bytes a day that a site sends and receives by plan: transfers with headers, and UDP probes.
    pub fn planned_bytes_per_day(&self) -> u64 {
        planned_bytes(self.sites.len(), self.controllers.len(), self.size, self.period)
    }
}

fn planned_bytes(sites: usize, controllers: usize, size: u64, period: Span) -> u64 {
    const DAY: u64 = 86_400;
    let peers = sites.saturating_sub(1) as u64;
    let transfers = u128::from(DAY) * 1_000_000_000 / u128::from(period.as_nanos().max(1));
    let moved = size + size / 64 * OVERHEAD_64THS;
    let transfers = transfers.saturating_mul(u128::from(2 * peers * controllers as u64) * u128::from(moved));
    // Requests and replies, of both ends.
    let probes = u128::from(4 * peers * DAY * PROBE_BYTES);
    u64::try_from(transfers + probes).unwrap_or(u64::MAX)
}

impl RawFile {
    fn validate(self) -> Result<Mesh, Fault> {
        let RawFile { mesh, site } = self;
        let m = |key: &str, reason: String| Fault::new(&format!("mesh.{key}"), reason);
        check_name(&mesh.name).map_err(|reason| m("name", reason))?;
        if mesh.key_file.as_os_str().is_empty() {
            return Err(
                m("key_file", "is empty".into()).help("create one with `fullpipe probe key --out mesh.key`")
            );
        }
        if !(PERIOD_RANGE[0]..=PERIOD_RANGE[1]).contains(&mesh.period) {
            return Err(m(
                "period",
                format!(
                    "must be between {1} and {2}, got {0}",
                    mesh.period, PERIOD_RANGE[0], PERIOD_RANGE[1]
                ),
            ));
        }
        if !(SIZE_RANGE[0]..=SIZE_RANGE[1]).contains(&mesh.size.0) {
            let reason = format!(
                "must be between {1} and {2}, got {0}",
                mesh.size,
                Bytes(SIZE_RANGE[0]),
                Bytes(SIZE_RANGE[1])
            );
            return Err(m("size", reason));
        }
        if mesh.controllers.is_empty() || mesh.controllers.len() > MAX_CONTROLLERS {
            return Err(m("controllers", format!("must name 1 to {MAX_CONTROLLERS} controllers")));
        }
        for (i, name) in mesh.controllers.iter().enumerate() {
            let key = format!("controllers.{i}");
            let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
            if name.is_empty() || name.len() > 15 || !name.bytes().all(plain) {
                let reason = format!("`{name}` is not a valid controller name");
                return Err(m(&key, reason).help("use 1 to 15 letters, digits, `_` or `-`, such as `bbr`"));
            }
            if mesh.controllers[..i].contains(name) {
                return Err(m(&key, format!("`{name}` is listed twice")));
            }
        }
        let limit = mesh.limit.unwrap_or(mesh.period / 3);
        if limit.is_zero() || limit > mesh.period {
            return Err(m(
                "limit",
                format!("must be above 0 and at most the period of {}, got {limit}", mesh.period),
            ));
        }
        if !(1..=3660).contains(&mesh.retention_days) {
            return Err(m(
                "retention_days",
                format!("must be between 1 and 3660, got {}", mesh.retention_days),
            ));
        }
        if mesh.port == 0 {
            return Err(m("port", "must be between 1 and 65535, got 0".into()));
        }
        let plan = planned_bytes(site.len(), mesh.controllers.len(), mesh.size.0, mesh.period);
        let budget = match &mesh.budget {
            Some(text) => parse_budget(text).map_err(|reason| m("budget", reason).help(BUDGET_HELP))?,
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
            let id = result.find_site(name).map_err(|reason| m("collector", reason))?;
            result.collector = Some(id);
        }
        Ok(result)
    }
}

const BUDGET_HELP: &str = "write it as in `40g/day`";

fn sites(raw: Vec<RawSite>, port: u16, budget: u64) -> Result<Vec<Site>, Fault> {
    if !(2..=MAX_SITES).contains(&raw.len()) {
        let reason = format!("a mesh needs 2 to {MAX_SITES} sites, got {}", raw.len());
        return Err(
            Fault::new("site", reason).help("add a table `[[site]]` with `name` and `address` for each site")
        );
    }
    let (mut names, mut addresses) = (HashMap::new(), HashMap::new());
    let mut sites = Vec::with_capacity(raw.len());
    for (i, site) in raw.into_iter().enumerate() {
        let wrong = |key: &str, reason: String| Fault::new(&format!("site.{i}.{key}"), reason);
        check_name(&site.name).map_err(|reason| wrong("name", reason))?;
        if let Some(first) = names.insert(site.name.to_lowercase(), i) {
            return Err(wrong("name", format!("`{}` is already the name of site {}", site.name, first + 1)));
        }
        let address = site.address.trim();
        let host = |b: u8| b.is_ascii_alphanumeric() || b == b'.' || b == b'-' || b == b'_';
        let is_ip = address.parse::<IpAddr>().is_ok();
        if !is_ip && (address.is_empty() || address.len() > 253 || !address.bytes().all(host)) {
            return Err(wrong("address", format!("`{address}` is not an address or host name")).help(
                "write it as in `192.0.2.7`, `2001:db8::7` or `probe.example.org`; set the port with `port`",
            ));
        }
        let port = site.port.unwrap_or(port);
        if port == 0 {
            return Err(wrong("port", "must be between 1 and 65535, got 0".into()));
        }
        if let Some(first) = addresses.insert((address.to_lowercase(), port), i) {
            return Err(wrong(
                "address",
                format!("{address} port {port} is already used by site {}", first + 1),
            ));
        }
        let budget = match &site.budget {
            Some(text) => parse_budget(text).map_err(|reason| wrong("budget", reason).help(BUDGET_HELP))?,
            None => budget,
        };
        if site.rate == Some(Rate::ZERO) {
            return Err(wrong("rate", "must be above 0".into()));
        }
        sites.push(Site { name: site.name, address: address.to_owned(), port, budget, rate: site.rate });
    }
    Ok(sites)
}

/// Whether the name is safe to print in tables, pages and terminals.
pub(crate) fn is_plain(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'.' || b == b'_' || b == b'-';
    (1..=32).contains(&name.len()) && name.bytes().all(plain)
}

fn check_name(name: &str) -> Result<(), String> {
    let wrong = || format!("`{name}` is not a valid name: use 1 to 32 letters, digits, `.`, `_` or `-`");
    is_plain(name).then_some(()).ok_or_else(wrong)
}

fn parse_budget(text: &str) -> Result<u64, String> {
    let Some(size) = text.trim().strip_suffix("/day") else {
        return Err(format!("`{text}` has no time unit"));
    };
    let Bytes(bytes) = size.parse::<Bytes>().map_err(|e| e.to_string())?;
    if bytes == 0 { Err("must be above 0".to_owned()) } else { Ok(bytes) }
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
    fn a_minimal_file_gets_the_defaults_of_the_paper() {
        let mesh = Mesh::parse("m.toml", FILE).unwrap();
        assert_eq!((mesh.period, mesh.size), (Span::from_secs(60), 8 << 20));
        assert_eq!(mesh.controllers, ["cubic", "bbr"]);
        assert_eq!((mesh.sites[0].port, mesh.sites[1].port), (PORT, 7000));
        assert_eq!(mesh.sites[1].budget, 10 << 30);
        // Two controllers, one-minute period, both directions: 5 760 transfers of 8 MiB, plus
        // headers.
        let payload = 1440 * 2 * 2 * (8u64 << 20);
        let plan = mesh.planned_bytes_per_day();
        assert!(plan > payload && plan < payload * 12 / 10, "{plan}");
        assert_eq!(mesh.sites[0].budget, plan + plan / 2);
    }

    #[test]
    fn errors_name_the_place_and_the_remedy() {
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
        assert!(
            wrong(FILE.split("[[site]]").next().unwrap())
                .message
                .contains("a mesh needs 2 to 64 sites, got 0")
        );
        assert!(wrong(&FILE.replace("\"sea\"", "\"s e a\"")).message.contains("not a valid name"));
        let mesh = Mesh::parse("m.toml", FILE).unwrap();
        assert!(mesh.find_site("lob").unwrap_err().contains("did you mean `lab`"));
    }
}
