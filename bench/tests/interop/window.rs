//! A reader that stops and starts, while several subflows are under way.

use std::fs::File;
use std::io::{self, Read};
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use mpxdp_bench::lab::{Family, Lab, Running};

use super::harness::{Recv, assert_pattern, finish};
use super::net::{MIB, Net};

/// How often the reader stops.
const STOPS: u64 = 3;

/// How many of its timeouts Linux may wait for in vain while it is stopped.
const TIMEOUTS: u64 = 5;

/// The window closes and opens again, and each subflow goes on at once: what the client sent is
/// acknowledged at the data level without being asked for, so that its kernel sends nothing again.
///
/// But for what it does by itself. What lies in a subflow's queue when the window closes counts as sent
/// for Linux. If it stays there for longer than a timeout of 200 ms, Linux puts a copy into the queue of
/// another subflow, which is stuck as well, and so on for as long as the window is closed; the copies
/// show up when it opens. That is five timeouts a stop here. One to two for each stop and subflow were
/// seen, of 90,000 segments in all. If acknowledgements were missing, all that was under way, some
/// hundred segments a stop, would come again.
#[test]
fn a_reader_that_stops_makes_the_client_send_nothing_again() {
    const SIZE: u64 = 128 * MIB;
    for (family, subflows) in [(Family::V4, 2), (Family::V6, 4)] {
        let Some(net) = Net::new(Lab::builder(), 2, 1, &[]) else { return };
        net.endpoints(family, subflows);
        let report = net.rig.path("report.json");
        let mut command = net.rig.mpxdp(&["recv", "--output", "-", "--announce", "none"]);
        command.args(["--nic", &net.nic(0), "--nic", &net.nic(1), "--report"]).arg(&report);
        command.args(["--listen", &net.rig.at(family).to_string()]);
        let (mut reader, writer) = io::pipe().expect("a pipe");
        command.stdout(writer).stderr(Stdio::piped());
        let running = Running::start_with("mpxdp recv", &mut command, &[]).expect("it starts");
        // The command holds our end for writing, without which the pipe has no end.
        drop(command);
        let recv = Recv::listening(running, report);
        let sender = net.sender(family, SIZE, &[]);
        let path = net.rig.path("read");
        let mut file = File::create(&path).expect("a file");
        for _ in 0..STOPS {
            io::copy(&mut (&mut reader).take(24 * MIB), &mut file).expect("data");
            // Pipe, ring and window are full long before this is over.
            thread::sleep(Duration::from_secs(1));
        }
        io::copy(&mut reader, &mut file).expect("the rest");
        assert!(finish(sender).status.success());
        let received = recv.finish();
        received.assert_code(0);
        received.assert_frames_home();
        received.assert_owned();
        let connection = received.only();
        connection.assert_complete();
        assert_pattern(&path, SIZE);
        assert_eq!(connection.subflows.len(), subflows as usize, "{connection:#?}");
        let again = net.counter("MPTcpExtMPTCPRetrans");
        assert!(
            again <= TIMEOUTS * STOPS * u64::from(subflows),
            "{again} data-level retransmissions"
        );
        // Linux takes a subflow for stale if its queue does not get shorter for so long, and for well
        // again when it does: none may stay behind.
        let stale = net.counter("MPTcpExtSubflowStale");
        assert_eq!(net.counter("MPTcpExtSubflowRecover"), stale);
        assert!(connection.subflows.iter().all(|one| one.bytes > MIB), "{connection:#?}");
    }
}
