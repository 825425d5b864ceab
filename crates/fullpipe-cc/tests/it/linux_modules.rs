//! Recordings of the modules of a Linux kernel, replayed call by call: window, count, threshold,
//! limit and result must be the kernel's after every call.
//!
//! `scripts/linux-controllers` makes the recordings; `docs/evidence/linux-controllers.md` lists them.
//! A recording is zlib's: a line with the kernel's release, then per flow a line with its name, its
//! number of calls and bytes, and the calls. A call is its kind, a mask of the columns that differ
//! from the call of that kind before, and the differences as zigzag varints.
use flate2::read::ZlibDecoder;
use fullpipe_cc::Config;
use fullpipe_cc::linux::{
    AckSample, CaEvent, CaState, Module, Tcp, bic, cdg, dctcp, highspeed, htcp, illinois, lp, nv, scalable,
    vegas, veno, westwood, yeah,
};
use fullpipe_cc::loss_based::{LossBased, Window};
use fullpipe_cc::reno::RenoGrowth;
use std::io::Read;

/// Debian's `CONFIG_HZ`.
const HZ: u32 = 250;

/// Columns of a call: the clock, what the callback found, its arguments, its result, what it left, and
/// the first word of NV's state.
const COLUMNS: usize = 27;
const STATES: [CaState; 5] =
    [CaState::Open, CaState::Disorder, CaState::Cwr, CaState::Recovery, CaState::Loss];

/// A callback as the kernel made it.
#[derive(Clone, Copy, Debug)]
struct Call {
    kind: u64,
    columns: [i64; COLUMNS],
}

impl Call {
    fn at(&self, column: usize) -> u32 {
        self.columns[column] as u32
    }

    /// What it left: window, count, threshold and limit, stored as differences to what it found.
    fn left(&self) -> [u32; 4] {
        core::array::from_fn(|i| (self.columns[22 + i] + self.columns[1 + i]) as u32)
    }

    fn tcp(&self) -> Tcp {
        Tcp {
            jiffies: self.at(0),
            snd_una: self.at(6),
            snd_nxt: self.at(7),
            mss: self.at(8),
            delivered: self.at(9),
            delivered_ce: self.at(10),
            sacked_out: self.at(11),
            max_packets_out: self.at(12),
            rcv_tsval: self.at(13),
            rcv_tsecr: self.at(14),
            mstamp_us: self.columns[15] as u64,
            is_cwnd_limited: self.at(16) != 0,
            state: STATES[self.at(17) as usize],
            random: 0,
        }
    }

    fn arguments(&self) -> [u32; 3] {
        [self.at(18), self.at(19), self.at(20)]
    }
}

struct Flow {
    name: String,
    calls: Vec<Call>,
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let (mut value, mut shift) = (0, 0);
    loop {
        let (byte, rest) = bytes.split_first().expect("the recording is complete");
        *bytes = rest;
        value |= u64::from(byte & 127) << shift;
        shift += 7;
        if byte & 128 == 0 {
            return value;
        }
    }
}

fn line<'a>(bytes: &mut &'a [u8]) -> &'a str {
    let end = bytes.iter().position(|b| *b == b'\n').expect("a line ends");
    let (line, rest) = bytes.split_at(end);
    *bytes = &rest[1..];
    std::str::from_utf8(line).expect("text")
}

/// The kernel of the recordings of `controller`, and its flows.
fn read(controller: &str) -> (String, Vec<Flow>) {
    let path = format!("{}/tests/linux_modules/{controller}.rec", env!("CARGO_MANIFEST_DIR"));
    let file = std::fs::File::open(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let mut content = Vec::new();
    ZlibDecoder::new(file).read_to_end(&mut content).expect("zlib");
    let mut bytes = &content[..];
    let head = line(&mut bytes);
    let release = head.strip_prefix("fullpipe/linux-controller/1 ").expect("a recording").to_owned();
    let mut flows = Vec::new();
    while !bytes.is_empty() {
        let words: Vec<&str> = line(&mut bytes).split(' ').collect();
        let [name, count, length] = words[..] else { panic!("{words:?}") };
        let (mut body, rest) = bytes.split_at(length.parse().unwrap());
        bytes = rest;
        let mut last = [[0i64; COLUMNS]; 8];
        let mut calls = Vec::new();
        while !body.is_empty() {
            let kind = varint(&mut body);
            let mask = varint(&mut body);
            let columns = &mut last[kind as usize];
            for (i, column) in columns.iter_mut().enumerate() {
                if mask >> i & 1 == 1 {
                    let difference = varint(&mut body);
                    *column += (difference >> 1) as i64 ^ -((difference & 1) as i64);
                }
            }
            calls.push(Call { kind, columns: *columns });
        }
        assert_eq!(calls.len(), count.parse::<usize>().unwrap(), "{controller} {name}");
        if controller == "lp" {
            // The ACK of the SYN comes before `init`, and finds TCP-LP's state zero. The window that it
            // leaves is replaced by the initial one.
            calls.drain(..calls.iter().position(|call| call.kind == 0).expect("init"));
        }
        flows.push(Flow { name: name.to_owned(), calls });
    }
    (release, flows)
}

/// What random number the kernel's module must have drawn, by what it led to.
type Draw = fn(&Call, &mut Tcp);

fn no_random(_: &Call, _: &mut Tcp) {}

/// NV renews its minimum round-trip time after 3/4 to 5/4 of five seconds: the time is its first word.
fn draw_of_nv(call: &Call, tcp: &mut Tcp) {
    let ticks = (call.columns[26] as u32).wrapping_sub(tcp.jiffies);
    let share = (u64::from(ticks) << 9).div_ceil(u64::from(5 * HZ));
    tcp.random = (share as u32).wrapping_sub(384) & 0xff;
}

/// CDG backs off, which sets the threshold and the count, or does not.
fn draw_of_cdg(call: &Call, tcp: &mut Tcp) {
    let [cwnd, count, threshold, _] = call.left();
    let backs_off = call.kind == 2
        && tcp.state < CaState::Cwr
        && (cwnd, count) == (call.at(1), 0)
        && threshold == (cwnd.wrapping_mul(724) >> 10).max(2);
    tcp.random = if backs_off { u32::MAX } else { 0 };
}

/// Replays a flow. The error names the first call that differs.
fn replay<M: Module>(mut module: M, draw: Draw, flow: &Flow) -> Result<usize, String> {
    let mut window: Window = *LossBased::new(&Config::default(), RenoGrowth).window();
    for (number, call) in flow.calls.iter().enumerate() {
        let mut tcp = call.tcp();
        draw(call, &mut tcp);
        let (w, [a, b, c]) = (&mut window, call.arguments());
        [w.cwnd, w.cwnd_count, w.ssthresh, w.clamp] = [1, 2, 3, 4].map(|i| call.at(i));
        let prior = call.at(5);
        let mut result = 0;
        match call.kind {
            0 => module.init(w, &tcp),
            1 => result = module.ssthresh(w, &tcp),
            2 => {
                assert_eq!(b, tcp.snd_una, "the acknowledged sequence number");
                module.cong_avoid(w, &tcp, a);
                if module.enters_cwr() && tcp.state < CaState::Cwr {
                    // What the rest of `tcp_enter_cwr` does.
                    w.cwnd_count = 0;
                    w.ssthresh = module.ssthresh(w, &tcp);
                    module.set_state(w, &tcp, CaState::Cwr);
                }
            }
            3 => module.set_state(w, &tcp, STATES[(a & 0xff) as usize]),
            4 => match a {
                0 => module.cwnd_event(w, &tcp, CaEvent::TxStart),
                1 => module.cwnd_event(w, &tcp, CaEvent::CwndRestart),
                2 => module.cwnd_event(w, &tcp, CaEvent::CompleteCwr),
                3 => module.cwnd_event(w, &tcp, CaEvent::Loss),
                // The receiver's.
                _ => {}
            },
            5 => {
                let sample = AckSample { pkts_acked: a, rtt_us: b as i32, in_flight: c };
                module.pkts_acked(w, &tcp, &sample);
            }
            6 => module.in_ack_event(&tcp, a & 1 == 1),
            7 => result = module.undo_cwnd(w, prior),
            kind => panic!("callback {kind}"),
        }
        let (got, kernel) = ([w.cwnd, w.cwnd_count, w.ssthresh, w.clamp], call.left());
        if (got, result) != (kernel, call.at(21)) {
            return Err(format!(
                "{} call {number}: the kernel has {kernel:?} {}, the module {got:?} {result}: {call:?}",
                flow.name,
                call.at(21)
            ));
        }
    }
    Ok(flow.calls.len())
}

/// Replays all flows of a controller, each with a new module.
fn check<M: Module>(controller: &str, draw: Draw, new: impl Fn() -> M) {
    let (release, flows) = read(controller);
    assert_eq!(flows.len(), 8, "{controller}");
    let mut total = 0;
    for flow in &flows {
        match replay(new(), draw, flow) {
            Ok(calls) => total += calls,
            Err(difference) => panic!("{controller} of {release}: {difference}"),
        }
    }
    println!("{controller} of {release}: {total} calls in {} flows, 0 differences", flows.len());
    assert!(total > 1000, "{controller}: only {total} calls");
}

/// As [`check`], for a module with a fault: some call must differ.
fn finds<M: Module>(controller: &str, draw: Draw, new: impl Fn() -> M) {
    let (_, flows) = read(controller);
    let found = flows.iter().filter(|flow| replay(new(), draw, flow).is_err()).count();
    println!("{controller}: the fault is found in {found} of {} flows", flows.len());
    assert!(found > 0, "{controller}: the fault is not found");
}

fn htcp_params() -> htcp::Params {
    htcp::Params { hz: HZ, ..Default::default() }
}

fn bic_params() -> bic::Params {
    bic::Params { hz: HZ, ..Default::default() }
}

fn nv_params() -> nv::Params {
    nv::Params { hz: HZ, ..Default::default() }
}

macro_rules! equal {
    ($($test:ident: $controller:literal $draw:ident $module:expr;)+) => {$(
        #[test]
        fn $test() {
            check($controller, $draw, || $module);
        }
    )+};
}

equal! {
    vegas_computes_as_the_kernels: "vegas" no_random vegas::VegasModule::new(Default::default());
    westwood_computes_as_the_kernels: "westwood" no_random westwood::WestwoodModule::new(HZ);
    illinois_computes_as_the_kernels: "illinois" no_random illinois::IllinoisModule::new(Default::default());
    htcp_computes_as_the_kernels: "htcp" no_random htcp::HtcpModule::new(htcp_params());
    bic_computes_as_the_kernels: "bic" no_random bic::BicModule::new(bic_params());
    yeah_computes_as_the_kernels: "yeah" no_random yeah::YeahModule::default();
    veno_computes_as_the_kernels: "veno" no_random veno::VenoModule::default();
    scalable_computes_as_the_kernels: "scalable" no_random scalable::ScalableModule;
    highspeed_computes_as_the_kernels: "highspeed" no_random highspeed::HighSpeedModule::default();
    dctcp_computes_as_the_kernels: "dctcp" no_random dctcp::DctcpModule::new(Default::default());
    lp_computes_as_the_kernels: "lp" no_random lp::LpModule::default();
    nv_computes_as_the_kernels: "nv" draw_of_nv nv::NvModule::new(nv_params());
    cdg_computes_as_the_kernels: "cdg" draw_of_cdg cdg::CdgModule::new(Default::default());
}

/// The recordings reach what the parameters control.
#[test]
fn a_changed_parameter_is_found() {
    let vegas = vegas::Params { beta: 5, ..Default::default() };
    finds("vegas", no_random, || vegas::VegasModule::new(vegas));
    finds("westwood", no_random, || westwood::WestwoodModule::new(HZ + 50));
    let illinois = illinois::Params { win_thresh: 20, ..Default::default() };
    finds("illinois", no_random, || illinois::IllinoisModule::new(illinois));
    let htcp = htcp::Params { use_bandwidth_switch: false, ..htcp_params() };
    finds("htcp", no_random, || htcp::HtcpModule::new(htcp));
    for params in [
        bic::Params { fast_convergence: false, ..bic_params() },
        bic::Params { max_increment: 15, ..bic_params() },
        bic::Params { low_window: 16, ..bic_params() },
        bic::Params { smooth_part: 19, ..bic_params() },
    ] {
        finds("bic", no_random, || bic::BicModule::new(params));
    }
    let dctcp = dctcp::Params { dctcp_shift_g: 5, ..Default::default() };
    finds("dctcp", no_random, || dctcp::DctcpModule::new(dctcp));
    let nv = nv::Params { nv_pad: 11, ..nv_params() };
    finds("nv", draw_of_nv, || nv::NvModule::new(nv));
    for params in [
        cdg::Params { hystart_detect: 2, ..Default::default() },
        cdg::Params { use_ineff: 1, ..Default::default() },
        cdg::Params { use_tolerance: true, ..Default::default() },
    ] {
        finds("cdg", draw_of_cdg, || cdg::CdgModule::new(params));
    }
}

/// The recordings of one controller are not those of a similar one.
#[test]
fn another_controllers_module_is_found() {
    finds("vegas", no_random, veno::VenoModule::default);
    finds("veno", no_random, || vegas::VegasModule::new(Default::default()));
    finds("yeah", no_random, || scalable::ScalableModule);
    finds("scalable", no_random, highspeed::HighSpeedModule::default);
    finds("highspeed", no_random, || scalable::ScalableModule);
    finds("lp", no_random, || scalable::ScalableModule);
}
