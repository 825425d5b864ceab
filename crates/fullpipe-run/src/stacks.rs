//! The names of flows over QUIC stacks, also where those are not built in: `bbr3@noq` is a
//! controller of fullpipe in the stack noq, `noq/bbr3` the stack's own.

#[cfg(not(feature = "quic"))]
use fullpipe_experiment::scenario::UnavailableController;

/// The QUIC stacks, with the names of their own controllers.
const STACKS: [(&str, &[&str]); 2] =
    [("noq", &["bbr3", "cubic", "reno"]), ("quinn", &["bbr", "cubic", "reno"])];

/// Controllers that draw random numbers from the system: each run differs.
const NOT_REPEATABLE: [&str; 2] = ["noq/bbr3", "quinn/bbr"];

/// How to build fullpipe with QUIC.
#[cfg(not(feature = "quic"))]
const BUILD: &str = "build it with `cargo build --release -p fullpipe --features quic`";

/// The controllers of flows over QUIC stacks.
pub fn quic_controllers() -> impl Iterator<Item = String> {
    let ours = |stack| fullpipe_cc::CONTROLLERS.iter().map(move |c| format!("{}@{stack}", c.name));
    let own = |stack, own: &'static [&str]| own.iter().map(move |cc| format!("{stack}/{cc}"));
    STACKS.iter().flat_map(move |&(stack, names)| ours(stack).chain(own(stack, names)))
}

/// `name` with the controller before `@` under its own name instead of an alias.
pub(crate) fn canonical(name: &str) -> Option<String> {
    let (cc, stack) = name.split_once('@')?;
    let about = fullpipe_cc::registry::find(cc)?;
    Some(format!("{}@{}", about.name, stack.to_ascii_lowercase()))
}

/// Whether the same seed gives the same bytes.
pub(crate) fn is_repeatable(cc: &str) -> bool {
    !NOT_REPEATABLE.contains(&cc)
}

/// Why a flow cannot run over a QUIC stack in this program.
#[cfg(not(feature = "quic"))]
pub(crate) fn not_built() -> impl Iterator<Item = UnavailableController> {
    quic_controllers().map(|name| UnavailableController {
        reason: format!("`{name}` runs over QUIC, which this program is built without"),
        help: BUILD.to_owned(),
        name,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_experiment::scenario::is_quic;

    #[test]
    fn names_of_quic_flows_differ_from_those_of_tcp() {
        let names: Vec<String> = quic_controllers().collect();
        assert!(
            names.contains(&"hybla@quinn".to_owned())
                && names.contains(&"noq/bbr3".to_owned())
                && names.contains(&"quinn/bbr".to_owned())
        );
        assert!(names.iter().all(|name| is_quic(name)));
        assert!(NOT_REPEATABLE.iter().all(|name| names.iter().any(|known| known == name)));
        assert!(fullpipe_cc::CONTROLLERS.iter().all(|c| !is_quic(c.name)));
    }

    #[cfg(feature = "quic")]
    #[test]
    fn the_names_and_their_repeatability_are_those_of_the_stacks() {
        use fullpipe_experiment::scenario::FlowSpec;
        use fullpipe_quic::harness::Stacks;
        use fullpipe_sim::Transports;

        let sorted = |mut names: Vec<String>| {
            names.sort();
            names
        };
        assert_eq!(sorted(quic_controllers().collect()), sorted(Stacks.names()));
        for name in Stacks.names() {
            let facts = Stacks.facts(&FlowSpec::bulk(name.as_str()));
            assert_eq!(facts.repeatable, is_repeatable(&name), "{name}");
        }
    }
}
