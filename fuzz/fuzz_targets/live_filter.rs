//! Which connections `watch` and `export` are to show: a filter is refused with its place and a
//! remedy that a terminal may show, or it keeps to logic on connections that are made of the
//! filter's own words.
#![no_main]

use fullpipe_kernel::tcp_info::State;
use fullpipe_live::filter::{Filter, Subject};
use fullpipe_live::{Owner, Process};
use libfuzzer_sys::fuzz_target;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

fuzz_target!(|text: &str| {
    let filter = match text.parse::<Filter>() {
        Ok(filter) => filter,
        Err(error) => {
            let said = error.to_string();
            // Before and after what was typed and the marks beneath it.
            assert!(said.lines().count() >= 4);
            assert!(!said.chars().any(|c| c.is_control() && c != '\n'));
            assert!(!error.one_line().contains('\n'));
            return;
        }
    };
    assert_eq!(text.parse::<Filter>().as_ref(), Ok(&filter));
    // One more of each may be too deep, there may be nothing to negate, and a quote that is open takes
    // the bracket in.
    let negated = Filter::parse(&format!("not ({text})"));
    for of_words in &[(0, 1), (1, 0), (2, 3), (5, 2)] {
        let (owner, subject) = connection(text, *of_words);
        let subject = Subject { owner: &owner, ..subject };
        let wanted = filter.matches(&subject);
        assert_eq!(wanted, filter.matches(&subject));
        // The reader does not look up owners that no filter needs.
        if !filter.needs_owners() {
            assert_eq!(filter.matches(&Subject { owner: &Owner::default(), ..subject }), wanted);
        }
        if let Ok(negated) = &negated {
            assert_ne!(negated.matches(&subject), wanted);
            assert_eq!(negated.needs_owners(), filter.needs_owners());
        }
        assert!(Filter::everything().matches(&subject));
    }
});

/// Has the addresses, ports and names that the filter speaks of, as far as it does, so that
/// conditions hold as often as not.
fn connection(text: &str, (local, remote): (usize, usize)) -> (Owner, Subject<'_>) {
    const NOBODY: &Owner = &Owner { process: None, cgroup: None };
    let words =
        || text.split(|c: char| c.is_whitespace() || "()!&|=<>\"'[]/".contains(c)).filter(|w| !w.is_empty());
    let addresses: Vec<IpAddr> = words().filter_map(|w| w.parse().ok()).collect();
    let ports: Vec<u16> = words().filter_map(|w| w.rsplit(':').next()?.parse().ok()).collect();
    let end = |i: usize| {
        // As a socket of IPv6 has it that speaks IPv4, too.
        let mapped = |ip: IpAddr| match ip {
            IpAddr::V4(ip) if i.is_multiple_of(2) => IpAddr::V6(ip.to_ipv6_mapped()),
            ip => ip,
        };
        let other = if i.is_multiple_of(2) { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
        SocketAddr::new(
            addresses.get(i).copied().map_or(other, mapped),
            ports.get(i).map_or(443, |port| port.wrapping_add(i as u16 / 2)),
        )
    };
    let name = words().nth(local);
    let owner = Owner {
        process: name.map(|name| {
            let pid = words().find_map(|w| w.parse().ok()).unwrap_or(1);
            Process { pid, name: name.to_owned() }.into()
        }),
        cgroup: words().last().map(|word| format!("/{word}/{word}.service").into()),
    };
    let states = [State::Established, State::SynSent, State::CloseWait, State::Close, State::Other(200)];
    let subject = Subject {
        local: end(local),
        remote: end(remote),
        state: states[(text.len() + local) % states.len()],
        controller: words().last(),
        owner: NOBODY,
    };
    (owner, subject)
}
