//! `mpxdp-bench pipeline`.

use std::io::{self, Write};
use std::time::Duration;

use clap::Args;
use mpxdp_bench::document::Target;
use mpxdp_bench::pipeline::{self, Amount, Plan};
use mpxdp_bench::{Interrupt, Result, options};

use super::{at_least, number};

/// What a packet costs from the port to the reader, stage by stage, without a kernel.
#[derive(Args)]
pub(super) struct PipelineArguments {
    /// Bytes of payload of a packet, 1 to 8960 each: a list with commas, as those below.
    #[arg(long, value_delimiter = ',', default_values_t = [64, 1448, 8948], value_name = "N,...")]
    #[arg(value_parser = number(pipeline::PAYLOAD))]
    payload: Vec<u32>,
    /// Subflows of the connection, 1 to 8; its packets take them in turn.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 8], value_name = "N,...")]
    #[arg(value_parser = number(options::SUBFLOWS))]
    subflows: Vec<u32>,
    /// Connections, 1 to 50000; several have one subflow each, and packets take them in turn.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 10_000], value_name = "N,...")]
    #[arg(value_parser = number(pipeline::CONNECTIONS))]
    connections: Vec<u32>,
    /// Per cent of the packets, 0 to 50, that come 1 to 16 packets of their connection late.
    #[arg(long, value_delimiter = ',', default_values_t = [0.0, 5.0], value_name = "PERCENT,...")]
    #[arg(value_parser = number(pipeline::REORDER))]
    reorder: Vec<f64>,
    /// Seconds of a measurement, at most 60.
    #[arg(long, default_value_t = 0.1, value_name = "S", value_parser = number(pipeline::SECONDS))]
    seconds: f64,
    /// Packets of a measurement, instead of its length.
    #[arg(long, value_name = "N", conflicts_with = "seconds", value_parser = at_least(1_u64))]
    packets: Option<u64>,
    /// Measurements of each case, 1 to 1000.
    #[arg(long, default_value_t = 5, value_name = "R", value_parser = number(options::ROUNDS))]
    rounds: usize,
    /// Run on this CPU.
    #[arg(long, value_name = "N", value_parser = at_least(0_usize))]
    cpu: Option<usize>,
    /// Write one JSON document to a file or (-) standard output.
    #[arg(long, value_name = "FILE|-")]
    json: Option<Target>,
}

pub(super) fn run(arguments: PipelineArguments) -> Result<u8> {
    let PipelineArguments {
        payload,
        subflows,
        connections,
        reorder,
        seconds,
        packets,
        rounds,
        cpu,
        json,
    } = arguments;
    let plan = Plan {
        payloads: payload,
        subflows,
        connections,
        reorder,
        amount: match packets {
            Some(packets) => Amount::Packets(packets),
            None => Amount::Time(Duration::from_secs_f64(seconds)),
        },
        rounds,
        cpu,
    };
    let interrupt = Interrupt::install()?;
    // Whoever started this may be gone, and then there is nobody to tell.
    let mut stderr = io::stderr();
    let mut done = 0;
    pipeline::run(&plan, json.as_ref(), &interrupt, |cases, _| {
        done += 1;
        let _ = write!(stderr, "\rcase {done} of {cases}");
    })?;
    Ok(0)
}
