//! Simulated days with and without faults, and what is told of them.

mod meshes;

use fullpipe_mesh::simulate::{Fault, Pools, SimulatedMesh};
use meshes::{Paths, bad_day, quiet_day, world};
use std::collections::BTreeMap;

/// Of more meshes than there is time for in every run: `FULLPIPE_MESHES="bursty 1 3 2"` are those from 1 to 3, of each two days without
/// faults and two with seven.
#[test]
#[ignore = "runs as long as configured"]
fn more_meshes() {
    let reported = std::env::var("FULLPIPE_MESHES").unwrap_or_else(|_| "mixed 3 4 1".into());
    let args: Vec<&str> = reported.split_whitespace().collect();
    let paths = match args.first().copied() {
        Some("mixed") => Paths::Mixed,
        Some("bursty") => Paths::Bursty,
        _ => panic!("FULLPIPE_MESHES=mixed|bursty FIRST LAST DAYS, not {reported}"),
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

/// Ten days with and ten without faults of each of two meshes.
#[test]
fn a_day_without_faults_is_quiet() {
    let mut reported = Vec::new();
    for mesh in [1, 2] {
        let mut pools = Pools::default();
        for nth in 0..10 {
            let seed = nth * 2 + mesh;
            reported.push(
                quiet_day(&SimulatedMesh { seed, ..world(Paths::Mixed, mesh, 1440) }, &mut pools)
                    .besides
                    .len(),
            );
        }
    }
    assert!(reported.len() == 20 && reported.iter().all(|alarms| *alarms <= 1), "{reported:?}");
}

#[test]
fn each_fault_is_located_within_three_periods() {
    let (mut faults, mut besides) = (0, 0);
    for mesh in [1, 2] {
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
    }
    // Of twenty days of seven faults each.
    assert!(faults == 140 && besides <= 20, "{besides} changes besides {faults} faults");
}
