//! Simulated days with and without faults, and the changes detected in them.

use crate::meshes::{Paths, bad_day, quiet_day, world};
use fullpipe_mesh::simulate::{Fault, Pools, SimulatedMesh};
use std::collections::BTreeMap;

/// More meshes than a normal run has time for: `FULLPIPE_MESHES="bursty 1 3 2"` tests meshes 1 to
/// 3, each with two days without faults and two with seven.
#[test]
#[ignore = "runs as long as configured"]
fn more_meshes() {
    let setting = std::env::var("FULLPIPE_MESHES").unwrap_or_else(|_| "mixed 3 4 1".into());
    let args: Vec<&str> = setting.split_whitespace().collect();
    let paths = match args.first().copied() {
        Some("mixed") => Paths::Mixed,
        Some("bursty") => Paths::Bursty,
        _ => panic!("FULLPIPE_MESHES=mixed|bursty FIRST LAST DAYS, not {setting}"),
    };
    let number = |nth: usize| args.get(nth).and_then(|text| text.parse::<u64>().ok()).unwrap_or(1);
    let (mut quiet, mut besides, mut days) = (Vec::new(), 0, 0);
    let mut located: BTreeMap<&str, BTreeMap<Option<u32>, u32>> = BTreeMap::new();
    for mesh in number(1)..=number(2) {
        let mut pools = Pools::default();
        for nth in 0..number(3) {
            let seed = mesh * 1000 + nth;
            let day = quiet_day(&SimulatedMesh { seed, ..world(paths, mesh, 1440) }, &mut pools);
            for change in &day.besides {
                println!("false: mesh {mesh} seed {seed}: {change:?}");
            }
            quiet.push(day.besides.len());
            let day = bad_day(&SimulatedMesh { seed, ..world(paths, mesh, 1200) }, seed, &mut pools);
            for change in &day.besides {
                println!("besides: mesh {mesh} seed {seed}: {change:?}");
            }
            (besides, days) = (besides + day.besides.len(), days + 1);
            for (fault, periods) in day.faults {
                let name = match (&fault.fault, fault.location) {
                    (Fault::Loss(_), fullpipe_mesh::location::Location::Direction(_)) => {
                        "1 % loss, one direction"
                    }
                    (Fault::Loss(_), _) => "1 % loss of all that a site receives",
                    (Fault::Rate(_), fullpipe_mesh::location::Location::Direction(_)) => {
                        "rate halved, one direction"
                    }
                    (Fault::Rate(_), _) => "rate halved of all that a site sends",
                    (Fault::Delay(_), _) => "round trip 50 ms longer",
                    (Fault::Policer(_), _) => "policer, one direction",
                    (Fault::Down, _) => "a site down",
                };
                if periods.is_none_or(|n| n > 3) {
                    println!(
                        "late: mesh {mesh} seed {seed}: {name} at {:?} from {}: {periods:?}",
                        fault.location, fault.from
                    );
                }
                *located.entry(name).or_default().entry(periods).or_default() += 1;
            }
        }
        eprintln!("mesh {mesh} of {paths:?}");
    }
    println!("false alarms in each of {days} days without faults: {quiet:?}");
    println!("changes besides the faults in as many days with them: {besides}");
    for (fault, periods) in located {
        let said: Vec<String> = periods
            .iter()
            .map(|(n, times)| {
                format!("{} periods: {times}", n.map_or("more than nine".into(), |n| n.to_string()))
            })
            .collect();
        println!("{fault:40} {}", said.join(", "));
    }
}

/// Ten days without faults.
fn has_few_false_alarms(mesh: u64) {
    let mut pools = Pools::default();
    let alarms: Vec<usize> = (0..10)
        .map(|nth| SimulatedMesh { seed: nth * 2 + mesh, ..world(Paths::Mixed, mesh, 1440) })
        .map(|day| quiet_day(&day, &mut pools).besides.len())
        .collect();
    assert!(alarms.iter().all(|n| *n <= 1), "{alarms:?}");
}

#[test]
fn days_without_faults_have_at_most_one_false_alarm() {
    has_few_false_alarms(1);
}

#[test]
#[ignore = "takes long: ./x test nightly"]
fn days_of_another_mesh_have_at_most_one_false_alarm() {
    has_few_false_alarms(2);
}

/// Ten days with seven faults each.
fn faults_are_located_within_three_periods(mesh: u64) {
    let (mut faults, mut besides) = (0, 0);
    let mut pools = Pools::default();
    for nth in 0..10 {
        let world = SimulatedMesh { seed: nth * 2 + mesh, ..world(Paths::Mixed, mesh, 1200) };
        let day = bad_day(&world, mesh, &mut pools);
        for (fault, periods) in &day.faults {
            assert!(
                periods.is_some_and(|n| n <= 3),
                "{:?} at {:?}: {periods:?}",
                fault.fault,
                fault.location
            );
        }
        (faults, besides) = (faults + day.faults.len(), besides + day.besides.len());
    }
    assert!(faults == 70 && besides <= 10, "{besides} changes besides {faults} faults");
}

#[test]
fn each_fault_is_located_within_three_periods() {
    faults_are_located_within_three_periods(1);
}

#[test]
#[ignore = "takes long: ./x test nightly"]
fn each_fault_of_another_mesh_is_located_within_three_periods() {
    faults_are_located_within_three_periods(2);
}
