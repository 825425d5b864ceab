//! The names that a scenario may use with given engines.

use crate::{Engine, programs};
use fullpipe_experiment::scenario::{Fault, UnavailableController, Vocabulary, is_program};

/// The names that a scenario may use if every one of `engines` is to run it. In the lab these
/// include the kernel's controllers, some of which are loaded only when a run asks for them.
pub fn vocabulary(engines: &[Engine]) -> Vocabulary {
    let simulated = fullpipe_cc::CONTROLLERS.iter().map(|c| c.name.to_owned());
    let mut vocabulary = Vocabulary::new(simulated);
    add_quic(&mut vocabulary, engines);
    #[cfg(feature = "lab")]
    let vocabulary = with_kernel_controllers(vocabulary, engines);
    vocabulary
}

/// Checks that `engines` have the controller `name`, which the user gave on the command line. Unlike
/// a scenario file, that may name a program: `exec:PROGRAM`.
///
/// # Errors
/// Why not, with what to do.
pub fn check_controller(name: &str, engines: &[Engine]) -> Result<(), Fault> {
    if is_program(name) {
        return programs::check(name, engines);
    }
    vocabulary(engines).check_controller(name)
}

/// Adds the controllers of QUIC flows, which only the simulator runs.
fn add_quic(vocabulary: &mut Vocabulary, engines: &[Engine]) {
    if engines.iter().any(|&engine| engine != Engine::Sim) {
        let refused = crate::quic_controllers().map(|name| UnavailableController {
            reason: format!("`{name}` runs over QUIC, but the lab measures the kernel's TCP"),
            help: "use the simulator: omit `--engine`".to_owned(),
            name,
        });
        return vocabulary.unavailable.extend(refused);
    }
    #[cfg(feature = "quic")]
    vocabulary.controllers.extend(crate::quic_controllers());
    #[cfg(not(feature = "quic"))]
    vocabulary.unavailable.extend(crate::stacks::not_built());
}

#[cfg(feature = "lab")]
fn with_kernel_controllers(mut vocabulary: Vocabulary, engines: &[Engine]) -> Vocabulary {
    use fullpipe_kernel::tcp_info::{EBPF_CONTROLLERS, LINUX_CONTROLLERS};

    vocabulary.whole_run_loss_only = engines.contains(&Engine::Lab);
    vocabulary.uses_kernel_tcp = engines.contains(&Engine::Lab);
    let available = fullpipe_lab::controllers();
    let named =
        EBPF_CONTROLLERS.map(|(name, _)| name).into_iter().chain(LINUX_CONTROLLERS).map(str::to_owned);
    for name in named.chain(available) {
        if vocabulary.controllers.contains(&name) || vocabulary.unavailable.iter().any(|r| r.name == name) {
            continue;
        }
        if engines == [Engine::Lab] {
            vocabulary.controllers.push(name);
            continue;
        }
        let help = match EBPF_CONTROLLERS.iter().find(|(ebpf, _)| *ebpf == name) {
            Some((_, same)) => format!("`{same}` is the same algorithm; or run it with `--engine lab`"),
            None => "run it with `--engine lab`".to_owned(),
        };
        let reason = format!("`{name}` is a kernel controller; the simulator does not have it");
        vocabulary.unavailable.push(UnavailableController { name, reason, help });
    }
    vocabulary
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_simulated_controller_is_accepted() {
        let vocabulary = vocabulary(&[Engine::Sim]);
        assert!(fullpipe_cc::CONTROLLERS.iter().all(|c| vocabulary.check_controller(c.name).is_ok()));
        assert!(!vocabulary.whole_run_loss_only);
    }

    #[test]
    fn quic_flows_are_accepted_where_they_are_built_in() {
        let checked = vocabulary(&[Engine::Sim]).check_controller("noq/bbr3");
        #[cfg(feature = "quic")]
        assert_eq!(checked, Ok(()));
        #[cfg(not(feature = "quic"))]
        assert!(checked.unwrap_err().help.unwrap().contains("--features quic"));
        let mistyped = vocabulary(&[Engine::Sim]).check_controller("nok/bbr3").unwrap_err();
        assert_eq!(mistyped.help.as_deref(), Some("did you mean `noq/bbr3`?"));
    }

    #[cfg(feature = "lab")]
    #[test]
    fn the_lab_refuses_quic_flows_with_the_reason() {
        let fault = vocabulary(&[Engine::Lab]).check_controller("noq/bbr3").unwrap_err();
        assert_eq!(fault.reason, "`noq/bbr3` runs over QUIC, but the lab measures the kernel's TCP");
    }

    #[cfg(feature = "lab")]
    #[test]
    fn kernel_only_controllers_are_refused_if_any_engine_simulates() {
        let refused = |engines: &[Engine]| vocabulary(engines).check_controller("fp_bbr1").err();
        assert_eq!(refused(&[Engine::Lab]), None);
        for engines in [&[Engine::Sim][..], &[Engine::Sim, Engine::Lab]] {
            let fault = refused(engines).unwrap();
            assert!(fault.help.unwrap().contains("--engine lab"), "{}", fault.reason);
        }
        for engines in [&[Engine::Sim][..], &[Engine::Sim, Engine::Lab]] {
            assert_eq!(vocabulary(engines).check_controller("illinois"), Ok(()));
        }
        let fault = vocabulary(&[Engine::Sim]).check_controller("fp_bbr3").unwrap_err();
        assert!(fault.help.unwrap().starts_with("`bbr3` is the same algorithm"));
    }
}
