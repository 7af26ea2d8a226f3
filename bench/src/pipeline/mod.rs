//! The data plane without a kernel: what a packet costs from the port to the reader, and where.
//!
//! Packets are made ahead in blocks (`peer`), lie on a cable in memory, and go through the worker of
//! an engine to a reader (`rig`), all on one thread. Blocks are measured in turn as they are and with a
//! clock between the stages (`clock`), until there are enough of both (`round`). Beside it stand the limits of the machine over the
//! same frames (`limits`) and another TCP in user space (`smol`). docs/benchmarking.md says how to
//! read the numbers.

mod clock;
mod limits;
mod peer;
mod plan;
mod rig;
mod round;
mod smol;
mod table;

use std::fs;

use mpxdp::CpuList;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

pub use self::clock::{Calibration, STAGE_NAMES, STAGES, StageClock, StageTimes, Watch};
pub use self::plan::{Amount, CONNECTIONS, Case, PAYLOAD, Plan, REORDER, SECONDS};
pub use self::table::{summary, table};

use self::limits::Work;
use self::peer::{Peer, Shape};
use self::rig::Rig;
use self::round::{Round, Summary, alternate, repeat};
use self::smol::Smoltcp;
use crate::conclude::conclude;
use crate::document::{Clock, Document, Limits, NotRun, Pipeline, Row, Stages, Target};
use crate::measure::Spread;
use crate::{Error, Interrupt, Result};

/// Descriptors that a process needs besides one for each of many connections.
const SPARE_DESCRIPTORS: u64 = 256;

/// Measures all cases of `plan`, shows the table on standard error and writes the document, if it is to
/// go anywhere; `progress` is told how many cases there are and of each one that was measured.
///
/// # Errors
///
/// A plan that cannot be, too few descriptors, a packet that got lost or damaged, or a signal. The cases
/// that were measured before are shown and written all the same.
pub fn run(
    plan: &Plan,
    json: Option<&Target>,
    interrupt: &Interrupt,
    progress: impl FnMut(usize, &Row),
) -> Result<()> {
    let cases = plan.cases()?;
    if let Some(json) = json {
        json.check("--json")?;
    }
    let mut document = Document::new();
    let ended = measure_all(plan, cases, interrupt, &mut document, progress);
    // The line that tells of the progress is not ended yet.
    conclude(&mut document, ended, |document| format!("\n{}\n", summary(document)), json)
}

/// Measures cases into a document, which has those that were measured whatever comes then.
fn measure_all(
    plan: &Plan,
    cases: Vec<Case>,
    interrupt: &Interrupt,
    document: &mut Document,
    mut progress: impl FnMut(usize, &Row),
) -> Result<()> {
    if !document.environment.optimised {
        let remark = "built without optimisation, or with checks: no measure of anything";
        document.remarks.push(remark.into());
    }
    if let Some(cpu) = plan.cpu {
        let pinned = [cpu].into_iter().collect::<CpuList>().pin_this_thread();
        pinned.map_err(|e| Error::Usage(format!("--cpu {cpu}: {e}")))?;
    }
    let cases = affordable(cases, &mut document.not_run)?;
    let (calibration, count) = (Calibration::measure(), cases.len());
    for case in cases {
        interrupt.check()?;
        let row = measure(&case, plan, &calibration, interrupt)?;
        document.remarks.extend(remarks(&row));
        progress(count, &row);
        document.results.push(row);
    }
    Ok(())
}

/// What a reader should know of a case.
fn remarks(row: &Row) -> Vec<String> {
    let Some(Pipeline { case, explained, explained_fraction, .. }) = &row.pipeline else {
        return Vec::new();
    };
    let name = format!(
        "payload {}, {} subflows, {} connections, {} % late",
        case.payload, case.subflows, case.connections, case.reorder_percent
    );
    let unexplained = (!explained).then(|| {
        let percent = 100.0 * explained_fraction;
        format!(
            "{name}: the stages add up to {percent:.0} % of the total, so they do not explain it"
        )
    });
    let noisy = row.noisy_reason.as_ref().map(|why| format!("{name}: noisy: {why}"));
    unexplained.into_iter().chain(noisy).collect()
}

/// The cases that there is memory for, the others being added to `not_run`; raises the limit of
/// descriptors for those.
fn affordable(cases: Vec<Case>, not_run: &mut Vec<NotRun>) -> Result<Vec<Case>> {
    let available = available_memory();
    let mut within = Vec::new();
    for case in cases {
        if case.memory() <= available {
            within.push(case);
            continue;
        }
        let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
        let what = format!("pipeline, {} connections", case.connections);
        let reason = format!(
            "they take {:.1} GiB of memory, and {:.1} are available",
            gib(case.memory()),
            gib(available)
        );
        if not_run.iter().all(|known| known.what != what) {
            not_run.push(NotRun { what, reason });
        }
    }
    if within.is_empty() {
        let NotRun { what, reason } = not_run.first().expect("a plan has a case");
        return Err(Error::Missing(format!("{what}: {reason}")));
    }
    let most = within.iter().map(|case| case.connections).max().unwrap_or(1);
    // An eventfd for each connection.
    let needed = u64::from(most) + SPARE_DESCRIPTORS;
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)
        .map_err(|e| Error::failed("the limit of descriptors", e))?;
    if soft < needed && setrlimit(Resource::RLIMIT_NOFILE, needed.min(hard), hard).is_err()
        || hard < needed
    {
        return Err(Error::Missing(format!(
            "pipeline: {most} connections take {needed} descriptors, and {hard} are allowed: raise \
             `ulimit -n`, or name fewer --connections"
        )));
    }
    Ok(within)
}

/// Bytes that the kernel could give without swapping, less a tenth; all if it does not tell.
fn available_memory() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.map_or(u64::MAX, |kib| kib * 1024 / 10 * 9)
}

/// Measures one case.
fn measure(
    case: &Case,
    plan: &Plan,
    calibration: &Calibration,
    interrupt: &Interrupt,
) -> Result<Row> {
    let shape = Shape {
        connections: case.connections,
        subflows: case.subflows,
        payload: case.payload as usize,
        reorder: case.reorder_percent,
        mptcp: true,
    };
    let packet = Peer::headers(shape.mptcp) + shape.payload;
    let rounds = measure_rounds(shape, case, plan, calibration, interrupt)?;
    let Summary { total, stages, explained_fraction, packets, disturbed } =
        Summary::of(&rounds).expect("there is a round at least");
    // As many packets as the total is of: in the same time there would be some ten times as many, and
    // making them is what takes long.
    let amount = Amount::Packets(packets.div_ceil(plan.rounds as u64));
    let limits = measure_limits(shape, case, plan.rounds, amount, calibration, interrupt)?;
    let nanoseconds = |ticks: f64| calibration.nanoseconds(ticks);
    let in_nanoseconds = Spread {
        median: nanoseconds(total.median),
        min: nanoseconds(total.min),
        max: nanoseconds(total.max),
    };
    let packets_per_second = 1e9 / in_nanoseconds.median;
    let bits = f64::from(case.payload) * 8.0 * 1e9;
    let has_cycles = cfg!(target_arch = "x86_64");
    let pipeline = Pipeline {
        case: *case,
        packet_bytes: packet as u32,
        buffers_per_packet: packet.div_ceil(rig::FRAME_SIZE) as u32,
        packets,
        disturbed_packets: disturbed,
        total_nanoseconds_per_packet: in_nanoseconds,
        nanoseconds_per_packet: Stages::new(stages.map(nanoseconds)),
        total_cycles_per_packet: has_cycles.then_some(total),
        cycles_per_packet: has_cycles.then(|| Stages::new(stages)),
        explained_fraction,
        explained: Pipeline::is_explained(explained_fraction),
        packets_per_second,
        limits,
        clock: Clock {
            source: if has_cycles { "tsc" } else { "monotonic" }.into(),
            ticks_per_second: calibration.ticks_per_nanosecond * 1e9,
            mark_nanoseconds: nanoseconds(calibration.mark),
        },
    };
    let row = Row {
        benchmark: "pipeline".into(),
        receiver: "mpxdp".into(),
        mtu: (packet - peer::LINK.wire_len()) as u32,
        subflows: case.subflows,
        placement: "one thread".into(),
        best: true,
        mode: "a cable in memory".into(),
        mptcp: true,
        rounds: plan.rounds,
        // The fastest round is the greatest rate.
        bits_per_second: Some(Spread {
            median: bits / in_nanoseconds.median,
            min: bits / in_nanoseconds.max,
            max: bits / in_nanoseconds.min,
        }),
        pipeline: Some(pipeline),
        ..Row::default()
    };
    Ok(row.judged_by_its_spread())
}

/// Measures the rounds of a case on one rig, on which blocks with and without the stage clock take
/// turns. Before and after, what is read is compared with what was sent.
fn measure_rounds(
    shape: Shape,
    case: &Case,
    plan: &Plan,
    calibration: &Calibration,
    interrupt: &Interrupt,
) -> Result<Vec<Round>> {
    let packet = Peer::headers(shape.mptcp) + shape.payload;
    let stage_clock = StageClock::default();
    let mut rig = Rig::new(shape, case.ring_bytes)?;
    rig.warm_up(shape, case.ring_bytes, interrupt)?;
    rig.set_verify(false);
    let rounds = (0..plan.rounds).map(|_| {
        let [bare, watched] = alternate(plan.amount, calibration, |watched, most| {
            interrupt.check()?;
            if watched {
                rig.block(packet, most, &stage_clock)
            } else {
                rig.block(packet, most, ())
            }
        })?;
        Ok(Round::of(&bare, &watched, calibration))
    });
    let rounds = rounds.collect::<Result<_>>()?;
    rig.set_verify(true);
    rig.finish()?;
    Ok(rounds)
}

fn measure_limits(
    shape: Shape,
    case: &Case,
    rounds: usize,
    amount: Amount,
    calibration: &Calibration,
    interrupt: &Interrupt,
) -> Result<Limits> {
    let mut frames = limits::Limits::new(shape, case.ring_bytes);
    let mut median_of = |work: Work| -> Result<f64> {
        frames.block(work);
        let all: Result<Vec<f64>> = (0..rounds)
            .map(|_| {
                let all = repeat(amount, calibration, |_| {
                    interrupt.check()?;
                    Ok(frames.block(work))
                })?;
                Ok(calibration.nanoseconds(all.per_packet(calibration)))
            })
            .collect();
        Ok(Spread::of(all?).expect("there is a round at least").median)
    };
    let memcpy = median_of(Work::Copy)?;
    let checksum = median_of(Work::Checksum)?;
    let checksum_copy = median_of(Work::ChecksumAndCopy)?;
    let same = case.connections == 1 && case.subflows == 1 && case.reorder_percent == 0.0;
    let smoltcp = if same {
        let mut smoltcp = Smoltcp::new(shape.payload, case.ring_bytes)?;
        smoltcp.block()?;
        let all: Result<Vec<f64>> = (0..rounds)
            .map(|_| {
                let all = repeat(amount, calibration, |_| {
                    interrupt.check()?;
                    smoltcp.block()
                })?;
                Ok(calibration.nanoseconds(all.per_packet(calibration)))
            })
            .collect();
        Spread::of(all?).map(|rounds| rounds.median)
    } else {
        None
    };
    Ok(Limits { memcpy, checksum, checksum_copy, smoltcp })
}

#[cfg(test)]
mod tests;
