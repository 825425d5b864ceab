//! Offloads of network cards: segmentation of large sends, coalescing of received packets.

use super::{Context, Finding, Group, Verdict};
use crate::host::Host;
use crate::net::DeviceFeatures;
use fullpipe_units::Rate;

const TSO: &str = "tx-tcp-segmentation";
const TSO6: &str = "tx-tcp6-segmentation";
const GSO: &str = "tx-generic-segmentation";
const GRO: &str = "rx-gro";
const LRO: &str = "rx-lro";
/// From this rate (170 000 full packets per second) the CPU cost of missing offloads matters.
const FAST: u64 = 2_000_000_000;

pub(super) fn check(context: &Context, findings: &mut Vec<Finding>) {
    if context.facts.identity.running {
        findings.extend(offloads(context));
    }
}

/// Whether a device is hardware or paravirtual. Loopback, veth, bridges and bonds do not segment
/// themselves; their offloads only move the work.
fn is_card(host: &dyn Host, device: &str) -> bool {
    host.exists(&format!("/sys/class/net/{device}/device"))
        && host.text(&format!("/sys/class/net/{device}/operstate")).as_deref() != Some("down")
}

/// Link speed; virtual cards often report none (`-1`, or a read error).
fn speed(host: &dyn Host, device: &str) -> Option<Rate> {
    let megabits: u64 = host.text(&format!("/sys/class/net/{device}/speed"))?.parse().ok()?;
    (megabits > 0 && megabits < u64::from(u32::MAX)).then(|| Rate::from_bits_per_sec(megabits * 1_000_000))
}

/// A card with its speed.
struct Card<'a> {
    features: &'a DeviceFeatures,
    speed: Option<Rate>,
}

impl Card<'_> {
    fn shown(&self) -> String {
        let speed = self.speed.map_or("unknown speed".to_owned(), |r| r.to_string());
        format!("{} ({speed})", self.features.device)
    }

    /// A card without a known speed counts as fast.
    fn may_be_fast(&self) -> bool {
        self.speed.is_none_or(|r| r.as_bits_per_sec() >= FAST)
    }

    fn values(&self) -> String {
        let state = |(name, feature): (&str, &str)| {
            let value = if self.features.on(feature) { "on" } else { "off" };
            let fixed = !self.features.changeable.iter().any(|f| f == feature);
            format!("{name} {value}{}", if fixed { " (fixed)" } else { "" })
        };
        [("TSO", TSO), ("TSO IPv6", TSO6), ("GSO", GSO), ("GRO", GRO), ("LRO", LRO)].map(state).join(", ")
    }
}

fn offloads(context: &Context) -> Option<Finding> {
    let host = context.host;
    let finding = |verdict, state: String| {
        Finding::new("offloads", Group::Tuning, verdict, state).why(
            "without TSO each packet costs the sender CPU, and BBR mistakes a busy CPU for a slow path; \
             without GRO the receiver pays the same; LRO merges packets irreversibly, which breaks \
             forwarding. GSO is not judged: TCP always uses it since 4.17",
            "Linux Documentation/networking/segmentation-offloads.rst; sk_setup_caps in net/core/sock.c; \
             dev_disable_lro in net/core/dev.c",
        )
    };
    let all = match host.features() {
        Ok(all) => all,
        Err(e) => {
            let cards = host.list("/sys/class/net").unwrap_or_default();
            return cards.iter().any(|d| is_card(host, d)).then(|| {
                finding(Verdict::Unknown, format!("offloads are not readable: {e}"))
                    .read("ethtool netlink (Linux 5.7 and later)", "not readable")
                    .advice(
                        "check with `ethtool -k DEV`: tcp-segmentation-offload and generic-receive-offload \
                         should be on",
                    )
            });
        }
    };
    let cards: Vec<Card> = all
        .iter()
        .filter(|f| is_card(host, &f.device))
        .map(|features| Card { features, speed: speed(host, &features.device) })
        .collect();
    if cards.is_empty() {
        return None;
    }
    let forwards = ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"]
        .iter()
        .any(|name| context.number(name).is_some_and(|v| v != 0));
    let mut verdict = Verdict::Ok;
    let mut wrong = Vec::new();
    let mut commands = Vec::new();
    for card in &cards {
        let device = &card.features.device;
        let cut = [TSO, TSO6].iter().any(|f| card.features.can_enable(f));
        if cut && card.may_be_fast() {
            let certain = card.speed.is_some() && context.paced();
            verdict = verdict.min(if certain { Verdict::Warn } else { Verdict::Advice });
            wrong.push(format!("TSO is off on {}", card.shown()));
            // TSO needs both: netdev_fix_features disables it otherwise.
            commands.push(format!("ethtool -K {device} tx on sg on tso on"));
        }
        if card.features.can_enable(GRO) && card.may_be_fast() {
            verdict = verdict.min(Verdict::Advice);
            wrong.push(format!("GRO is off on {}", card.shown()));
            commands.push(format!("ethtool -K {device} gro on"));
        }
        if card.features.on(LRO) && forwards {
            verdict = verdict.min(Verdict::Advice);
            wrong.push(format!("LRO is on for {device}, and this host forwards packets"));
            commands.push(format!("ethtool -K {device} lro off"));
        }
    }
    let state = if wrong.is_empty() {
        let names: Vec<String> = cards.iter().map(Card::shown).collect();
        format!("all relevant offloads are on: {}", names.join(", "))
    } else {
        wrong.join("; ")
    };
    let mut found = finding(verdict, state);
    for card in &cards {
        let device = &card.features.device;
        found = found.read(format!("ethtool netlink, features of {device}"), card.values()).read(
            format!("/sys/class/net/{device}/speed"),
            card.speed.map_or("unknown".to_owned(), |r| r.to_string()),
        );
    }
    Some(if commands.is_empty() {
        found
    } else {
        found
            .advice(format!("`{}` (until the next restart; it may be off for a reason)", commands.join("; ")))
    })
}
