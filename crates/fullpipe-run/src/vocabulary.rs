//! What a scenario may name where it is to run.

use crate::Engine;
use fullpipe_experiment::scenario::Vocabulary;

/// What a scenario may say that each of `engines` is to run. In the lab controllers are the kernel's, too, some
/// of which only show when a run asks for them.
pub fn vocabulary(engines: &[Engine]) -> Vocabulary {
    let simulated = fullpipe_cc::CONTROLLERS.iter().map(|c| c.name.to_owned());
    let vocabulary = Vocabulary::new(simulated);
    #[cfg(feature = "lab")]
    let vocabulary = with_the_kernels(vocabulary, engines);
    #[cfg(not(feature = "lab"))]
    let _ = engines;
    vocabulary
}

#[cfg(feature = "lab")]
fn with_the_kernels(mut vocabulary: Vocabulary, engines: &[Engine]) -> Vocabulary {
    use fullpipe_experiment::scenario::UnavailableController;
    use fullpipe_kernel::tcp_info::{EBPF_CONTROLLERS, LINUX_CONTROLLERS};

    vocabulary.whole_run_loss_only = engines.contains(&Engine::Lab);
    vocabulary.uses_kernel_tcp = engines.contains(&Engine::Lab);
    let there = fullpipe_lab::controllers();
    let named =
        EBPF_CONTROLLERS.map(|(name, _)| name).into_iter().chain(LINUX_CONTROLLERS).map(str::to_owned);
    for name in named.chain(there) {
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
        let reason = format!("`{name}` is a controller of the kernel only: the simulator has none");
        vocabulary.unavailable.push(UnavailableController { name, reason, help });
    }
    vocabulary
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_can_be_simulated_may_be_named() {
        let vocabulary = vocabulary(&[Engine::Sim]);
        assert!(fullpipe_cc::CONTROLLERS.iter().all(|c| vocabulary.check_controller(c.name).is_ok()));
        assert!(!vocabulary.whole_run_loss_only);
    }

    #[cfg(feature = "lab")]
    #[test]
    fn what_only_the_kernel_has_is_refused_where_something_is_simulated() {
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
