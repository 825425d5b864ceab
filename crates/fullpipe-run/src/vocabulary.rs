//! The names that a scenario may use with given engines.

use crate::Engine;
use fullpipe_experiment::scenario::Vocabulary;

/// The names that a scenario may use if every one of `engines` is to run it. In the lab these
/// include the kernel's controllers, some of which are loaded only when a run asks for them.
pub fn vocabulary(engines: &[Engine]) -> Vocabulary {
    let simulated = fullpipe_cc::CONTROLLERS.iter().map(|c| c.name.to_owned());
    let vocabulary = Vocabulary::new(simulated);
    #[cfg(feature = "lab")]
    let vocabulary = with_kernel_controllers(vocabulary, engines);
    #[cfg(not(feature = "lab"))]
    let _ = engines;
    vocabulary
}

#[cfg(feature = "lab")]
fn with_kernel_controllers(mut vocabulary: Vocabulary, engines: &[Engine]) -> Vocabulary {
    use fullpipe_experiment::scenario::UnavailableController;
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

    #[cfg(feature = "lab")]
    #[test]
    fn kernel_only_controllers_are_refused_if_any_engine_simulates() {
        let refused = |engines: &[Engine]| vocabulary(engines).check_controller("vegas").err();
        assert_eq!(refused(&[Engine::Lab]), None);
        for engines in [&[Engine::Sim][..], &[Engine::Sim, Engine::Lab]] {
            let fault = refused(engines).unwrap();
            assert!(fault.help.unwrap().contains("--engine lab"), "{}", fault.reason);
        }
        let fault = vocabulary(&[Engine::Sim]).check_controller("fp_bbr3").unwrap_err();
        assert!(fault.help.unwrap().starts_with("`bbr3` is the same algorithm"));
    }
}
