//! s2n-quic connections with fullpipe's controllers, with real TLS, in virtual time.

mod tls;
mod transfer;
mod wire;

#[test]
fn try_it() {
    for cc in ["bbr3", "cubic"] {
        let mut sum = 0.0;
        for seed in 1..=5 {
            let start = std::time::Instant::now();
            let report = transfer::Transfer::over_100mbit(cc, "1%", seed).run();
            sum += report.goodput;
            println!(
                "{cc} 1% {:.2} goodput: {} queue {} lost {} sent {}",
                start.elapsed().as_secs_f64(),
                report.goodput,
                report.median_queue,
                report.lost / 1472,
                report.sent
            );
        }
        println!("mean goodput: {}", sum / 5.0);
    }
}
